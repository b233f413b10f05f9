//! The session, from the arguments that all commands have.

use std::time::Duration;

use zk_mutex::{SessionBuilder, ZkSession};

use crate::cli::{Common, Credentials, Source};
use crate::exit::Failure;

/// The session to be connected, and no word sent yet.
pub fn builder(common: &Common, session: Duration) -> Result<SessionBuilder, Failure> {
    let Some(connect) = common.connect.as_deref().filter(|text| !text.is_empty()) else {
        return Err(Failure::usage(
            "say where ZooKeeper is: --connect zk1:2181,zk2:2181 or the environment variable \
             ZK_CONNECT",
        ));
    };
    let mut builder = ZkSession::builder(connect)
        .session_timeout(session)
        .connect_timeout(common.connect_timeout);
    for credentials in &common.auth {
        builder = builder.auth(credentials.scheme.clone(), read(credentials)?);
    }
    Ok(builder)
}

/// A session for a command that looks, and holds nothing.
pub fn session(common: &Common) -> Result<ZkSession, Failure> {
    Ok(builder(common, Duration::from_secs(10))?.connect()?)
}

/// The secret itself stands in no argument, where every user of the host could read it.
fn read(credentials: &Credentials) -> Result<Vec<u8>, Failure> {
    let Credentials { scheme, source } = credentials;
    let (mut secret, place) = match source {
        Source::File(path) => {
            let secret = std::fs::read(path)
                .map_err(|e| Failure::usage(format!("--auth {scheme}: {path}: {e}")))?;
            (secret, format!("the file {path}"))
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
