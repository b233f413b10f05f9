//! Directories that are removed on drop. They are below the directory of the run, which the runner
//! removes even if the test has failed.
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Names the directory of the run to the children.
pub const VAR: &str = "ZK_MUTEX_TEST_SCRATCH";

/// A directory that is removed with its content on drop.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(label: &str) -> Scratch {
        Scratch::below(&env::var_os(VAR).map_or_else(env::temp_dir, PathBuf::from), label)
    }

    pub fn below(base: &Path, label: &str) -> Scratch {
        let path = base.join(format!("zk-mutex-{label}-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        Scratch { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
