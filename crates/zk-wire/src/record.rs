//! Jute records: a bounds-checked reader, a writer, the records of the handshake, and the header of
//! a reply.

use crate::Malformed;
use crate::code::event;

/// Reads the big-endian jute fields of a frame, from the front.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes: a frame without its length.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed("a truncated record"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) =
            self.0.split_first_chunk::<N>().ok_or(Malformed("a truncated record"))?;
        self.0 = tail;
        Ok(*head)
    }

    /// An `int`.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    /// A `long`.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// A buffer. A negative length is jute's null, which is read as an empty buffer.
    pub fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.i32()?;
        self.take(usize::try_from(n).unwrap_or(0))
    }

    /// A string. Jute's null is read as an empty string.
    pub fn string(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Malformed("a string that is not UTF-8"))
    }

    /// The count of a vector whose items have at least `least` bytes each.
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let n = usize::try_from(self.i32()?).map_err(|_| Malformed("a negative count"))?;
        if n.saturating_mul(least) > self.0.len() {
            return Err(Malformed("a count beyond the record"));
        }
        Ok(n)
    }

    /// Reads a `Stat`.
    pub fn stat(&mut self) -> Result<Stat, Malformed> {
        Ok(Stat {
            czxid: self.i64()?,
            mzxid: self.i64()?,
            ctime: self.i64()?,
            mtime: self.i64()?,
            version: self.i32()?,
            cversion: self.i32()?,
            aversion: self.i32()?,
            owner: self.i64()?,
            data_length: self.i32()?,
            children: self.i32()?,
            pzxid: self.i64()?,
        })
    }
}

/// What a server says of a node beside its data: ZooKeeper's `Stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stat {
    /// The transaction that made the node. No other node ever has this number together with the
    /// same path, so the two together name a node for good.
    pub czxid: i64,
    /// The last transaction that changed the node's data. Before the first change it is the
    /// transaction that made the node.
    pub mzxid: i64,
    /// When it was made: milliseconds since 1970, by the server's clock.
    pub ctime: i64,
    /// When its data was last changed: milliseconds since 1970, by the server's clock.
    pub mtime: i64,
    /// How often its data was changed.
    pub version: i32,
    /// How often a child of it was made or deleted.
    pub cversion: i32,
    /// How often its ACL was changed.
    pub aversion: i32,
    /// The session with which the node ends (`ephemeralOwner`); 0 if there is none, as for a
    /// container and for a node with a time to live.
    pub owner: i64,
    /// The length of its data in bytes.
    pub data_length: i32,
    /// How many children it has.
    pub children: i32,
    /// The last transaction that made or deleted a child of it.
    pub pzxid: i64,
}

/// Methods for servers. They must accept everything that ZooKeeper's own server accepts.
impl<'a> Reader<'a> {
    /// A `boolean`.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        self.array().map(|[byte]| byte != 0)
    }

    /// A buffer, or jute's null.
    pub fn nullable_buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            n => {
                let n = usize::try_from(n).map_err(|_| Malformed("a negative length"))?;
                self.take(n).map(Some)
            }
        }
    }

    /// A string, or jute's null. As in Java, bytes that are not UTF-8 become U+FFFD.
    pub fn nullable_string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.nullable_buffer()?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// A vector, or jute's null. A negative count is an empty vector, as in Java.
    pub fn nullable_vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(None);
        }
        // No capacity is reserved, because the client may send any count.
        (0..count).map(|_| item(self)).collect::<Result<_, _>>().map(Some)
    }

    /// The bytes that were not read.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// Builds one frame, perhaps after others.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    /// The start of this frame.
    start: usize,
}

impl Writer {
    /// A frame that starts with a request header.
    pub fn request(xid: i32, op: i32) -> Self {
        Writer::bare().i32(xid).i32(op)
    }

    /// A frame with nothing in it yet.
    pub fn bare() -> Self {
        Writer::append_to(Vec::new())
    }

    /// A frame after those that are in `bytes`.
    pub fn append_to(mut bytes: Vec<u8>) -> Self {
        let start = bytes.len();
        bytes.extend([0; 4]);
        Writer { bytes, start }
    }

    /// An `int`.
    pub fn i32(mut self, n: i32) -> Self {
        self.bytes.extend(n.to_be_bytes());
        self
    }

    /// A `long`.
    pub fn i64(mut self, n: i64) -> Self {
        self.bytes.extend(n.to_be_bytes());
        self
    }

    /// A `boolean`.
    pub fn bool(mut self, b: bool) -> Self {
        self.bytes.push(b.into());
        self
    }

    /// Bytes that are encoded already.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A buffer or a string, of less than 2 GiB.
    pub fn buffer(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend((bytes.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The bytes so far.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of a frame that was begun with [`bare`](Self::bare), without its length.
    pub fn body(self) -> Vec<u8> {
        self.bytes.get(self.start + 4..).unwrap_or_default().to_vec()
    }

    /// The bytes with the frame's length filled in, and the frames before it.
    pub fn frame(mut self) -> Vec<u8> {
        let length = (self.bytes.len() - self.start - 4) as i32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_be_bytes());
        self.bytes
    }
}

/// The first frame of a client.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// The newest transaction that the client knows.
    pub last_zxid: i64,
    /// The session timeout that it wants.
    pub timeout_ms: i32,
    /// The session that it resumes; 0 for a new one.
    pub session_id: i64,
    /// The password of that session; zeros for a new one.
    pub password: &'a [u8],
}

impl ConnectRequest<'_> {
    /// The request as a frame, its length in front.
    pub fn frame(&self) -> Vec<u8> {
        Writer::bare()
            .i32(0)
            .i64(self.last_zxid)
            .i32(self.timeout_ms)
            .i64(self.session_id)
            .buffer(self.password)
            .bool(false)
            .frame()
    }

    /// Reads a request: a frame without its length. The flag says whether the request mentions
    /// read-only servers, as those of clients since 3.4 do.
    pub fn read(frame: &[u8]) -> Result<(ConnectRequest<'_>, bool), Malformed> {
        let mut r = Reader::new(frame);
        r.i32()?;
        let (last_zxid, timeout_ms, session_id) = (r.i64()?, r.i32()?, r.i64()?);
        let password = r.nullable_buffer()?.unwrap_or_default();
        let request = ConnectRequest { last_zxid, timeout_ms, session_id, password };
        Ok((request, r.bool().is_ok()))
    }
}

/// The first frame of a server. A timeout of zero means that the session does not exist any more.
#[derive(Debug, PartialEq, Eq)]
pub struct ConnectReply {
    /// The session timeout that is granted.
    pub timeout_ms: i32,
    /// The session.
    pub session_id: i64,
    /// The password that a client needs to resume the session.
    pub password: Vec<u8>,
}

impl ConnectReply {
    /// Reads a reply: a frame without its length.
    pub fn read(frame: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(frame);
        if r.i32()? != 0 {
            return Err(Malformed("an unknown protocol version"));
        }
        let reply = ConnectReply {
            timeout_ms: r.i32()?,
            session_id: r.i64()?,
            password: r.buffer()?.to_vec(),
        };
        if reply.password.len() > 64 {
            return Err(Malformed("a password of impossible length"));
        }
        Ok(reply)
    }

    /// The reply as a frame, its length in front.
    pub fn frame(&self) -> Vec<u8> {
        self.fields().bool(false).frame()
    }

    /// The same for a client that does not know of read-only servers.
    pub fn old_frame(&self) -> Vec<u8> {
        self.fields().frame()
    }

    fn fields(&self) -> Writer {
        Writer::bare().i32(0).i32(self.timeout_ms).i64(self.session_id).buffer(&self.password)
    }
}

/// The start of each later frame of a server.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHeader {
    /// The request that is answered, or one of [`xid`](crate::code::xid).
    pub xid: i32,
    /// The newest transaction that the server has applied.
    pub zxid: i64,
    /// One of [`err`](crate::code::err).
    pub err: i32,
}

impl ReplyHeader {
    /// Reads the header, and gives the body after it.
    pub fn read(frame: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut r = Reader::new(frame);
        let header = ReplyHeader { xid: r.i32()?, zxid: r.i64()?, err: r.i32()? };
        Ok((header, r.0))
    }

    /// The header and the body as a frame, its length in front.
    pub fn frame(&self, body: &[u8]) -> Vec<u8> {
        let mut w = Writer::bare().i32(self.xid).i64(self.zxid).i32(self.err);
        w.bytes.extend_from_slice(body);
        w.frame()
    }
}

/// The body of the frame that sends a watch event to a client: its type, one of
/// [`event`], and the node's path.
pub fn watch_event(kind: i32, path: &str) -> Vec<u8> {
    Writer::bare().i32(kind).i32(event::SYNC_CONNECTED).buffer(path.as_bytes()).body()
}

/// The xid and the operation of a client's request.
pub fn request_header(frame: &[u8]) -> Result<(i32, i32), Malformed> {
    let mut r = Reader::new(frame);
    Ok((r.i32()?, r.i32()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn connect_reply_round_trips() {
        let reply = ConnectReply { timeout_ms: 4000, session_id: -7, password: vec![1; 16] };
        assert_eq!(ConnectReply::read(&reply.frame()[4..]), Ok(reply));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ConnectReply::read(&bytes);
            let _ = ReplyHeader::read(&bytes);
            let _ = request_header(&bytes);
            let mut r = Reader::new(&bytes);
            while r.string().is_ok() && !r.0.is_empty() {}
            let _ = Reader::new(&bytes).count(4);
            let _ = Reader::new(&bytes).stat();
        }
    }
}
