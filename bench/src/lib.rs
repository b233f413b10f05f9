//! The common parts of the programs of this package: flags, servers, exit codes, a bare client, and
//! output that survives a closed pipe.

pub mod protocol;
pub mod raw;

use lexopt::{Arg, Error, Parser, ValueExt};
use std::process::{self, ExitCode};
use std::str::FromStr;
use std::time::Duration;
use zk_test_server::TestServer;

/// Prints a line. `println!` would panic if the reader is gone, as in `stress | head`.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stdout().lock(),
            format_args!("{}\n", format_args!($($text)*)),
        );
    }};
}

/// Reads the command line, which has only flags. `take` gets the name of each flag, takes its value
/// from the parser, and returns false if there is no such flag. `--help` prints `help` and ends the
/// process. An error ends it with one line and exit code 2.
pub fn flags(
    program: &str,
    help: &str,
    mut take: impl FnMut(&str, &mut Parser) -> Result<bool, Error>,
) {
    let mut parser = Parser::from_env();
    loop {
        let flag = match parser.next() {
            Ok(None) => return,
            Ok(Some(Arg::Long("help") | Arg::Short('h'))) => {
                say!("{program}: {help}");
                process::exit(0);
            }
            Ok(Some(Arg::Long(flag))) => flag.to_owned(),
            Ok(Some(other)) => refuse(program, &other.unexpected().to_string()),
            Err(error) => refuse(program, &error.to_string()),
        };
        match take(&flag, &mut parser) {
            Ok(true) => {}
            Ok(false) => refuse(program, &format!("there is no flag --{flag}")),
            Err(error) => refuse(program, &format!("--{flag}: {error}")),
        }
    }
}

/// Ends the process: the arguments are wrong.
pub fn refuse(program: &str, why: &str) -> ! {
    eprintln!("{program}: {why} (see --help)");
    process::exit(2);
}

/// A flag's value as text.
pub fn text(parser: &mut Parser) -> Result<String, Error> {
    parser.value()?.string()
}

/// A flag's value as a whole number above zero.
pub fn positive<T>(parser: &mut Parser) -> Result<T, Error>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>> + Default + PartialEq,
{
    let number: T = parser.value()?.parse()?;
    if number == T::default() { Err("must be at least 1".into()) } else { Ok(number) }
}

/// A flag's value as a number of milliseconds.
pub fn millis(parser: &mut Parser) -> Result<Duration, Error> {
    Ok(Duration::from_millis(parser.value()?.parse::<u32>()?.into()))
}

/// The value of `--path`: a path below the root, so that a suffix or a child can be added. The
/// library checks the rest.
pub fn path(parser: &mut Parser) -> Result<String, Error> {
    let path = text(parser)?;
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(format!("{path:?} is no path below the root").into());
    }
    Ok(path)
}

/// The servers of one run: those of `--connect` or of ZK_CONNECT, or else an embedded one.
pub struct Servers {
    connect_string: String,
    /// Is dropped, and so stopped, with this value.
    embedded: Option<TestServer>,
}

impl Servers {
    /// The servers of `--connect`, or else of ZK_CONNECT. If neither names any, starts the embedded
    /// server, or ends the process if this fails.
    pub fn find(program: &str, connect: Option<String>) -> Servers {
        let environment = || std::env::var("ZK_CONNECT").ok().filter(|servers| !servers.is_empty());
        if let Some(connect_string) = connect.or_else(environment) {
            return Servers { connect_string, embedded: None };
        }
        match TestServer::start() {
            Ok(server) => {
                let connect_string = server.connect_string();
                // Not on stdout, which may be for programs to read.
                eprintln!(
                    "{program}: no --connect and no ZK_CONNECT, so it runs on an embedded test \
                     server of its own, {connect_string}"
                );
                Servers { connect_string, embedded: Some(server) }
            }
            Err(error) => {
                eprintln!("{program}: the embedded server: {error}");
                process::exit(1);
            }
        }
    }

    pub fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// The embedded server, if it is used. No other process knows its address.
    pub fn embedded(&self) -> Option<&TestServer> {
        self.embedded.as_ref()
    }
}

/// The exit code after an error of the library: 2 for wrong arguments, otherwise 1.
pub fn failure(program: &str, error: &zk_mutex::Error) -> ExitCode {
    eprintln!("{program}: {error}");
    match error {
        zk_mutex::Error::InvalidPath { .. } | zk_mutex::Error::InvalidConfig { .. } => {
            ExitCode::from(2)
        }
        _ => ExitCode::FAILURE,
    }
}

/// Shows the log's warnings, or the levels of the environment variable RUST_LOG.
pub fn show_log() {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
}
