//! The test server by itself, for programs in any language: `zk-test-server --port 2181`. When it
//! serves, it prints one line with the address to connect to. It keeps everything in memory and
//! runs until it is killed.

use std::env;
use std::io::ErrorKind;
use std::process::{self, ExitCode};
use std::str::FromStr;
use std::thread;
use std::time::Duration;
use zk_test_server::TestServer;
#[cfg(feature = "tls")]
use zk_test_server::{ServerTls, TestServerBuilder};

const HELP: &str = "\
zk-test-server: a ZooKeeper server in memory, for development and tests; runs until it is killed

Flags:
  --port N               the port to listen on; 0 is any that is free (default 2181)
  --host IP              the address to listen on (default 127.0.0.1: only this host can connect)
  --brand NAME           the server to answer as: 3.8, 3.9 (ZooKeeper), keeper or wide-numbers
                         (default 3.8)
  --tick MS              ZooKeeper's tickTime: sessions expire at multiples of it (default 2000)
  --min-session MS       the shortest session timeout granted (default two ticks)
  --max-session MS       the longest session timeout granted (default twenty ticks)
  --container-check MS   how often containers and TTL nodes are looked at (default 60000)
  --super-digest DIGEST  who may do everything: super:<base64 of the SHA-1 of super:password>,
                         as in zookeeper.DigestAuthenticationProvider.superDigest (default: nobody)
";

#[cfg(feature = "sasl")]
const SASL_HELP: &str = "\
\x20 --sasl-user NAME:PASSWORD
                         a user who may log in by SASL DIGEST-MD5; may be given several times
  --require-sasl         serve only connections that have logged in (sessionRequireClientSASLAuth)
  --allow-failed-sasl    keep a connection open whose login has failed
                         (zookeeper.allowSaslFailedClients)
";
#[cfg(not(feature = "sasl"))]
const SASL_HELP: &str = "\
\x20 (the feature `sasl` was left out: there is no --sasl-user)
";

#[cfg(feature = "tls")]
const TLS_HELP: &str = "\
\x20 --tls-cert FILE        serve over TLS, with the certificate (and intermediates) of a PEM file
  --tls-key FILE         its private key
  --tls-ca FILE          want a certificate of each client, signed by a CA of this file; its subject
                         is the client's identity of the scheme x509
  --tls-allow-plain      also serve connections that are not over TLS (portUnification)
";
#[cfg(not(feature = "tls"))]
const TLS_HELP: &str = "\
\x20 (the feature `tls` was left out: there is no --tls-cert)
";

/// Warnings and errors go to stderr.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Ends the process: the arguments are wrong.
fn refuse(why: &str) -> ! {
    eprintln!("zk-test-server: {why} (see --help)");
    process::exit(2);
}

fn read<T: FromStr>(flag: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|_| refuse(&format!("{flag} cannot be {value:?}")))
}

fn millis(flag: &str, value: &str) -> Duration {
    Duration::from_millis(read::<u32>(flag, value).into())
}

/// The flags of TLS.
#[cfg(feature = "tls")]
#[derive(Default)]
struct Tls {
    cert: Option<String>,
    key: Option<String>,
    ca: Option<String>,
    allow_plain: bool,
}

#[cfg(feature = "tls")]
impl Tls {
    fn add_to(self, server: TestServerBuilder) -> TestServerBuilder {
        let (cert, key) = match (self.cert, self.key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) if self.ca.is_none() && !self.allow_plain => return server,
            _ => refuse("TLS needs --tls-cert and --tls-key"),
        };
        let mut tls = ServerTls::new(cert, key);
        if let Some(ca) = self.ca {
            tls = tls.client_ca(ca);
        }
        server.tls(if self.allow_plain { tls.allow_plain() } else { tls })
    }
}

fn main() -> ExitCode {
    let (mut tick, mut min, mut max) = (Duration::from_secs(2), None, None);
    let mut server = TestServer::builder().port(2181);
    let mut words = env::args().skip(1);
    #[cfg(feature = "tls")]
    let mut tls = Tls::default();
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "--help" | "-h") {
            println!("{HELP}{SASL_HELP}{TLS_HELP}  --help                 this text");
            return ExitCode::SUCCESS;
        }
        let (flag, attached) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let value = || {
            attached
                .or_else(|| words.next())
                .unwrap_or_else(|| refuse(&format!("{flag} wants a value")))
        };
        match flag {
            "--port" => server = server.port(read(flag, &value())),
            "--host" => server = server.host(read(flag, &value())),
            "--brand" => server = server.brand(read(flag, &value())),
            "--tick" => tick = millis(flag, &value()),
            "--min-session" => min = Some(millis(flag, &value())),
            "--max-session" => max = Some(millis(flag, &value())),
            "--container-check" => server = server.container_check_interval(millis(flag, &value())),
            "--super-digest" => server = server.super_digest(value()),
            #[cfg(feature = "sasl")]
            "--sasl-user" => {
                let user = value();
                let Some((name, password)) = user.split_once(':') else {
                    refuse("--sasl-user wants a name and a password, with a colon between them")
                };
                server = server.sasl_user(name, password);
            }
            #[cfg(feature = "sasl")]
            "--require-sasl" => server = server.requires_sasl(),
            #[cfg(feature = "sasl")]
            "--allow-failed-sasl" => server = server.allows_failed_sasl(),
            #[cfg(feature = "tls")]
            "--tls-cert" => tls.cert = Some(value()),
            #[cfg(feature = "tls")]
            "--tls-key" => tls.key = Some(value()),
            #[cfg(feature = "tls")]
            "--tls-ca" => tls.ca = Some(value()),
            #[cfg(feature = "tls")]
            "--tls-allow-plain" => tls.allow_plain = true,
            _ => refuse(&format!("unknown argument {flag:?}")),
        }
    }
    #[cfg(feature = "tls")]
    let server = tls.add_to(server);
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    let server = server
        .tick(tick)
        .min_session_timeout(min.unwrap_or(tick * 2))
        .max_session_timeout(max.unwrap_or(tick * 20))
        .start();
    match server {
        Ok(server) => {
            println!("{}", server.connect_string());
            loop {
                thread::park();
            }
        }
        Err(error) if error.kind() == ErrorKind::InvalidInput => refuse(&error.to_string()),
        Err(error) => {
            eprintln!("zk-test-server: cannot serve: {error}");
            ExitCode::FAILURE
        }
    }
}
