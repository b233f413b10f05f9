//! `zk-lock`: locks over ZooKeeper for scripts, cron jobs and operators.
//!
//! `cli.rs` has the arguments, `config_file.rs` takes some of them from a file, `run/` runs a
//! command under a lock, `inspect/` has the commands that show and free locks, `export/` serves
//! them as metrics, `nodes/` reads what stands at a path, and `pages.rs` has the man pages and
//! completions. README.md of this crate shows each command.

mod cli;
mod config_file;
mod connect;
mod exit;
mod export;
mod inspect;
mod metrics;
mod nodes;
mod output;
mod pages;
mod paths;
mod run;
mod signals;
mod time;
mod zk;

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::cli::{Cli, Command, WatchArgs};
use crate::exit::{Failure, USAGE};
use crate::output::{Output, lines};

fn main() -> ExitCode {
    // The two helpers of `run` are this program under other names; they need none of the rest.
    if let Some(code) = run::helper() {
        return code;
    }
    let mut cli = match Cli::read(&[]) {
        Ok(cli) => cli,
        Err(said) => return wrong_arguments(&said),
    };
    let output = Output::new(&cli.common);
    let done = match with_file(&mut cli) {
        Ok(()) => command(&cli, &output),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output.failed(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// Takes what neither options nor variables say from the file.
fn with_file(cli: &mut Cli) -> Result<(), Failure> {
    if matches!(cli.command, Command::Man(_) | Command::Completions { .. } | Command::Schema) {
        return Ok(());
    }
    let settings = config_file::read(cli.common.config.as_deref())?;
    if !settings.is_empty() {
        *cli = Cli::read(&settings).map_err(|said| Failure::usage(in_one_line(&said)))?;
    }
    Ok(())
}

/// Answers --help and --version, and a command line that is wrong.
fn wrong_arguments(said: &clap::Error) -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let own = arguments.iter().map(AsRef::as_ref).take_while(|argument| *argument != "--");
    let output = Output::of_arguments(own);
    if !said.use_stderr() {
        let _ = said.print();
        return ExitCode::SUCCESS;
    }
    let (text, shown) = (said.to_string(), lines(&said.to_string()));
    if output.json {
        output.failed(&Failure::usage(in_one_line(said)));
    } else if text == shown {
        let _ = said.print(); // with colours, in a terminal
    } else {
        eprint!("{shown}");
    }
    ExitCode::from(USAGE)
}

/// What is wrong, without the usage behind it.
fn in_one_line(said: &clap::Error) -> String {
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if [help, ErrorKind::MissingSubcommand].contains(&said.kind()) {
        return "a command is missing; zk-lock --help lists them".to_owned();
    }
    let text = said.to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = what.trim_start_matches("error:").split_whitespace().collect();
    words.join(" ")
}

fn command(cli: &Cli, output: &Output) -> Result<u8, Failure> {
    match &cli.command {
        Command::Run(args) => run::run(&cli.common, args, output),
        Command::Elect(args) if args.observe => inspect::watch::observe(
            &cli.common,
            &WatchArgs { path: args.path.clone(), duration: args.duration },
            output,
        ),
        Command::Elect(args) => run::elect::elect(&cli.common, args, output),
        Command::Ls(args) => inspect::list::run(&cli.common, args, output),
        Command::Show(args) => inspect::show::run(&cli.common, args, output),
        Command::Watch(args) => inspect::watch::run(&cli.common, args, output),
        Command::Wait(args) => inspect::wait::run(&cli.common, args, output),
        Command::Revoke(args) => inspect::free::revoke(&cli.common, args, output),
        Command::Break(args) => inspect::free::break_lock(&cli.common, args, output),
        Command::History(args) => inspect::history::run(&cli.common, args, output),
        Command::Permits(args) => inspect::permits::run(&cli.common, args, output),
        Command::Forget(args) => inspect::forget::run(&cli.common, args, output),
        Command::Doctor(args) => inspect::doctor::run(&cli.common, args, output),
        Command::Export(args) => export::export(&cli.common, args, output),
        Command::Bench(args) => inspect::bench::run(&cli.common, args, output),
        Command::Man(args) => pages::man(args),
        Command::Completions { shell } => pages::completions(*shell),
        Command::Schema => pages::schema(),
    }
}
