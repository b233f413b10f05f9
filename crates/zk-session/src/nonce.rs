//! The nonce in the data of a node with a fixed name. Several clients make nodes of such a name; by
//! the nonce, the first line of the data, the library knows which of them is its own.

use uuid::Uuid;

use crate::world::new_uuid;

/// The length of a nonce in bytes.
const LENGTH: usize = uuid::fmt::Hyphenated::LENGTH;

/// A new nonce: a random UUID as text.
pub fn new() -> String {
    new_uuid().hyphenated().to_string()
}

/// The data of a node: the nonce on a line of its own, then `data`.
pub fn sign(nonce: &str, data: &[u8]) -> Vec<u8> {
    [nonce.as_bytes(), b"\n", data].concat()
}

/// The data of a node that its owner is about to delete: its nonce alone. It has no nonce any more
/// as far as [`split`] is concerned, and is shorter than before, so that no quota forbids it.
pub(crate) fn released_data(nonce: &str) -> Vec<u8> {
    nonce.as_bytes().to_vec()
}

/// The former nonce of a node that its owner is about to delete.
pub fn released(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok().filter(|nonce| is_nonce(nonce))
}

fn is_nonce(text: &str) -> bool {
    text.len() == LENGTH && Uuid::try_parse(text).is_ok()
}

/// Splits the data of a node into its nonce, if it has one, and the rest.
pub fn split(data: &[u8]) -> (Option<&str>, &[u8]) {
    if released(data).is_some() {
        return (None, b"");
    }
    let signed = || {
        let (nonce, rest) = data.split_at_checked(LENGTH)?;
        let nonce = std::str::from_utf8(nonce).ok().filter(|nonce| is_nonce(nonce))?;
        Some((nonce, rest.strip_prefix(b"\n")?))
    };
    signed().map_or((None, data), |(nonce, rest)| (Some(nonce), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_that_others_wrote_has_no_nonce() {
        let nonce = new();
        for data in ["", "\n", &format!("{nonce} x"), &format!("x{nonce}\n"), &"-".repeat(40)] {
            assert_eq!(split(data.as_bytes()), (None, data.as_bytes()), "{data:?}");
        }
    }

    proptest! {
        #[test]
        fn signed_data_is_split_again(data in prop::collection::vec(any::<u8>(), 0..80)) {
            let nonce = new();
            let signed = sign(&nonce, &data);
            prop_assert_eq!(split(&signed), (Some(nonce.as_str()), data.as_slice()));
            prop_assert_eq!(released(&signed), None);
            let released_data = released_data(&nonce);
            prop_assert_eq!(split(&released_data), (None, b"".as_slice()));
            prop_assert_eq!(released(&released_data), Some(nonce.as_str()));
            split(&data);
        }
    }
}
