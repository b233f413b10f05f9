//! Splits the bytes of a client into four-letter words and frames, and finds invalid lengths
//! (`NIOServerCnxn.readLength`).

use std::ops::Range;

/// The next item of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There are not enough bytes yet.
    Wait,
    /// A whole frame, without its length: its place in the buffer.
    Frame(Range<usize>),
    /// A four-letter word instead of the first frame.
    Word([u8; 4]),
    /// A length that no frame may have.
    Nonsense(i32),
}

/// The bytes of one connection that were not served yet.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
}

/// How much of its buffer an idle connection may keep.
const KEPT: usize = 4 << 10;

impl Input {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Served bytes are dropped only now, so that each byte is moved once.
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next item of the input, which stays there. `is_word` knows the four-letter words; it is
    /// `None` after the first frame.
    pub(crate) fn peek(&self, max_frame: usize, is_word: Option<fn(&[u8; 4]) -> bool>) -> Next {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let Some((first, rest)) = rest.split_first_chunk::<4>() else {
            return Next::Wait;
        };
        if is_word.is_some_and(|is_word| is_word(first)) {
            return Next::Word(*first);
        }
        let length = i32::from_be_bytes(*first);
        match usize::try_from(length).ok().filter(|n| *n <= max_frame) {
            None => Next::Nonsense(length),
            Some(n) if rest.len() < n => Next::Wait,
            Some(n) => Next::Frame(self.start + 4..self.start + 4 + n),
        }
    }

    pub(crate) fn frame(&self, at: &Range<usize>) -> &[u8] {
        self.bytes.get(at.clone()).unwrap_or_default()
    }

    /// Removes the frame from the input.
    pub(crate) fn consume(&mut self, at: &Range<usize>) {
        self.start = at.end.min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Input::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 0xf_ffff;

    fn is_ruok(word: &[u8; 4]) -> bool {
        word == b"ruok"
    }

    fn input(bytes: &[u8]) -> Input {
        let mut input = Input::default();
        input.push(bytes);
        input
    }

    #[test]
    fn a_word_is_one_only_at_the_beginning() {
        assert_eq!(input(b"ruok\n").peek(MAX, Some(is_ruok)), Next::Word(*b"ruok"));
        assert_eq!(input(b"ruo").peek(MAX, Some(is_ruok)), Next::Wait);
        assert_eq!(input(b"ruok").peek(MAX, None), Next::Nonsense(i32::from_be_bytes(*b"ruok")));
        assert_eq!(input(b"GET ").peek(MAX, Some(is_ruok)), Next::Nonsense(0x4745_5420));
    }

    #[test]
    fn lengths_are_checked_before_anything_is_kept_for_them() {
        for length in [-1, i32::MIN, 0x10_0000, i32::MAX] {
            assert_eq!(
                input(&length.to_be_bytes()).peek(MAX, Some(is_ruok)),
                Next::Nonsense(length)
            );
        }
        assert_eq!(input(&0xf_ffff_i32.to_be_bytes()).peek(MAX, None), Next::Wait);
        assert_eq!(input(&[0; 4]).peek(MAX, None), Next::Frame(4..4));
    }

    #[test]
    fn a_drained_buffer_is_given_back() {
        let mut input = input(&[&100_000_i32.to_be_bytes()[..], &[7; 100_000]].concat());
        let Next::Frame(at) = input.peek(MAX, None) else { panic!("no frame") };
        assert_eq!(input.frame(&at).len(), 100_000);
        input.consume(&at);
        assert_eq!((input.bytes.capacity(), input.peek(MAX, None)), (0, Next::Wait));
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
            let (mut input, mut seen) = (Input::default(), Vec::new());
            for part in stream.chunks(chunk) {
                input.push(part);
                while let Next::Frame(at) = input.peek(MAX, None) {
                    seen.push(input.frame(&at).to_vec());
                    input.consume(&at);
                }
            }
            prop_assert_eq!(seen, bodies);
        }
    }
}
