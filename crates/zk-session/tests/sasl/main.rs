//! What a program sees of a session that logs in by SASL.
//!
//! A scenario runs in a process of its own; the scenarios of DIGEST-MD5 run on the embedded server
//! and on the real ZooKeeper, those of Kerberos on the real one with a KDC of their own.
#![deny(dead_code)]

#[cfg(feature = "sasl-gssapi")]
mod client;
#[cfg(feature = "sasl-digest-md5")]
mod digest_md5;
#[cfg(feature = "sasl-gssapi")]
mod kerberos;

zk_test_support::tables![
    #[cfg(feature = "sasl-digest-md5")]
    digest_md5,
    #[cfg(feature = "sasl-gssapi")]
    kerberos,
];

/// Every wait ends long before this, unless something is wrong.
const SOON: std::time::Duration = std::time::Duration::from_secs(30);

#[track_caller]
fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}

fn main() -> std::process::ExitCode {
    #[cfg(feature = "sasl-gssapi")]
    if let Some(servers) = std::env::var_os(client::SERVERS) {
        return client::main(&servers.to_string_lossy());
    }
    zk_test_support::runner::main(tests, Vec::new)
}
