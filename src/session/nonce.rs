//! What makes a node with a fixed name known for ours: its data begins with a nonce, on a line of
//! its own.

use uuid::Uuid;

use crate::world::new_uuid;

/// The length of a nonce.
const LENGTH: usize = uuid::fmt::Hyphenated::LENGTH;

pub(crate) fn new() -> String {
    new_uuid().hyphenated().to_string()
}

/// The node's data: the nonce, and what its maker says.
pub(crate) fn sign(nonce: &str, data: &[u8]) -> Vec<u8> {
    [nonce.as_bytes(), b"\n", data].concat()
}

/// The nonce, if there is one, and the rest.
pub(crate) fn split(data: &[u8]) -> (Option<&str>, &[u8]) {
    let signed = || {
        let (nonce, rest) = data.split_at_checked(LENGTH)?;
        let nonce =
            std::str::from_utf8(nonce).ok().filter(|nonce| Uuid::try_parse(nonce).is_ok())?;
        Some((nonce, rest.strip_prefix(b"\n")?))
    };
    signed().map_or((None, data), |(nonce, rest)| (Some(nonce), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_others_wrote_bears_no_nonce() {
        let nonce = new();
        for data in
            ["", "\n", &nonce, &format!("{nonce} x"), &format!("x{nonce}\n"), &"-".repeat(40)]
        {
            assert_eq!(split(data.as_bytes()), (None, data.as_bytes()), "{data:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_signed_reads_back(data in prop::collection::vec(any::<u8>(), 0..80)) {
            let nonce = new();
            let signed = sign(&nonce, &data);
            prop_assert_eq!(split(&signed), (Some(nonce.as_str()), data.as_slice()));
            split(&data);
        }
    }
}
