//! The wire format of [Apache ZooKeeper](https://zookeeper.apache.org): frames, records, operation
//! and error codes, and the rules for paths. Both `zk-mutex`, a client, and `zk-test-server`, a
//! server, are built on it.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`frame`] | cuts a stream of bytes into frames |
//! | [`record`] | fields and records, read and written; the handshake and the headers |
//! | [`code`] | the codes of operations, errors and watch events |
//! | [`path`] | which paths ZooKeeper allows, and taking paths apart |
//! | `digest_md5` | the login by SASL DIGEST-MD5, both sides; with the feature `digest-md5` |
//!
//! The crate has no sockets, no threads and no clock. Everything that it reads comes from outside:
//! lengths are bounded, arithmetic is checked, and bytes that are not the protocol give
//! [`Malformed`], never a panic.
//!
//! ```
//! use zk_wire::code::{err, op};
//! use zk_wire::frame::Frames;
//! use zk_wire::record::{Reader, ReplyHeader, Writer};
//!
//! // A client asks whether there is a node, and wants no watch on it.
//! let request = Writer::request(1, op::EXISTS).buffer(b"/locks").bool(false).frame();
//!
//! // The server reads the request, in whatever pieces it comes, and answers that there is none.
//! let mut stream = Frames::default();
//! stream.push(&request[..7]);
//! assert_eq!(stream.next(), Ok(None));
//! stream.push(&request[7..]);
//! let frame = stream.next()?.expect("the frame is whole");
//! let mut fields = Reader::new(frame);
//! assert_eq!((fields.i32(), fields.i32(), fields.string()), (Ok(1), Ok(op::EXISTS), Ok("/locks")));
//! let answer = ReplyHeader { xid: 1, zxid: 17, err: err::NO_NODE }.frame(&[]);
//!
//! let (header, body) = ReplyHeader::read(&answer[4..])?;
//! assert_eq!((header.xid, err::name(header.err).as_str()), (1, "NoNode"));
//! assert!(body.is_empty());
//! # Ok::<(), zk_wire::Malformed>(())
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod code;
#[cfg(feature = "digest-md5")]
pub mod digest_md5;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod path;
pub mod record;

use std::fmt;

/// The bytes of a peer are not ZooKeeper's protocol, for this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}
