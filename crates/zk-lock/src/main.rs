//! `zk-lock`: locks over ZooKeeper for scripts, cron jobs and operators.
//!
//! `cli.rs` has the arguments, `run/` runs a command under a lock, `look/` has the commands that
//! show and free locks. README.md of this crate shows each command.

mod cli;
mod connect;
mod exit;
mod output;
mod run;
mod time;
mod zk;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
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
        Command::Man => cli::print_man(),
        Command::Completions { shell } => cli::print_completions(*shell),
    }
}
