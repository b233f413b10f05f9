//! What the chapter promises of each of its tables, whatever the store.

use zk_mutex::FencingToken;

/// A table of the chapter with a fence, in a store, with the statement that writes account 7.
pub trait Accounts {
    /// Makes the table anew.
    fn renew(&mut self);

    /// Returns whether the store took it.
    fn write(&mut self, balance: i64, token: FencingToken) -> bool;

    /// The balance, and the token of the last writer.
    fn read(&mut self) -> (i64, FencingToken);
}

/// The token of this zxid and number of hand-overs.
pub fn token(zxid: i64, hand_over: u64) -> FencingToken {
    let zxid = u128::from(zxid.cast_unsigned() ^ 1 << 63);
    FencingToken::from_bytes((zxid << 64 | u128::from(hand_over)).to_be_bytes())
}

/// Tokens in which each byte matters, and some have a meaning in text or in C.
pub fn tokens() -> Vec<FencingToken> {
    let zxids = [1, 0x27, 0x5c, 0xff, 0x100, 0x2_0000_0017, 0x2_0000_0117, i64::MAX];
    let hand_overs = [0, 1, 0x41, 0x61, 0x100, i64::MAX.cast_unsigned()];
    let all = zxids.iter().flat_map(|z| hand_overs.iter().map(|h| token(*z, *h)));
    // All of one zxid, and one of each other zxid.
    all.filter(|token| token.zxid() == 0x2_0000_0017 || token.hand_overs() == 0x61).collect()
}

/// Writes two tokens of each pair, one after the other, several times. The table must take the second
/// one if it is not older, also where the same token has written the same value before.
pub fn takes_each_token_that_is_not_older(accounts: &mut impl Accounts, name: &str) {
    for newest in tokens() {
        for token in tokens() {
            let case = format!("{name}: {token} after {newest}");
            accounts.renew();
            assert!(accounts.write(1, newest), "{case}: the first");
            assert!(accounts.write(1, newest), "{case}: the first, once more the same");
            let is_taken = token >= newest;
            assert_eq!(accounts.write(2, token), is_taken, "{case}");
            assert_eq!(accounts.write(2, token), is_taken, "{case}, once more the same");
            let kept = if is_taken { (2, token) } else { (1, newest) };
            assert_eq!(accounts.read(), kept, "{case}");
        }
    }
}

/// Bytes in hex digits.
pub fn hex(token: FencingToken) -> String {
    format!("{:032x}", u128::from_be_bytes(token.to_bytes()))
}

/// The token of these hex digits, in either case.
pub fn of_hex(digits: &str) -> FencingToken {
    FencingToken::from_bytes(u128::from_str_radix(digits, 16).expect("hex digits").to_be_bytes())
}
