//! The shape of ZooKeeper's traffic: frames, and the fields of records.

/// Longer than any frame a test sends; what claims to be longer is not a frame.
pub const MAX_FRAME: usize = 64 << 20;

/// Builds one frame; big-endian fields in the order they are added.
pub struct Writer(Vec<u8>);

impl Writer {
    #[allow(clippy::new_without_default)] // a scenario says what it begins
    pub fn new() -> Writer {
        Writer(vec![0; 4])
    }

    pub fn i32(mut self, value: i32) -> Writer {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i64(mut self, value: i64) -> Writer {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn bool(mut self, value: bool) -> Writer {
        self.0.push(u8::from(value));
        self
    }

    pub fn buffer(mut self, bytes: &[u8]) -> Writer {
        self = self.i32(bytes.len() as i32);
        self.0.extend(bytes);
        self
    }

    pub fn string(self, text: &str) -> Writer {
        self.buffer(text.as_bytes())
    }

    /// The frame, its length in front.
    pub fn frame(mut self) -> Vec<u8> {
        let length = self.0.len() as i32 - 4;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Reads fields off the front; None where the record ends too soon.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    pub fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A buffer; a null one (length -1) is empty.
    pub fn buffer(&mut self) -> Option<&'a [u8]> {
        match self.i32()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    pub fn string(&mut self) -> Option<String> {
        String::from_utf8(self.buffer()?.to_vec()).ok()
    }
}

/// Cuts a stream into frames.
#[derive(Default)]
pub struct Framer {
    bytes: Vec<u8>,
    foreign: bool,
}

/// What stands at the front of a stream.
pub enum Next {
    /// A whole frame, its length still in front.
    Frame(Vec<u8>),
    /// More bytes are needed.
    Partial,
    /// Not ZooKeeper's (a four-letter word, garbage), and so is all that follows: all bytes there
    /// are.
    Foreign(Vec<u8>),
}

impl Framer {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    #[allow(clippy::should_implement_trait)] // it may have to wait for more
    pub fn next(&mut self) -> Next {
        if self.foreign && !self.bytes.is_empty() {
            return Next::Foreign(std::mem::take(&mut self.bytes));
        }
        let Some(length) = Reader(&self.bytes).i32() else {
            return Next::Partial;
        };
        match usize::try_from(length) {
            Ok(length) if length <= MAX_FRAME => match self.bytes.len() >= 4 + length {
                true => Next::Frame(self.bytes.drain(..4 + length).collect()),
                false => Next::Partial,
            },
            _ => {
                self.foreign = true;
                Next::Foreign(std::mem::take(&mut self.bytes))
            }
        }
    }
}
