//! The fuzz targets of this crate: frames and records with the bytes of any peer.

use super::Script;
use crate::frame::{FrameOrHead, Frames, HEAD, MAX_FRAME};
use crate::record::{ConnectReply, ConnectRequest, Reader, ReplyHeader, Writer, request_header};

/// A part of a stream of frames, as a reader finds it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Frame(Vec<u8>),
    Head(Vec<u8>),
    Malformed,
}

/// A stream in pieces: the frames that are found depend on the bytes alone, and not on the pieces.
pub fn frames(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (accepts_long, cuts, stream) = (script.flag(), script.piece(), script.rest());
    let (expected, missing) = read(stream, accepts_long);

    let (mut frames, mut seen) = (Frames::default(), Vec::new());
    let (mut rest, mut cuts) = (stream, cuts.iter().map(|cut| usize::from(*cut) + 1).cycle());
    while !rest.is_empty() && seen.last() != Some(&Seen::Malformed) {
        let (piece, left) = rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
        rest = left;
        frames.push(piece);
        collect(&mut frames, accepts_long, &mut seen);
    }
    assert_eq!(seen, expected);
    if seen.last() == Some(&Seen::Malformed) {
        return;
    }
    assert_eq!(frames.is_skipping(), missing > 0);
    // The rest of a frame that is skipped, and then another frame.
    const ZEROS: &[u8] = &[0; 1 << 20];
    let mut left = missing;
    while left > 0 {
        assert!(frames.is_skipping());
        let piece = &ZEROS[..left.min(ZEROS.len())];
        frames.push(piece);
        left -= piece.len();
    }
    assert!(!frames.is_skipping());
    frames.clear();
    frames.push(&[0, 0, 0, 1, 9]);
    assert_eq!(frames.next(), Ok(Some(&[9][..])));
    assert_eq!(frames.next(), Ok(None));
}

fn collect(frames: &mut Frames, accepts_long: bool, seen: &mut Vec<Seen>) {
    loop {
        let mut is_long = false;
        let expects_long = || {
            is_long = true;
            accepts_long
        };
        match frames.next_or_head(expects_long) {
            Ok(Some(FrameOrHead::Frame(frame))) => {
                assert!(frame.len() <= MAX_FRAME && !is_long);
                seen.push(Seen::Frame(frame.to_vec()));
            }
            Ok(Some(FrameOrHead::Head(head))) => {
                assert!(is_long && accepts_long);
                seen.push(Seen::Head(head.to_vec()));
            }
            Ok(None) => return,
            Err(_) => {
                assert!(frames.next().is_err(), "a malformed stream stays malformed");
                return seen.push(Seen::Malformed);
            }
        }
    }
}

/// The frames of a stream, read in one piece; and the number of missing bytes of the last frame, if
/// that is too long.
fn read(mut stream: &[u8], accepts_long: bool) -> (Vec<Seen>, usize) {
    let mut all = Vec::new();
    while let Some((prefix, rest)) = stream.split_first_chunk::<4>() {
        let Ok(length) = usize::try_from(i32::from_be_bytes(*prefix)) else {
            all.push(Seen::Malformed);
            break;
        };
        if length > MAX_FRAME {
            if !accepts_long {
                all.push(Seen::Malformed);
            } else if let Some(head) = rest.get(..HEAD) {
                all.push(Seen::Head(head.to_vec()));
                return (all, length - rest.len());
            }
            break;
        }
        let Some((frame, rest)) = rest.split_at_checked(length) else { break };
        all.push(Seen::Frame(frame.to_vec()));
        stream = rest;
    }
    (all, 0)
}

/// Records: a record that was read is written as the same bytes, and no reader reads past its
/// bytes.
pub fn records(bytes: &[u8]) {
    if let Ok(reply) = ConnectReply::read(bytes) {
        assert!(reply.password.len() <= 64);
        assert_eq!(ConnectReply::read(&reply.frame()[4..]), Ok(reply));
    }
    if let Ok((header, body)) = ReplyHeader::read(bytes) {
        assert_eq!(&header.frame(body)[4..], bytes);
    }
    if let Ok((xid, op)) = request_header(bytes) {
        assert_eq!(&Writer::request(xid, op).raw(&bytes[8..]).frame()[4..], bytes);
    }
    server_records(bytes);

    let mut script = Script::new(bytes);
    let (kinds, record) = (script.piece(), script.rest());
    let (mut r, mut written) = (Reader::new(record), Writer::bare());
    let mut is_null = false;
    for kind in kinds {
        written = match kind % 6 {
            0 => match r.i32() {
                Ok(n) => written.i32(n),
                Err(_) => break,
            },
            1 => match r.i64() {
                Ok(n) => written.i64(n),
                Err(_) => break,
            },
            2 => match r.buffer() {
                Ok(bytes) => {
                    is_null |= bytes.is_empty(); // a negative length is written as zero
                    written.buffer(bytes)
                }
                Err(_) => break,
            },
            3 => match r.string() {
                Ok(text) => {
                    is_null |= text.is_empty();
                    written.buffer(text.as_bytes())
                }
                Err(_) => break,
            },
            4 => match r.count(4) {
                Ok(count) => {
                    assert!(count <= record.len() / 4);
                    written.i32(count as i32)
                }
                Err(_) => break,
            },
            _ => match r.stat() {
                Ok(_) | Err(_) => break, // most fields are skipped, so they cannot be written again
            },
        };
    }
    let written = &written.frame()[4..];
    assert!(is_null || record.starts_with(written));
}

/// The records that only servers read.
fn server_records(bytes: &[u8]) {
    if let Ok((request, _)) = ConnectRequest::read(bytes) {
        let frame = request.frame();
        let (again, knows_read_only) = ConnectRequest::read(&frame[4..]).unwrap();
        assert!(knows_read_only);
        assert_eq!((again.last_zxid, again.timeout_ms), (request.last_zxid, request.timeout_ms));
        assert_eq!((again.session_id, again.password), (request.session_id, request.password));
    }
    let mut least = 0;
    let strings = Reader::new(bytes).nullable_vector(|r| {
        least += 4;
        r.nullable_string()
    });
    assert!(least <= bytes.len() + 4, "it reads past the end");
    if let Ok(Some(strings)) = strings {
        assert!(strings.len() <= bytes.len() / 4);
    }
}
