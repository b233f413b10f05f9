//! Where Java is, and the jars of ZooKeeper.
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Names the directory of ZooKeeper's jars: either Debian's layout (the default, /usr/share/java)
/// or the `lib` of a release.
pub const JARS_VAR: &str = "ZK_JARS";
const DEBIAN_JARS: &str = "/usr/share/java";
const INSTALL: &str =
    "apt-get install -y --no-install-recommends zookeeper openjdk-17-jre-headless";
/// What ZooKeeper needs of Debian's hundreds of jars.
const JARS: [&str; 14] = [
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "netty-codec",
    "netty-handler",
    "netty-resolver",
    "snappy-java",
    "metrics-core",
    "commons-io",
    "commons-cli",
    "jackson-core",
    "jackson-databind",
    "jackson-annotations",
];

/// The program `java`.
pub fn java() -> Result<PathBuf, String> {
    let home = env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin/java"))
        .filter(|java| java.exists());
    let on_path = || {
        env::split_paths(&env::var_os("PATH")?)
            .map(|dir| dir.join("java"))
            .find(|java| java.exists())
    };
    home.or_else(on_path)
        .ok_or_else(|| format!("the tests need Java; install it with\n    {INSTALL}"))
}

/// The class path of ZooKeeper.
pub fn class_path() -> Result<OsString, String> {
    let dir = env::var_os(JARS_VAR).map_or_else(|| PathBuf::from(DEBIAN_JARS), PathBuf::from);
    let jars = JARS.map(|name| dir.join(format!("{name}.jar")));
    if let Some(missing) = jars.iter().find(|jar| !jar.exists()) {
        // The jars of a release have versions in their names, and the release has no others.
        if env::var_os(JARS_VAR).is_some() && dir.is_dir() && !jars[0].exists() {
            return Ok(dir.join("*").into_os_string());
        }
        let missing = missing.display();
        return Err(format!(
            "the tests need ZooKeeper, and {missing} is missing; install it with\n    {INSTALL}\nor name a directory of its jars in {JARS_VAR}"
        ));
    }
    env::join_paths(jars).map_err(|e| format!("{JARS_VAR}: {e}"))
}
