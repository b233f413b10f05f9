//! The arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::signals;
use crate::{paths, time};

/// Locks over ZooKeeper for scripts, cron jobs and operators.
#[derive(Debug, Parser)]
#[command(name = "zk-lock", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_long_help = exit_status())]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the arguments, and the environment where it has a variable for an option. An option
    /// that neither of them has gets the value that `settings` has for its name.
    pub fn read(settings: &[Setting]) -> Result<Cli, clap::Error> {
        let mut command = Cli::command().mut_args(|arg| {
            // A variable without a value is no variable, as in other programs.
            let is_empty = arg.get_env().and_then(std::env::var_os).is_some_and(|v| v.is_empty());
            if is_empty { arg.env(None) } else { arg }
        });
        for Setting { name, values } in settings {
            let id = name.replace('-', "_");
            command = command.mut_arg(id, |arg| arg.default_values(values));
        }
        let mut matches = command.try_get_matches()?;
        Cli::from_arg_matches_mut(&mut matches)
    }
}

/// An option of all commands in a file: its long name, and its values.
#[derive(Debug)]
pub struct Setting {
    pub name: String,
    pub values: Vec<String>,
}

/// The exit statuses and their meanings, for `--help` and the man pages.
pub const STATUSES: [(&str, &str); 12] = [
    ("0", "done; of `run` and `elect`, the status of the command"),
    ("1", "nobody holds it, or nothing was done; `doctor` finds a fault, `ls` one over a limit"),
    ("128+n", "the command, or zk-lock while it waited, was ended by the signal n"),
    ("123", "the lock was lost, or nearly, and the command was ended; --loss-status sets another"),
    ("124", "others held the lock (--try, --timeout); -E sets another status"),
    ("126", "the command cannot be run"),
    ("127", "the command was not found"),
    ("64", "the command line is wrong, or a variable or a file that it takes options from"),
    ("69", "no ZooKeeper server can be reached, or none answers"),
    ("70", "a server gave an answer that zk-lock does not expect"),
    ("71", "this machine gives no process, thread or file"),
    ("77", "the server refuses the credentials, or an ACL does not allow it"),
];

fn exit_status() -> String {
    let line = |(status, meaning): &(&str, &str)| format!("  {status:>5}  {meaning}\n");
    let lines: String = STATUSES.iter().map(line).collect();
    format!("Exit status:\n{}", lines.trim_end())
}

/// What all commands take.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub struct Common {
    /// The servers, and perhaps a chroot: zk1:2181,zk2:2181/app
    #[arg(
        long,
        short = 'c',
        global = true,
        env = "ZK_CONNECT",
        hide_env_values = true,
        value_name = "SERVERS"
    )]
    pub connect: Option<String>,
    /// Credentials: a scheme, and the file or the environment variable that holds them
    ///
    /// A value with a '/' is a file, any other the name of an environment variable:
    /// digest:/etc/zk.secret or digest:ZK_SECRET. For the scheme digest it holds USER:PASSWORD.
    /// Several are separated by commas. The credentials themselves never stand here: every user of
    /// the host could read them.
    #[arg(long, global = true, env = "ZK_AUTH", hide_env_values = true, value_delimiter = ',')]
    #[arg(value_parser = credentials, value_name = "SCHEME:FILE|SCHEME:VARIABLE")]
    pub auth: Vec<Credentials>,
    /// A login by SASL, before all other credentials
    ///
    /// digest-md5:/etc/zk.secret or digest-md5:ZK_SECRET, a file or an environment variable that
    /// holds USER:PASSWORD, as with --auth. Or gssapi, which is Kerberos, or gssapi:PRINCIPAL; the
    /// library of Kerberos finds the ticket or the keytab (KRB5CCNAME, KRB5_CLIENT_KTNAME). Without
    /// a valid ticket the exit status is 69. `zk-lock doctor` says which login the servers ask for.
    #[arg(long, global = true, env = "ZK_SASL", hide_env_values = true, value_parser = any_sasl)]
    #[arg(value_name = "digest-md5:FILE|digest-md5:VARIABLE|gssapi[:PRINCIPAL]")]
    pub sasl: Option<SaslArg>,
    /// With --sasl gssapi, the host in the servers' Kerberos principal [default: each host's name
    /// in --connect]
    #[arg(long, global = true, env = "ZK_SASL_SERVER_HOST", hide_env_values = true)]
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub sasl_server_host: Option<String>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub tls: TlsArgs,
    /// How long to try to reach a server
    #[arg(long, global = true, env = "ZK_CONNECT_TIMEOUT", hide_env_values = true)]
    #[arg(value_name = "DURATION", default_value = "10s", value_parser = time::parse)]
    pub connect_timeout: Duration,
    /// A file with the settings above, where neither options nor variables have them [default:
    /// $XDG_CONFIG_HOME/zk-lock.toml or, without one, /etc/zk-lock.toml]
    ///
    /// It is TOML, and its keys are the names of the options: connect = "zk1:2181,zk2:2181"
    #[arg(long, global = true, env = "ZK_LOCK_CONFIG", hide_env_values = true)]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// JSON: results on stdout, and what happens on the way on stderr, one object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Only errors on stderr
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// More on stderr; twice for the steps of the protocol
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// How to connect over TLS. All files are PEM.
#[cfg(feature = "tls")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub struct TlsArgs {
    /// Connect over TLS, to servers whose certificate is signed by a CA of this file
    #[arg(long, global = true, env = "ZK_TLS_CA", hide_env_values = true)]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,
    /// The certificate for servers that ask for one; it goes with --tls-key
    #[arg(long, global = true, env = "ZK_TLS_CERT", hide_env_values = true)]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// The private key of that certificate, without a password
    #[arg(long, global = true, env = "ZK_TLS_KEY", hide_env_values = true)]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
}

/// A mechanism of SASL, and as whom.
#[derive(Clone, Debug)]
pub enum SaslArg {
    DigestMd5(Source),
    /// As this principal, or as whom the ticket says.
    Gssapi(Option<String>),
    /// Something else.
    Unknown,
}

/// Where credentials stand.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub scheme: String,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub enum Source {
    File(String),
    Env(String),
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while a lock is held
    Run(RunArgs),
    /// Run a command while this process leads an election, or watch the leaders
    Elect(ElectArgs),
    /// List the locks that are in use
    Ls(LsArgs),
    /// Show the holders of a lock and its queue
    Show(PathArgs),
    /// Show a lock's queue as it changes
    Watch(WatchArgs),
    /// Wait until locks are free, and take none
    Wait(WaitArgs),
    /// Show the last runs of `run --record`
    History(PathArgs),
    /// Ask the holders of a lock to let go
    Revoke(RevokeArgs),
    /// Delete the node of one contender
    Break(BreakArgs),
    /// Show or set how many permits a semaphore has
    Permits(PermitsArgs),
    /// Remove the nodes of a lock that nobody uses
    Forget(ForgetArgs),
    /// Check the ensemble, and say what to do
    Doctor(DoctorArgs),
    /// Serve the locks as metrics for Prometheus
    Export(ExportArgs),
    /// Measure locking and unlocking against your ensemble
    Bench(BenchArgs),
    /// Print the man page of the program, or of one command
    Man(ManArgs),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the JSON schema of the lines that --json gives
    Schema,
}

/// The session timeout of `run` and `elect`, unless it is given.
pub const DEFAULT_SESSION: Duration = Duration::from_secs(30);

/// How a command is run under a lock.
#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// How long the command may take to end, between the signal and SIGKILL [default: a tenth of
    /// the session timeout, 5s at most]
    ///
    /// It is part of the time for which the lock is certainly held, so it may be a fifth of the
    /// session timeout at most. With more than a tenth, a server that freezes may cost the command
    /// its lock, although other servers answer.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub grace: Option<Duration>,
    /// The signal that asks the command to end
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub signal: i32,
    /// Run this when the lock is lost: words separated by blanks, no shell; ZK_LOCK_LOSS says why
    #[arg(long, value_name = "COMMAND")]
    pub on_loss: Option<String>,
    /// The exit status if the lock is lost
    #[arg(long, value_name = "STATUS", default_value_t = crate::exit::LOST)]
    pub loss_status: u8,
    /// End the command when somebody asks for the lock (`zk-lock revoke`)
    #[arg(long)]
    pub revocable: bool,
    /// The session timeout: so long after this host has died the lock is free
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::parse)]
    pub session: Duration,
    /// Make the chroot of the connect string, if it does not exist
    #[arg(long)]
    pub create_chroot: bool,
    /// The ACL of the lock's nodes: open to everybody, or to this client's credentials only
    /// (--auth, --sasl, --tls-cert)
    #[arg(long, value_enum, default_value = "open")]
    pub acl: AclArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AclArg {
    Open,
    Creator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    Curator,
    Kazoo,
}

#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The locks; several are held all or none
    #[arg(required = true, value_name = "PATH", value_parser = paths::lock)]
    pub paths: Vec<String>,
    /// Share the lock with other readers
    #[arg(long, conflicts_with_all = ["write", "permits"])]
    pub read: bool,
    /// Hold the lock alone, where others use --read
    #[arg(long, conflicts_with = "permits")]
    pub write: bool,
    /// Take so many permits of a semaphore
    #[arg(long, value_name = "N")]
    pub permits: Option<u32>,
    /// How many permits the semaphore has [default: the number that stands in its node]
    #[arg(long, value_name = "M", requires = "permits")]
    pub of: Option<u32>,
    /// The names of the lock's nodes: those of Curator, which most clients know, or of kazoo
    #[arg(long, value_enum, default_value = "curator")]
    pub layout: LayoutArg,
    /// Run although a client stands there that does not wait for this one, as far as its names show
    #[arg(long)]
    pub force: bool,
    /// Note the run, its end and its exit status for `zk-lock history`
    #[arg(long)]
    pub record: bool,
    /// Write the run as metrics to this file, for node_exporter's textfile collector: NAME.prom
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Do not wait if somebody else holds the lock
    #[arg(long = "try", short = 'n', conflicts_with = "timeout")]
    pub try_once: bool,
    /// Wait for the lock no longer than this
    #[arg(long, short = 'w', value_name = "DURATION", value_parser = time::parse)]
    pub timeout: Option<Duration>,
    /// The exit status if others hold the lock
    #[arg(long, short = 'E', value_name = "STATUS", default_value_t = crate::exit::NOT_OBTAINED)]
    pub conflict_exit_code: u8,
    /// Hold the lock at least so long, even if the command ends sooner
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub min_hold: Option<Duration>,
    /// End the command when the lock has been held for so long
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub max_hold: Option<Duration>,
    #[command(flatten)]
    pub child: ChildArgs,
    /// The command and its arguments; no shell reads them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Clone, Debug)]
pub struct ElectArgs {
    /// The election
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
    /// Take no part: print the leader, each time that it changes
    #[arg(long, conflicts_with = "command")]
    pub observe: bool,
    /// With --observe: end after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = time::parse, requires = "observe")]
    pub duration: Option<Duration>,
    /// Wait to become the leader no longer than this
    #[arg(long, short = 'w', value_name = "DURATION", value_parser = time::parse)]
    pub timeout: Option<Duration>,
    /// The exit status if others lead all that time
    #[arg(long, short = 'E', value_name = "STATUS", default_value_t = crate::exit::NOT_OBTAINED)]
    pub conflict_exit_code: u8,
    #[command(flatten)]
    pub child: ChildArgs,
    /// The command and its arguments; no shell reads them
    #[arg(last = true, required_unless_present = "observe", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Clone, Debug)]
pub struct LsArgs {
    /// Where to begin
    #[arg(value_name = "PATH", default_value = "/", value_parser = paths::folder)]
    pub path: String,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Show the locks as they change
    #[arg(long)]
    pub watch: bool,
    /// With --watch: how often to read them
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = pace)]
    #[arg(requires = "watch")]
    pub every: Duration,
    /// With --watch: end after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = time::parse, requires = "watch")]
    pub duration: Option<Duration>,
}

/// Which locks are to be shown; with both, those that are over one of the two.
#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// Show the locks that are held for longer than this; the exit status is 1 if there are any
    ///
    /// The time counts from the moment at which the holder has joined the queue: ZooKeeper keeps no
    /// other. With --watch, it counts from when the holder was last seen to wait. Elections are not
    /// shown.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    pub held_over: Option<Duration>,
    /// Show the locks that more than so many wait for; the exit status is 1 if there are any
    ///
    /// Elections are not shown: their candidates are there to wait.
    #[arg(long, value_name = "N")]
    pub waiting_over: Option<usize>,
}

#[derive(Args, Clone, Debug)]
pub struct WaitArgs {
    /// The locks; it waits until all of them are free
    #[arg(required = true, value_name = "PATH", value_parser = paths::lock)]
    pub paths: Vec<String>,
    /// Wait no longer than this; the exit status is 124 then
    #[arg(long, short = 'w', value_name = "DURATION", value_parser = time::parse)]
    pub timeout: Option<Duration>,
}

#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Where to begin
    #[arg(value_name = "PATH", default_value = "/", value_parser = paths::folder)]
    pub path: String,
    /// The address and the port to serve /metrics at: 127.0.0.1:9469
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: String,
    /// How often to read the locks, however often the metrics are asked for
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = pace)]
    pub every: Duration,
    /// How many locks may have metrics of their own; of more, those with the longest queues have
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub max_locks: usize,
}

#[derive(Args, Clone, Debug)]
pub struct PathArgs {
    /// The lock
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
}

#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// The lock
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = time::parse)]
    pub duration: Option<Duration>,
}

#[derive(Args, Clone, Debug)]
pub struct RevokeArgs {
    /// The lock
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
    /// Ask this contender only, by its name in `show`
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct BreakArgs {
    /// The lock
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
    /// The contender, by its name in `show`
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Clone, Debug)]
pub struct PermitsArgs {
    /// The semaphore
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
    /// How many permits it has from now on; 0 pauses it
    #[arg(value_name = "N")]
    pub number: Option<u32>,
    /// Make the semaphore, if there is none
    #[arg(long, requires = "number")]
    pub create: bool,
}

#[derive(Args, Clone, Debug)]
pub struct ForgetArgs {
    /// The lock
    #[arg(value_name = "PATH", value_parser = paths::lock)]
    pub path: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// A lock, or a folder of locks: where to write for a moment, and whose ACL to judge
    #[arg(value_name = "PATH", default_value = "/", value_parser = paths::folder)]
    pub path: String,
    /// The session timeout that your programs ask for
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::parse)]
    pub session: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// The command
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
    /// Write all pages into this directory instead: zk-lock.1, zk-lock-run.1 and so on
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with = "command")]
    pub to: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The lock to measure with; no program should use it
    #[arg(value_name = "PATH", default_value = "/zk-lock-bench", value_parser = paths::lock)]
    pub path: String,
    /// How long each part takes
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = time::parse)]
    pub seconds: Duration,
    /// How many sessions contend in the second part
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub sessions: u16,
}

/// How often to look.
fn pace(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(100);
    time::parse(text).and_then(|pace| match pace < least {
        true => Err("100ms at least".to_owned()),
        false => Ok(pace),
    })
}

fn listen(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err("write an address and a port, for instance 127.0.0.1:9469".to_owned()),
    }
}

/// Reads where credentials stand.
pub fn credentials(text: &str) -> Result<Credentials, String> {
    match text.split_once(':') {
        Some((scheme, place)) if !scheme.is_empty() && !place.is_empty() => {
            Ok(Credentials { scheme: scheme.to_owned(), source: source(place) })
        }
        _ => {
            Err("write SCHEME:FILE or SCHEME:VARIABLE, for instance digest:/etc/zk.secret"
                .to_owned())
        }
    }
}

fn source(place: &str) -> Source {
    let is_file = place.contains('/');
    if is_file { Source::File(place.to_owned()) } else { Source::Env(place.to_owned()) }
}

/// Reads a mechanism of SASL, and as whom.
pub fn sasl(text: &str) -> Result<SaslArg, String> {
    match text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest))) {
        ("digest-md5", Some(place)) if !place.is_empty() => Ok(SaslArg::DigestMd5(source(place))),
        ("gssapi", None) => Ok(SaslArg::Gssapi(None)),
        ("gssapi", Some(principal)) if !principal.is_empty() => {
            Ok(SaslArg::Gssapi(Some(principal.to_owned())))
        }
        _ => Err(SASL_FORMS.to_owned()),
    }
}

pub const SASL_FORMS: &str = "write digest-md5:FILE or digest-md5:VARIABLE, for instance \
    digest-md5:/etc/zk.secret, or gssapi, or gssapi:PRINCIPAL";

/// The same for clap, which would show a wrong value in its error. That may be a password.
#[allow(clippy::unnecessary_wraps)] // clap wants a result
fn any_sasl(text: &str) -> Result<SaslArg, std::convert::Infallible> {
    Ok(sasl(text).unwrap_or(SaslArg::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
