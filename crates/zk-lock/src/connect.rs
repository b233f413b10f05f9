//! The session, from the arguments that all commands have.

use std::time::Duration;

#[cfg(feature = "tls")]
use zk_mutex::TlsConfig;
use zk_mutex::{Config, ZkSession};

#[cfg(feature = "tls")]
use crate::cli::TlsArgs;
use crate::cli::{Common, Credentials, Source};
use crate::exit::{Failure, lacks_resources};

/// A session's settings; nothing is sent yet.
pub fn config(common: &Common, session: Duration) -> Result<Config, Failure> {
    let Some(connect) = common.connect.as_deref().filter(|text| !text.is_empty()) else {
        return Err(Failure::usage(
            "say where ZooKeeper is: --connect zk1:2181,zk2:2181, the environment variable \
             ZK_CONNECT, or connect = \"zk1:2181,zk2:2181\" in zk-lock.toml",
        ));
    };
    let mut config =
        Config::new(connect).session_timeout(session).connect_timeout(common.connect_timeout);
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(&common.tls)? {
        config = config.tls(tls);
    }
    for credentials in &common.auth {
        config = config.auth(credentials.scheme.clone(), read(credentials)?);
    }
    Ok(config)
}

#[cfg(feature = "tls")]
fn tls(args: &TlsArgs) -> Result<Option<TlsConfig>, Failure> {
    let TlsArgs { tls_ca, tls_cert, tls_key } = args;
    let tls = match (tls_ca, tls_cert, tls_key) {
        (None, None, None) => return Ok(None),
        (None, ..) => {
            return Err(Failure::usage(
                "--tls-cert and --tls-key need --tls-ca, the file with the CA of the servers",
            ));
        }
        (Some(ca), None, None) => TlsConfig::new(ca),
        (Some(ca), Some(cert), Some(key)) => TlsConfig::new(ca).client_certificate(cert, key),
        (Some(_), ..) => {
            return Err(Failure::usage("--tls-cert and --tls-key go together: give both"));
        }
    };
    Ok(Some(tls))
}

/// Whether the session has an identity at the servers.
pub fn has_identity(common: &Common) -> bool {
    #[cfg(feature = "tls")]
    if common.tls.tls_cert.is_some() {
        return true;
    }
    !common.auth.is_empty()
}

/// A session for a command that reads nodes, and holds no lock.
pub fn session(common: &Common) -> Result<ZkSession, Failure> {
    let config = config(common, Duration::from_secs(10))?.require_chroot();
    Ok(ZkSession::connect(config)?)
}

/// Reads the secret. It is in no argument, because every user of the host can read the arguments.
fn read(credentials: &Credentials) -> Result<Vec<u8>, Failure> {
    let Credentials { scheme, source } = credentials;
    check_scheme(scheme)?;
    let (mut secret, place) = match source {
        Source::File(path) => {
            let secret = std::fs::read(path).map_err(|e| {
                let text = format!("--auth {scheme}: {path}: {e}");
                if lacks_resources(&text) { Failure::system(text) } else { Failure::usage(text) }
            })?;
            (secret, format!("the file {path}"))
        }
        // Somebody may have written a password here, which must not get into a log.
        Source::Env(name) if !is_variable(name) => {
            return Err(Failure::usage(format!("--auth {scheme}: {NO_CREDENTIALS_HERE}")));
        }
        Source::Env(name) => {
            let secret = std::env::var(name).map_err(|_| {
                Failure::usage(format!(
                    "--auth {scheme}:{name}: there is no environment variable {name}; the name \
                     of a file needs a '/', for instance ./{name}"
                ))
            })?;
            (secret.into_bytes(), format!("the environment variable {name}"))
        }
    };
    while secret.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        secret.pop();
    }
    if scheme == "digest" && !secret.contains(&b':') {
        return Err(Failure::usage(format!(
            "--auth digest: {place} must hold USER:PASSWORD, and there is no ':' in it"
        )));
    }
    Ok(secret)
}

pub const NO_CREDENTIALS_HERE: &str = "behind the scheme stands a file, with a '/' in it, or the \
    name of an environment variable, and never the credentials themselves";

/// Refuses the schemes that clients do not state with `addAuth`, before a server does so with less
/// to say. Servers may have others, by plugins.
fn check_scheme(scheme: &str) -> Result<(), Failure> {
    let instead = match scheme.to_ascii_lowercase().as_str() {
        "sasl" | "kerberos" | "gssapi" => {
            "zk-lock has no SASL: give it credentials of the scheme digest, or a certificate \
             (--tls-cert)"
        }
        "x509" => "this identity comes with a certificate: give --tls-cert and --tls-key",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("--auth {scheme}: {instead}")))
}

pub fn is_variable(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
