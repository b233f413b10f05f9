//! Exit statuses, and the status of each error.

use rustix::io::Errno;
use zk_mutex::{Cause, Error};

/// There was nothing to do, or a check failed.
pub const NOTHING: u8 = 1;
/// `sysexits.h`: the command line is wrong, or a variable or a file in its place.
pub const USAGE: u8 = 64;
/// `sysexits.h`: no ZooKeeper server could be reached, or none gave an answer.
pub const UNREACHABLE: u8 = 69;
/// `sysexits.h`: the server answered something that this program does not expect.
pub const SOFTWARE: u8 = 70;
/// `sysexits.h`: this machine gives no process, thread or file.
pub const SYSTEM: u8 = 71;
/// `sysexits.h`: the server refuses the credentials, or an ACL does not allow it.
pub const DENIED: u8 = 77;
/// The lock was lost while the command ran.
pub const LOST: u8 = 123;
/// Others held the lock all the time that we would wait.
pub const NOT_OBTAINED: u8 = 124;
/// As in shells: the command was found and could not be run.
pub const CANNOT_RUN: u8 = 126;
/// As in shells: the command was not found.
pub const NOT_FOUND: u8 = 127;

/// As in shells: the status of a process that this signal ended.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(255)
}

/// Why the program ends without having done its work.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    /// One word for programs that read `--json`.
    pub kind: &'static str,
    pub message: String,
}

impl Failure {
    pub fn new(code: u8, kind: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, kind, message: message.into() }
    }

    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(USAGE, "usage", message)
    }

    pub fn system(message: impl Into<String>) -> Failure {
        Failure::new(SYSTEM, "system", message)
    }

    /// Whether a lock was lost.
    pub fn is_loss(&self) -> bool {
        self.kind == "lost"
    }

    pub fn signalled(signal: i32) -> Failure {
        let name = crate::signals::name(signal);
        Failure::new(of_signal(signal), "signal", format!("ended by {name}"))
    }
}

impl From<zk_mutex::zk_session::Error> for Failure {
    fn from(error: zk_mutex::zk_session::Error) -> Failure {
        Error::from(error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (code, kind) = classify(&error);
        let message = match &error {
            Error::Connect { .. } if code == SYSTEM => {
                format!("{error}. See the limits of this process: ulimit -n, ulimit -u")
            }
            Error::Connect { .. } => format!(
                "{error}. Check --connect (or ZK_CONNECT), and that this host may reach the servers"
            ),
            Error::Auth { reason, .. } => {
                format!("{reason}. See --sasl, --auth and --tls-cert")
            }
            Error::NoAuth { op, path, permission } => {
                let above = if matches!(*permission, "CREATE" | "DELETE") {
                    ", or of one above it,"
                } else {
                    ""
                };
                format!(
                    "{op} {path}: the ACL of this node{above} does not give {permission}; give \
                     credentials that it names with --auth or --sasl"
                )
            }
            Error::InconsistentPermits { path, ours, theirs } => format!(
                "the semaphore {path} has {theirs} permits, and --of says {ours}: leave --of out \
                 to go by the number that stands there"
            ),
            Error::InvalidConfig { what: "chroot", .. } => {
                "the chroot of the connect string does not exist: correct --connect (or \
                 ZK_CONNECT), or make the chroot with `zk-lock run --create-chroot`"
                    .to_owned()
            }
            Error::WouldDeadlock { path, .. } => format!("{path} is given twice; give it once"),
            Error::InvalidConfig { what, reason } => format!("{}: {reason}", option_of(what)),
            _ => error.to_string(),
        };
        Failure { code, kind, message: in_options(&message) }
    }
}

/// The library's advice names what a program calls; these are the options that do the same.
const OPTIONS: [(&str, &str); 11] = [
    ("TlsConfig::client_certificate()", "--tls-cert and --tls-key"),
    ("connect with the builder's tls()", "connect with --tls-ca"),
    ("(the builder's tls())", "(--tls-ca)"),
    ("given to auth()", "given with --auth"),
    ("give auth() credentials", "give --auth credentials"),
    ("check auth()", "check --auth"),
    ("with auth() or a login by SASL", "with --auth or --sasl"),
    ("(Gssapi::server_host)", "(--sasl-server-host)"),
    ("give the session a login by SASL, or credentials", "give --sasl, or --auth with credentials"),
    ("give the session credentials of a scheme", "give --auth with credentials of a scheme"),
    ("raise it with set_permits()", "raise it with `zk-lock permits`"),
];

/// The options for a setting of the library.
fn option_of(setting: &str) -> &str {
    match setting {
        "auth" => "--auth",
        "connect string" => "--connect",
        "connect_timeout" => "--connect-timeout",
        "sasl_digest_md5" => "--sasl digest-md5",
        "sasl_gssapi" => "--sasl gssapi",
        "session_timeout" => "--session",
        "tls" => "--tls-ca, --tls-cert, --tls-key",
        other => other,
    }
}

/// A message of the library, in the words of the command line.
pub fn in_options(message: &str) -> String {
    OPTIONS.iter().fold(message.to_owned(), |text, (call, option)| text.replace(call, option))
}

fn classify(error: &Error) -> (u8, &'static str) {
    match error {
        Error::InvalidConfig { reason, .. } if lacks_resources(reason) => (SYSTEM, "system"),
        Error::InvalidPath { .. }
        | Error::InvalidConfig { .. }
        | Error::WouldDeadlock { .. }
        | Error::InconsistentPermits { .. } => (USAGE, "usage"),
        Error::WouldBlock { .. } | Error::TimedOut { .. } | Error::Paused { .. } => {
            (NOTHING, "not_obtained")
        }
        Error::Unavailable { cause: Cause::Resources(_), .. } => (SYSTEM, "system"),
        Error::Connect { hosts, .. } if hosts.iter().any(|host| lacks_resources(&host.reason)) => {
            (SYSTEM, "system")
        }
        Error::Connect { .. } | Error::Unavailable { .. } => (UNREACHABLE, "unreachable"),
        Error::Auth { .. } | Error::NoAuth { .. } => (DENIED, "denied"),
        Error::Lost { .. } => (LOST, "lost"),
        Error::Several { failures } => failures.first().map_or((SOFTWARE, "server"), classify),
        error if error.is_transient() => (UNREACHABLE, "unreachable"),
        _ => (SOFTWARE, "server"),
    }
}

/// Whether this is the error of a machine that gives no descriptor, thread or memory.
pub fn lacks_resources(reason: &str) -> bool {
    let numbers = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN];
    numbers.iter().any(|number| reason.contains(&format!("(os error {})", number.raw_os_error())))
}
