//! Length-prefixed frames out of a byte stream.

use super::Malformed;

/// The longest frame taken from a server: a listing of some 200,000 contenders. The memory is only
/// used as the bytes arrive.
pub(crate) const MAX_FRAME: usize = 16 << 20;

/// Collects bytes and gives back whole frames, without their length prefix.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buf: Vec<u8>,
    start: usize,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // What was handed out is dropped only when more comes, so that each byte moves once.
        if self.start > 0 {
            self.buf.drain(..self.start);
            self.start = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// The next whole frame, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Malformed> {
        let rest = self.buf.get(self.start..).unwrap_or_default();
        let Some((prefix, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(*prefix))
            .ok()
            .filter(|n| *n <= MAX_FRAME)
            .ok_or(Malformed("a frame of impossible length"))?;
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(self.buf.get(from..self.start))
    }

    pub(crate) fn clear(&mut self) {
        self.buf.clear();
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_negative_and_huge_lengths() {
        for length in [-1i32, i32::MIN, MAX_FRAME as i32 + 1, i32::MAX, 0x4854_5450] {
            let mut frames = Frames::default();
            frames.push(&length.to_be_bytes());
            assert!(frames.next().is_err(), "{length}");
        }
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
}
