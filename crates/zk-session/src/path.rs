//! The paths that a program gives, below the chroot, and the full paths of nodes.

use crate::error::{Error, Result};
use zk_wire::path;

/// The longest path of a program in bytes, chroot included. Each request, watch event and line of
/// the log has the path in it.
const MAX_PATH: usize = 4096;

/// The full path of a node that the program knows as `path`.
pub(crate) fn full_path(chroot: &str, path: &str) -> Result<String> {
    let invalid = |rule| Error::InvalidPath { path: path.to_owned(), rule };
    // The length comes first, so that no check reads through an absurdly long path.
    if chroot.len().saturating_add(path.len()) > MAX_PATH {
        return Err(invalid("it must not be longer than 4096 bytes, chroot included"));
    }
    path::check(path).map_err(invalid)?;
    Ok(match (chroot, path) {
        ("", path) => path.to_owned(),
        (chroot, "/") => chroot.to_owned(),
        (chroot, path) => [chroot, path].concat(),
    })
}
