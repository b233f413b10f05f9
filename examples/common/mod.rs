//! What the examples share: their flags, their server, their exit codes, and output that survives a
//! closed pipe.

mod servers;

use std::collections::HashMap;
use std::process::{self, ExitCode};
use std::str::FromStr;
use zk_mutex::Error;

/// Prints a line. `println!` would panic where the reader has gone, as in `contend | head`.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(
            &mut std::io::stdout().lock(),
            format_args!("{}\n", format_args!($($text)*)),
        );
    }};
}
pub(crate) use say;

/// One flag: its name, what stands for its value in the help (empty for a switch), and its meaning.
pub type Flag = (&'static str, &'static str, &'static str);

/// The flag that every example has.
pub const CONNECT: Flag = (
    "--connect",
    "STR",
    "the servers, as in h1:2181,h2:2181/chroot (default: $ZK_CONNECT, or else the embedded test server)",
);

/// The flags of one run.
pub struct Args {
    program: &'static str,
    values: HashMap<&'static str, String>,
}

impl Args {
    /// Reads the command line. Ends the process with the help if asked for it, and with one line
    /// and exit code 2 if something is wrong.
    pub fn parse(program: &'static str, about: &str, flags: &[Flag]) -> Args {
        let mut args = Args { program, values: HashMap::new() };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                print_help(program, about, flags);
                process::exit(0);
            }
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let Some(&(flag, placeholder, _)) = flags.iter().find(|flag| flag.0 == name) else {
                args.refuse(&format!("unknown argument {name:?}"));
            };
            let value = match (placeholder, attached) {
                ("", None) => String::new(),
                ("", Some(_)) => args.refuse(&format!("{flag} takes no value")),
                (_, Some(value)) => value,
                (_, None) => match words.next() {
                    Some(value) if !value.starts_with("--") => value,
                    _ => args.refuse(&format!("{flag} wants a value, {placeholder}")),
                },
            };
            args.values.insert(flag, value);
        }
        args
    }

    /// Ends the process: the arguments are wrong.
    pub fn refuse(&self, why: &str) -> ! {
        eprintln!("{}: {why} (see --help)", self.program);
        process::exit(2);
    }

    /// The value of a flag, if the flag is given; empty for a switch.
    pub fn text(&self, flag: &str) -> Option<&str> {
        self.values.get(flag).map(String::as_str)
    }

    /// The value of a flag as a whole number, if the flag is given.
    pub fn number<T: FromStr>(&self, flag: &str) -> Option<T> {
        let text = self.text(flag)?;
        match text.parse() {
            Ok(number) => Some(number),
            Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.refuse(&format!("{flag} {text} is too large"))
            }
            Err(_) => self.refuse(&format!("{flag} wants a whole number, not {text:?}")),
        }
    }

    /// As `number`, for what makes no sense at zero.
    pub fn positive<T: FromStr + Default + PartialEq>(&self, flag: &str, default: T) -> T {
        let number = self.number(flag).unwrap_or(default);
        if number == T::default() {
            self.refuse(&format!("{flag} must be at least 1"));
        }
        number
    }

    /// As `positive`, for what costs threads, sessions or processes: no more than `most` of them.
    #[allow(dead_code)] // some examples have nothing of the kind
    pub fn count(&self, flag: &str, default: u32, most: u32) -> u32 {
        let number = self.positive(flag, default);
        if number > most {
            self.refuse(&format!("{flag} must be at most {most}, which is plenty for one process"));
        }
        number
    }

    /// The value of `--path`: somewhere below the root, so that what is put below it or behind its
    /// name is too. The library is the judge of the rest.
    pub fn path<'a>(&'a self, default: &'a str) -> &'a str {
        let path = self.text("--path").unwrap_or(default);
        if !path.starts_with('/') || path.ends_with('/') {
            self.refuse(&format!(
                "--path wants a path below the root, as {default} is, not {path:?}"
            ));
        }
        path
    }
}

/// What an example ends with when the library refuses: 2 if the arguments were wrong, else 1.
pub fn failure(program: &str, error: &Error) -> ExitCode {
    eprintln!("{program}: {error}");
    match error {
        Error::InvalidPath { .. } | Error::InvalidConfig { .. } => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Shows the log, filtered so unless the environment variable RUST_LOG says otherwise.
pub fn show_log(filter: &str) {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(filter)).init();
}

fn print_help(program: &str, about: &str, flags: &[Flag]) {
    say!("{program}: {about}\n\nFlags:");
    for (name, placeholder, meaning) in flags {
        say!("  {:<18} {meaning}", format!("{name} {placeholder}"));
    }
    say!("  {:<18} this text", "--help");
}
