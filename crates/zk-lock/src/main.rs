//! `zk-lock`: locks over ZooKeeper for scripts, cron jobs and operators.
//!
//! `cli.rs` has the arguments, `run/` runs a command under a lock, `inspect/` has the commands that
//! show and free locks, and `nodes/` reads what stands at a path. README.md of this crate shows each command.

mod cli;
mod connect;
mod exit;
mod inspect;
mod nodes;
mod output;
mod paths;
mod run;
mod time;
mod zk;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, WatchArgs};
use crate::exit::{Failure, USAGE};
use crate::output::Output;

fn main() -> ExitCode {
    // The two helpers of `run` are this program under other names; they need none of the rest.
    if let Some(code) = run::helper() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => {
            let _ = said.print();
            return if said.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let output = Output::new(&cli.common);
    match command(&cli, &output) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output.failed(&failure);
            ExitCode::from(failure.code)
        }
    }
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
        Command::Revoke(args) => inspect::free::revoke(&cli.common, args, output),
        Command::Break(args) => inspect::free::break_lock(&cli.common, args, output),
        Command::History(args) => inspect::history::run(&cli.common, args, output),
        Command::Permits(args) => inspect::permits::run(&cli.common, args, output),
        Command::Forget(args) => inspect::forget::run(&cli.common, args, output),
        Command::Doctor(args) => inspect::doctor::run(&cli.common, args, output),
        Command::Bench(args) => inspect::bench::run(&cli.common, args, output),
        Command::Man => cli::print_man(),
        Command::Completions { shell } => cli::print_completions(*shell),
    }
}
