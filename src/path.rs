//! Which paths a lock may have.

use crate::{Error, Result};
use zk_wire::path::check;

/// The longest lock path in bytes, chroot included. ZooKeeper only bounds the whole request (1 MB).
/// Our bound is lower, because each request, watch event and log line has the path in it, and a
/// path beyond this length can only be a mistake.
pub(crate) const MAX_LOCK_PATH: usize = 4096;

/// Checks the path of a lock in a session with this chroot ("" for none).
pub(crate) fn lock_path(chroot: &str, path: &str) -> Result<()> {
    lock_rule(chroot, path).map_err(|rule| Error::InvalidPath { path: path.to_owned(), rule })
}

fn lock_rule(chroot: &str, path: &str) -> Result<(), &'static str> {
    // The length comes first, so that no check reads through an absurdly long path.
    if chroot.len().saturating_add(path.len()) > MAX_LOCK_PATH {
        return Err("it must not be longer than 4096 bytes, chroot included");
    }
    check(path)?;
    if path == "/" {
        // Other applications' nodes are there. Below a chroot it is the application's own root,
        // where a lock does not belong either.
        return Err("it must not be the root '/'");
    }
    // The server's quotas and configuration are there.
    let first = if chroot.is_empty() { path } else { chroot };
    if first == "/zookeeper" || first.starts_with("/zookeeper/") {
        return Err("it must not be '/zookeeper' or below: these nodes are the server's own");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lock_has_a_node_of_its_own_outside_the_servers() {
        for (chroot, path) in [
            ("", "/a"),
            ("", "/zookeepers"),
            ("", "/a/zookeeper"),
            ("/app", "/zookeeper"),
            ("/app", "/zookeeper/x"),
        ] {
            assert_eq!(lock_path(chroot, path), Ok(()), "{chroot:?} {path:?}");
        }
        for (chroot, path, word) in [
            ("", "/", "root"),
            ("/app", "/", "root"),
            ("", "/zookeeper", "server's"),
            ("", "/zookeeper/config", "server's"),
            ("/zookeeper", "/a", "server's"),
            ("/zookeeper/quota", "/a", "server's"),
            ("", "", "empty"),
            ("/app", "a", "start"),
        ] {
            match lock_path(chroot, path) {
                Err(Error::InvalidPath { path: given, rule }) => {
                    assert_eq!(given, path);
                    assert!(rule.contains(word), "{chroot:?} {path:?}: {rule}");
                }
                other => panic!("{chroot:?} {path:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_lock_path_has_a_longest_length_with_its_chroot() {
        let longest = format!("/{}", "a".repeat(MAX_LOCK_PATH - 1));
        assert_eq!(lock_path("", &longest), Ok(()));
        assert!(lock_path("/b", &longest).is_err());
        assert!(lock_path("", &format!("{longest}a")).is_err());
        let rule = lock_rule("", &format!("{longest}a")).expect_err("too long");
        assert!(rule.contains(&MAX_LOCK_PATH.to_string()));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(chroot in any::<String>(), path in any::<String>()) {
            let _ = lock_path(&chroot, &path);
        }
    }
}
