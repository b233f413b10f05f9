//! The fencing token: the number by which a store refuses the write of a holder that has lost its
//! lock.

use std::fmt;

/// A number that grows from holder to holder of a lock, over all processes. Give it to the store
/// that the lock protects with each write, and let the store refuse a token lower than the highest
/// it has seen.
///
/// A process may be paused (by a long garbage collection, a debugger, a suspended host) until its
/// session has expired, and then write when it goes on. A lock alone cannot prevent that. The store
/// can, with this token. The token has two parts: the zxid that created the holder's node
/// (ZooKeeper's number of that write, counted over the whole ensemble), and how often threads of
/// that process have handed the lock over since. Compare both parts together, as `Ord` does.
/// Source: "How to do distributed locking", M. Kleppmann, 2016; ZooKeeper's zxid.
///
/// Tokens start again at lower numbers only if the ensemble's data is wiped. Then clear the tokens
/// in the store too. (Permits of a semaphore have several holders at once:
/// [`ZkSemaphore`](crate::ZkSemaphore) says what their tokens can do.)
///
/// # In a database
///
/// Keep beside each row the token of its last writer, as the 16 bytes of
/// [`to_bytes`](Self::to_bytes), which databases compare as tokens compare (`BLOB` in SQLite,
/// `bytea` in PostgreSQL, `BINARY(16)` in MySQL). A writer names its own token in the statement
/// that writes:
///
/// ```sql
#[doc = include_str!("fencing.sql")]
/// ```
///
/// If the statement changed no row, a holder with a newer token has already written: this write
/// came too late. The comparison is `<=`, because a holder may write more than once under one
/// token. The row must exist before the first write, with a token that is below all others: 16 zero
/// bytes.
///
/// The chapter [`fencing`](crate::guide::fencing) has the statements for PostgreSQL, SQLite, MySQL
/// and a `BIGINT` column, the loop for S3, and the tokens of Curator's and kazoo's holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    zxid: i64,
    hand_overs: u64,
}

impl FencingToken {
    pub(crate) fn new(zxid: i64, hand_overs: u64) -> Self {
        FencingToken { zxid, hand_overs }
    }

    /// The zxid that created the holder's node.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// How often threads of the holder's process have handed the lock over since its node was
    /// created.
    pub fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// The token as bytes. Compared from the first byte to the last, they have the same order as
    /// the tokens, so a store need not know their meaning.
    ///
    /// ```
    /// # fn stored() -> [u8; 16] { [0x80; 16] }
    /// use zk_mutex::FencingToken;
    ///
    /// let newest = FencingToken::from_bytes(stored());
    /// assert_eq!(newest.to_bytes(), stored());
    /// ```
    pub fn to_bytes(self) -> [u8; 16] {
        // The sign bit is inverted. Otherwise the bytes of negative numbers would compare as
        // greater than those of positive numbers.
        let zxid = u64::from_be_bytes((self.zxid ^ i64::MIN).to_be_bytes());
        (u128::from(zxid) << 64 | u128::from(self.hand_overs)).to_be_bytes()
    }

    /// The token whose [`to_bytes`](Self::to_bytes) are these.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        FencingToken { zxid: (number >> 64) as i64 ^ i64::MIN, hand_overs: number as u64 }
    }
}

impl fmt::Display for FencingToken {
    /// `0x200000017.3`: the zxid in hexadecimal, as ZooKeeper prints it, and the hand-overs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}.{}", self.zxid, self.hand_overs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZXIDS: [i64; 10] =
        [i64::MIN, -1, 0, 1, 0xff, 0x100, 0x2_0000_0017, 0x2_0000_0117, i64::MAX - 1, i64::MAX];
    const HAND_OVERS: [u64; 7] = [0, 1, 0xff, 0x100, u64::MAX >> 1, (u64::MAX >> 1) + 1, u64::MAX];

    #[track_caller]
    fn compares_as_its_bytes(a: FencingToken, b: FencingToken) {
        assert_eq!(a.to_bytes().cmp(&b.to_bytes()), a.cmp(&b), "{a:?} {b:?}");
        assert_eq!(FencingToken::from_bytes(a.to_bytes()), a);
    }

    #[test]
    fn bytes_sort_as_tokens_do_at_the_edges() {
        let all =
            || ZXIDS.iter().flat_map(|z| HAND_OVERS.iter().map(|h| FencingToken::new(*z, *h)));
        all().for_each(|a| all().for_each(|b| compares_as_its_bytes(a, b)));
    }

    #[test]
    fn bytes_sort_as_tokens_do_anywhere() {
        let mut chance = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            // Numbers of every length, and half of the time two tokens with the same zxid.
            let a = FencingToken::new(
                chance.i64(..) >> chance.u32(..64),
                chance.u64(..) >> chance.u32(..64),
            );
            let zxid = if chance.bool() { a.zxid } else { chance.i64(..) >> chance.u32(..64) };
            compares_as_its_bytes(a, FencingToken::new(zxid, chance.u64(..) >> chance.u32(..64)));
            let bytes = chance.u128(..).to_be_bytes();
            assert_eq!(FencingToken::from_bytes(bytes).to_bytes(), bytes);
        }
    }

    #[test]
    fn sixteen_zero_bytes_are_below_all_that_a_server_gives() {
        assert!(FencingToken::from_bytes([0; 16]) < FencingToken::new(0, 0));
    }
}
