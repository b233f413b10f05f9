//! The session, from the arguments that all commands have.

use std::time::Duration;

#[cfg(feature = "tls")]
use zk_mutex::TlsConfig;
use zk_mutex::zk_session::unstable::check_connect_string;
use zk_mutex::{Config, ZkSession};

#[cfg(feature = "tls")]
use crate::cli::TlsArgs;
use crate::cli::{self, Common, Credentials, SaslArg, Source};
use crate::exit::{Failure, lacks_resources};

/// A session's settings; nothing is sent yet.
pub fn config(common: &Common, session: Duration) -> Result<Config, Failure> {
    let Some(connect) = common.connect.as_deref().filter(|text| !text.is_empty()) else {
        return Err(Failure::usage(
            "say where ZooKeeper is: --connect zk1:2181,zk2:2181, the environment variable \
             ZK_CONNECT, or connect = \"zk1:2181,zk2:2181\" in zk-lock.toml",
        ));
    };
    // Nothing else shows a part of the text: it may have a password, where none belongs.
    check_connect_string(connect)?;
    let mut config =
        Config::new(connect).session_timeout(session).connect_timeout(common.connect_timeout);
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(&common.tls)? {
        config = config.tls(tls);
    }
    if let Some(arg) = &common.sasl {
        config = sasl(config, arg, common.sasl_server_host.as_deref())?;
    } else if common.sasl_server_host.is_some() {
        return Err(Failure::usage("--sasl-server-host goes with --sasl gssapi"));
    }
    for credentials in &common.auth {
        config = config.auth(credentials.scheme.clone(), read_auth(credentials)?);
    }
    Ok(config)
}

fn sasl(config: Config, arg: &SaslArg, server_host: Option<&str>) -> Result<Config, Failure> {
    match arg {
        SaslArg::DigestMd5(_) if server_host.is_some() => {
            Err(Failure::usage("--sasl-server-host goes with --sasl gssapi"))
        }
        SaslArg::DigestMd5(source) => {
            let secret = read("--sasl digest-md5", source)?;
            let secret = String::from_utf8(secret)
                .map_err(|_| Failure::usage("--sasl digest-md5: USER:PASSWORD is not UTF-8"))?;
            let (user, password) = secret.split_once(':').unwrap_or_default();
            Ok(config.sasl_digest_md5(user, password))
        }
        SaslArg::Unknown => Err(Failure::usage(format!("--sasl: {}", cli::SASL_FORMS))),
        SaslArg::Gssapi(principal) => gssapi(config, principal.as_deref(), server_host),
    }
}

#[cfg(feature = "gssapi")]
#[allow(clippy::unnecessary_wraps)] // without the feature it fails
fn gssapi(
    config: Config,
    principal: Option<&str>,
    server_host: Option<&str>,
) -> Result<Config, Failure> {
    let mut gssapi = zk_mutex::Gssapi::new();
    if let Some(principal) = principal {
        gssapi = gssapi.principal(principal);
    }
    if let Some(host) = server_host {
        gssapi = gssapi.server_host(host);
    }
    Ok(config.sasl_gssapi(gssapi))
}

#[cfg(not(feature = "gssapi"))]
fn gssapi(_: Config, _: Option<&str>, _: Option<&str>) -> Result<Config, Failure> {
    Err(Failure::usage(
        "--sasl gssapi: this zk-lock was built without Kerberos; build it with `cargo install \
         zk-lock --features gssapi`",
    ))
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

/// Whether connections are made over TLS.
pub fn is_encrypted(common: &Common) -> bool {
    #[cfg(feature = "tls")]
    if common.tls.tls_ca.is_some() {
        return true;
    }
    let _ = common;
    false
}

/// Whether the session has an identity at the servers.
pub fn has_identity(common: &Common) -> bool {
    #[cfg(feature = "tls")]
    if common.tls.tls_cert.is_some() {
        return true;
    }
    !common.auth.is_empty() || common.sasl.is_some()
}

/// A session for a command that reads nodes, and holds no lock.
pub fn session(common: &Common) -> Result<ZkSession, Failure> {
    let config = config(common, Duration::from_secs(10))?;
    Ok(ZkSession::connect(config)?)
}

fn read_auth(credentials: &Credentials) -> Result<Vec<u8>, Failure> {
    let Credentials { scheme, source } = credentials;
    check_scheme(scheme)?;
    read(&format!("--auth {scheme}"), source)
}

/// Reads the secret. It is in no argument, because every user of the host can read the arguments.
/// `option`: the option that names it, with its scheme or mechanism.
fn read(option: &str, source: &Source) -> Result<Vec<u8>, Failure> {
    let (mut secret, place) = match source {
        Source::File(path) => {
            let secret = std::fs::read(path).map_err(|e| {
                let text = format!("{option}: {path}: {e}");
                if lacks_resources(&text) { Failure::system(text) } else { Failure::usage(text) }
            })?;
            (secret, format!("the file {path}"))
        }
        // Somebody may have written a password here, which must not get into a log.
        Source::Env(name) if !is_variable(name) => {
            return Err(Failure::usage(format!("{option}: {NO_CREDENTIALS_HERE}")));
        }
        Source::Env(name) => {
            let secret = std::env::var(name).map_err(|_| {
                Failure::usage(format!(
                    "{option}:{name}: there is no environment variable {name}; the name \
                     of a file needs a '/', for instance ./{name}"
                ))
            })?;
            (secret.into_bytes(), format!("the environment variable {name}"))
        }
    };
    while secret.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        secret.pop();
    }
    if option.contains(" digest") && !secret.contains(&b':') {
        return Err(Failure::usage(format!(
            "{option}: {place} must hold USER:PASSWORD, and there is no ':' in it"
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
            "this login is an option of its own: --sasl digest-md5:FILE, or --sasl gssapi"
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
