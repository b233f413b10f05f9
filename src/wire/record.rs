//! Jute records: a bounds-checked reader, a writer, and the records of the handshake.

use super::Malformed;

/// Reads big-endian jute fields off a frame.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed("a truncated record"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed("a truncated record"))?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    /// A buffer; a negative length is jute's null and reads as empty.
    pub(crate) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.i32()?;
        self.take(usize::try_from(n).unwrap_or(0))
    }

    pub(crate) fn string(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Malformed("a string that is not UTF-8"))
    }

    /// The count of a vector whose items take at least `least` bytes each.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let n = usize::try_from(self.i32()?).map_err(|_| Malformed("a negative count"))?;
        if n.saturating_mul(least) > self.0.len() {
            return Err(Malformed("a count beyond the record"));
        }
        Ok(n)
    }

    /// Reads a `Stat`.
    pub(crate) fn stat(&mut self) -> Result<Stat, Malformed> {
        let (czxid, _mzxid) = (self.i64()?, self.i64()?);
        let (ctime, _mtime) = (self.i64()?, self.i64()?);
        let version = self.i32()?;
        let (_cversion, _aversion) = (self.i32()?, self.i32()?);
        let owner = self.i64()?;
        let (_data_length, _children, _pzxid) = (self.i32()?, self.i32()?, self.i64()?);
        Ok(Stat { czxid, ctime, version, owner })
    }
}

/// What the library reads of a node's `Stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    /// When it was made: milliseconds since 1970, by the server's clock.
    pub(crate) ctime: i64,
    /// How often its data was changed.
    pub(crate) version: i32,
    /// The session that owns it; 0 if none does.
    pub(crate) owner: i64,
}

/// What only a server reads: nothing here may fail that the real server takes.
#[cfg(feature = "testing")]
impl<'a> Reader<'a> {
    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        self.array().map(|[byte]| byte != 0)
    }

    /// A buffer, or jute's null.
    pub(crate) fn nullable_buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            n => {
                let n = usize::try_from(n).map_err(|_| Malformed("a negative length"))?;
                self.take(n).map(Some)
            }
        }
    }

    /// A string, or jute's null. As in Java, bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn nullable_string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.nullable_buffer()?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// A vector, or jute's null. A negative count is an empty vector, as in Java.
    pub(crate) fn nullable_vector<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(None);
        }
        // Not `with_capacity`: the count is whatever the client says.
        (0..count).map(|_| item(self)).collect::<Result<_, _>>().map(Some)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// Builds one frame, perhaps behind others.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// Where this frame begins.
    start: usize,
}

impl Writer {
    /// A frame that starts with a request header.
    pub(crate) fn request(xid: i32, op: i32) -> Self {
        Writer::bare().i32(xid).i32(op)
    }

    pub(crate) fn bare() -> Self {
        Writer::behind(Vec::new())
    }

    /// A frame behind those that are in `bytes`.
    pub(crate) fn behind(mut bytes: Vec<u8>) -> Self {
        let start = bytes.len();
        bytes.extend([0; 4]);
        Writer { bytes, start }
    }

    pub(crate) fn i32(mut self, n: i32) -> Self {
        self.bytes.extend(n.to_be_bytes());
        self
    }

    pub(crate) fn i64(mut self, n: i64) -> Self {
        self.bytes.extend(n.to_be_bytes());
        self
    }

    pub(crate) fn bool(mut self, b: bool) -> Self {
        self.bytes.push(b.into());
        self
    }

    /// Bytes that are encoded already.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn buffer(mut self, bytes: &[u8]) -> Self {
        // Nothing of ours comes near 2 GiB: paths, credentials and data are bounded when they come in.
        self.bytes.extend((bytes.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The bytes so far.
    #[cfg(feature = "testing")]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The frame, its length filled in, and those before it.
    pub(crate) fn frame(mut self) -> Vec<u8> {
        let length = (self.bytes.len() - self.start - 4) as i32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_be_bytes());
        self.bytes
    }
}

/// The first frame of a client.
pub(crate) struct ConnectRequest<'a> {
    pub(crate) last_zxid: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) session_id: i64,
    pub(crate) password: &'a [u8],
}

impl ConnectRequest<'_> {
    pub(crate) fn frame(&self) -> Vec<u8> {
        Writer::bare()
            .i32(0)
            .i64(self.last_zxid)
            .i32(self.timeout_ms)
            .i64(self.session_id)
            .buffer(self.password)
            .bool(false)
            .frame()
    }

    /// The request, and whether the client said anything about read-only servers, as those since 3.4 do.
    #[cfg(feature = "testing")]
    pub(crate) fn read(frame: &[u8]) -> Result<(ConnectRequest<'_>, bool), Malformed> {
        let mut r = Reader::new(frame);
        r.i32()?;
        let (last_zxid, timeout_ms, session_id) = (r.i64()?, r.i32()?, r.i64()?);
        let password = r.nullable_buffer()?.unwrap_or_default();
        let request = ConnectRequest { last_zxid, timeout_ms, session_id, password };
        Ok((request, r.bool().is_ok()))
    }
}

/// The first frame of a server. A timeout of zero says that the session is no more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConnectReply {
    pub(crate) timeout_ms: i32,
    pub(crate) session_id: i64,
    pub(crate) password: Vec<u8>,
}

impl ConnectReply {
    pub(crate) fn read(frame: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(frame);
        if r.i32()? != 0 {
            return Err(Malformed("an unknown protocol version"));
        }
        let reply =
            ConnectReply { timeout_ms: r.i32()?, session_id: r.i64()?, password: r.buffer()?.to_vec() };
        if reply.password.len() > 64 {
            return Err(Malformed("a password of impossible length"));
        }
        Ok(reply)
    }

    #[cfg(any(feature = "client", feature = "testing", test))]
    pub(crate) fn frame(&self) -> Vec<u8> {
        self.fields().bool(false).frame()
    }

    /// For a client that knows nothing of read-only servers.
    #[cfg(feature = "testing")]
    pub(crate) fn old_frame(&self) -> Vec<u8> {
        self.fields().frame()
    }

    #[cfg(any(feature = "client", feature = "testing", test))]
    fn fields(&self) -> Writer {
        Writer::bare().i32(0).i32(self.timeout_ms).i64(self.session_id).buffer(&self.password)
    }
}

/// What each later frame of a server starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHeader {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) err: i32,
}

impl ReplyHeader {
    /// The header, and the body behind it.
    pub(crate) fn read(frame: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut r = Reader::new(frame);
        let header = ReplyHeader { xid: r.i32()?, zxid: r.i64()?, err: r.i32()? };
        Ok((header, r.0))
    }

    pub(crate) fn frame(&self, body: &[u8]) -> Vec<u8> {
        let mut w = Writer::bare().i32(self.xid).i64(self.zxid).i32(self.err);
        w.bytes.extend_from_slice(body);
        w.frame()
    }
}

/// The xid and the operation of a client's request.
#[cfg(any(feature = "client", test))]
pub(crate) fn request_header(frame: &[u8]) -> Result<(i32, i32), Malformed> {
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
