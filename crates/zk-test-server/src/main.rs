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

const HELP: &str = "\
zk-test-server: a ZooKeeper server in memory, for development and tests; runs until it is killed

Flags:
  --port N               the port to listen on; 0 is any that is free (default 2181)
  --host IP              the address to listen on (default 127.0.0.1: only this host can connect)
  --tick MS              ZooKeeper's tickTime: sessions expire at multiples of it (default 2000)
  --min-session MS       the shortest session timeout granted (default two ticks)
  --max-session MS       the longest session timeout granted (default twenty ticks)
  --container-check MS   how often containers and TTL nodes are looked at (default 60000)
  --super-digest DIGEST  who may do everything: super:<base64 of the SHA-1 of super:password>,
                         as in zookeeper.DigestAuthenticationProvider.superDigest (default: nobody)
  --help                 this text
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

fn main() -> ExitCode {
    let (mut tick, mut min, mut max) = (Duration::from_secs(2), None, None);
    let mut server = TestServer::builder().port(2181);
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "--help" | "-h") {
            print!("{HELP}");
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
            "--tick" => tick = millis(flag, &value()),
            "--min-session" => min = Some(millis(flag, &value())),
            "--max-session" => max = Some(millis(flag, &value())),
            "--container-check" => server = server.container_check_interval(millis(flag, &value())),
            "--super-digest" => server = server.super_digest(value()),
            _ => refuse(&format!("unknown argument {flag:?}")),
        }
    }
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
