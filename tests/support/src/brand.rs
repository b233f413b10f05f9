//! Which server's ways the scenarios expect: the embedded server answers as this brand, and the
//! real ZooKeeper is of its version.
use super::java::JARS_VAR;
use std::{env, fs};
use zk_test_server::{Brand, TestServer, TestServerBuilder};

/// Names the brand: `3.8`, `3.9` or `keeper`. Unless it is set, `ZK_JARS` decides: 3.9 if
/// ZooKeeper's jar there is of 3.9, and 3.8 otherwise.
pub const VAR: &str = "ZK_TEST_BRAND";

/// The brand, or why there is none.
pub fn chosen() -> Result<Brand, String> {
    match env::var(VAR) {
        Ok(name) if !name.is_empty() => name.parse().map_err(|why| format!("{VAR}: {why}")),
        _ => Ok(if has_jar("zookeeper-3.9") { Brand::ZooKeeper39 } else { Brand::ZooKeeper38 }),
    }
}

/// The brand of this run.
#[track_caller]
pub fn current() -> Brand {
    chosen().unwrap_or_else(|why| panic!("{why}"))
}

/// An embedded server of the run's brand.
pub fn embedded() -> TestServerBuilder {
    TestServer::builder().brand(current())
}

/// Whether the directory that `ZK_JARS` names has a jar whose name begins so.
fn has_jar(name: &str) -> bool {
    let files = env::var_os(JARS_VAR).and_then(|dir| fs::read_dir(dir).ok());
    let mut files = files.into_iter().flatten().flatten();
    files.any(|file| file.file_name().to_string_lossy().starts_with(name))
}
