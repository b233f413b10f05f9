//! Reads and writes of a socket that does not block.

use std::io::{self, ErrorKind, Read, Write};

/// Reads the bytes that have come: `Some(0)` at the end of the stream, `None` if none have come.
pub fn read_some(socket: &mut impl Read, buf: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match socket.read(buf) {
            Ok(n) => return Ok(Some(n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Writes as many of these bytes as the socket takes, and keeps the others.
pub fn write_some(socket: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    let end = loop {
        let rest = bytes.get(written..).unwrap_or_default();
        if rest.is_empty() {
            break Ok(());
        }
        match socket.write(rest) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => break Err(e),
        }
    };
    if written == bytes.len() {
        bytes.clear();
    } else {
        bytes.drain(..written);
    }
    end
}
