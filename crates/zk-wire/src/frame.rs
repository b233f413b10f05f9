//! Cuts a stream of bytes into frames. The peers of a connection push the bytes that they have
//! read, and take whole frames. Whatever the bytes are, no more memory is used than they need.

use crate::Malformed;

/// The longest frame that is accepted: a listing of some 200,000 names. Memory is used only as the
/// bytes arrive.
pub const MAX_FRAME: usize = 16 << 20;

/// The number of bytes that are kept of a frame longer than `MAX_FRAME`: the header of a reply.
pub const HEAD: usize = 16;

/// The most memory that a stream keeps between two frames. Otherwise one long listing would cost
/// every session its length for ever.
const KEPT_CAPACITY: usize = 8 << 10;

/// Collects bytes and gives back whole frames, without their length prefix.
#[derive(Debug, Default)]
pub struct Frames {
    buf: Vec<u8>,
    start: usize,
    /// The number of coming bytes that belong to a frame longer than `MAX_FRAME`, and are skipped.
    /// The buffer is empty meanwhile.
    skip: usize,
}

/// The next frame of a stream that may have frames longer than `MAX_FRAME`.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameOrHead<'a> {
    /// A whole frame.
    Frame(&'a [u8]),
    /// The beginning of a frame longer than `MAX_FRAME`. The rest of the frame is skipped as it
    /// comes, and then the next frame follows.
    Head(&'a [u8; HEAD]),
}

impl Frames {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        // Frames that were taken are dropped only when more bytes come, so that each byte moves
        // once.
        if self.start > 0 {
            if self.buf.capacity() > KEPT_CAPACITY {
                // The long block is freed as a whole. If it were shrunk in place, the hole after it
                // would be a little too small for the next session's listing, and each of 1,000
                // sessions would leave such a hole.
                self.buf = self.buf.get(self.start..).unwrap_or_default().to_vec();
            } else {
                self.buf.drain(..self.start);
            }
            self.start = 0;
        }
        self.buf.extend_from_slice(bytes.get(skipped..).unwrap_or_default());
    }

    /// The next whole frame, if it has arrived. A frame longer than `MAX_FRAME` is malformed.
    #[allow(clippy::should_implement_trait)] // an iterator's items outlive it
    pub fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        match self.next_or_head(|| false)? {
            Some(FrameOrHead::Frame(frame)) => Ok(Some(frame)),
            _ => Ok(None),
        }
    }

    /// The same where a longer frame may come: of that frame only the head is given. `expects_long`
    /// is called when a longer frame comes; if it says no, that frame is malformed.
    pub fn next_or_head(
        &mut self,
        expects_long: impl FnOnce() -> bool,
    ) -> Result<Option<FrameOrHead<'_>>, Malformed> {
        let Some(length) = self.length()? else { return Ok(None) };
        let from = self.start + 4;
        if length <= MAX_FRAME {
            let Some(frame) = self.buf.get(from..from + length) else { return Ok(None) };
            self.start = from + length;
            return Ok(Some(FrameOrHead::Frame(frame)));
        }
        if !expects_long() {
            return Err(Malformed("a frame of impossible length"));
        }
        let arrived = self.buf.len() - from;
        if arrived < HEAD {
            return Ok(None);
        }
        self.start = from + arrived.min(length);
        self.skip = length - arrived.min(length);
        Ok(self.buf.get(from..).and_then(<[u8]>::first_chunk).map(FrameOrHead::Head))
    }

    /// Whether bytes of a frame longer than `MAX_FRAME` are still to come.
    pub fn is_skipping(&self) -> bool {
        self.skip > 0
    }

    /// Whether the beginning of a frame has come that is kept, and its end has not.
    pub fn is_partial(&self) -> bool {
        self.buf.len() > self.start
    }

    /// The length of the next frame, if it has arrived.
    fn length(&self) -> Result<Option<usize>, Malformed> {
        let rest = self.buf.get(self.start..).unwrap_or_default();
        let Some(prefix) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*prefix);
        usize::try_from(length).map(Some).map_err(|_| Malformed("a frame of impossible length"))
    }

    /// Drops all bytes: another stream begins.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.start = 0;
        self.skip = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_of_a_long_frame_is_given_back_with_the_next_bytes() {
        let mut frames = Frames::default();
        let long = vec![0; 1 << 20];
        frames.push(&(long.len() as i32).to_be_bytes());
        frames.push(&long);
        assert_eq!(frames.next().unwrap().map(<[u8]>::len), Some(long.len()));
        frames.push(&[0, 0, 0, 1]);
        assert!(frames.buf.capacity() <= KEPT_CAPACITY);
        frames.push(&[7]);
        assert_eq!(frames.next().unwrap(), Some(&[7][..]));
    }
    #[test]
    fn refuses_negative_and_huge_lengths() {
        for length in [-1i32, i32::MIN, MAX_FRAME as i32 + 1, i32::MAX, 0x4854_5450] {
            let mut frames = Frames::default();
            frames.push(&length.to_be_bytes());
            assert!(frames.next().is_err(), "{length}");
            assert_eq!(frames.next_or_head(|| true).is_err(), length < 0, "{length}");
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_shows_its_head_and_is_never_kept() {
        let (long, chunk) = (MAX_FRAME + 1000, vec![7; 64 << 10]);
        let mut frames = Frames::default();
        frames.push(&(long as i32).to_be_bytes());
        frames.push(&[7; HEAD - 1]);
        assert_eq!(frames.next_or_head(|| true), Ok(None));
        frames.push(&[7]);
        assert_eq!(frames.next_or_head(|| true), Ok(Some(FrameOrHead::Head(&[7; HEAD]))));
        let mut left = long - HEAD;
        while left > 0 {
            assert!(frames.is_skipping());
            assert_eq!(frames.next_or_head(|| true), Ok(None));
            let part = &chunk[..chunk.len().min(left)];
            frames.push(part);
            left -= part.len();
        }
        assert!(!frames.is_skipping());
        assert!(frames.buf.capacity() < 1 << 10, "{}", frames.buf.capacity());
        frames.push(&[0, 0, 0, 1, 9]);
        assert_eq!(frames.next_or_head(|| true), Ok(Some(FrameOrHead::Frame(&[9]))));
    }

    #[test]
    fn bytes_still_to_be_skipped_are_forgotten_with_the_connection() {
        let mut frames = Frames::default();
        frames.push(&i32::MAX.to_be_bytes());
        frames.push(&[0; HEAD]);
        assert_eq!(frames.next_or_head(|| true), Ok(Some(FrameOrHead::Head(&[0; HEAD]))));
        frames.clear();
        frames.push(&[0, 0, 0, 1, 9]);
        assert_eq!(frames.next(), Ok(Some(&[9][..])));
    }

    proptest! {
        #[test]
        fn frames_survive_any_chunking(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8),
            chunk in 1usize..20,
        ) {
            let mut stream = Vec::new();
            for body in &bodies {
                stream.extend((body.len() as i32).to_be_bytes());
                stream.extend(body);
            }
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for part in stream.chunks(chunk) {
                frames.push(part);
                while let Some(frame) = frames.next().unwrap() {
                    seen.push(frame.to_vec());
                }
            }
            prop_assert_eq!(seen, bodies);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// A long frame among short ones, however the bytes are cut: only its head is given.
        #[test]
        fn long_frames_are_skipped_in_any_chunking(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5),
            at in 0usize..5,
            extra in 1usize..200,
            cuts in prop::collection::vec(1usize..40, 1..20),
            chunk in 30_000usize..5_000_000,
        ) {
            let (at, length) = (at.min(bodies.len()), MAX_FRAME + extra);
            let mut stream = Vec::new();
            for i in 0..=bodies.len() {
                if i == at {
                    stream.extend((length as i32).to_be_bytes());
                    stream.extend(0..HEAD as u8);
                    stream.resize(stream.len() + length - HEAD, 7);
                }
                if let Some(body) = bodies.get(i) {
                    stream.extend((body.len() as i32).to_be_bytes());
                    stream.extend(body);
                }
            }
            // Small pieces at both ends, where short frames stand next to the long one.
            let (mut frames, mut seen, mut heads, mut rest) = (Frames::default(), Vec::new(), 0, &stream[..]);
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let is_near = rest.len() + 600 > stream.len() || rest.len() < 600;
                let cut = if is_near { cuts.next().unwrap() } else { chunk.min(rest.len() - 300) };
                let (part, left) = rest.split_at(cut.min(rest.len()));
                rest = left;
                frames.push(part);
                while let Some(next) = frames.next_or_head(|| true).unwrap() {
                    match next {
                        FrameOrHead::Frame(frame) => seen.push(frame.to_vec()),
                        FrameOrHead::Head(head) => {
                            prop_assert_eq!(head.to_vec(), (0..HEAD as u8).collect::<Vec<_>>());
                            prop_assert_eq!(seen.len(), at);
                            heads += 1;
                        }
                    }
                }
            }
            prop_assert_eq!((seen, heads), (bodies, 1));
            prop_assert!(!frames.is_skipping());
        }
    }
}
