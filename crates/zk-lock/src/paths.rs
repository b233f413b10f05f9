//! The paths that users write.

/// Reads the path of a lock. The same rule holds for each command, so a slip in a path is an error
/// and no lock that nobody holds.
pub fn lock(text: &str) -> Result<String, String> {
    match text {
        "/" => Err("the root '/' is no lock: give the lock's own path".to_owned()),
        _ => folder(text),
    }
}

/// Reads the path of a lock or of a folder of locks.
pub fn folder(text: &str) -> Result<String, String> {
    zk_wire::path::check(text).map_err(|rule| format!("{rule}, for instance /locks/orders"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_an_absolute_path_without_a_slash_at_its_end() {
        for right in ["/locks/orders", "/a", "/locks/a b"] {
            assert_eq!(lock(right).as_deref(), Ok(right));
        }
        for wrong in ["", "/", "locks/orders", "/locks/", "//locks", "/locks/../x", "/a\u{1}"] {
            assert!(lock(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(folder("/").as_deref(), Ok("/"));
    }
}
