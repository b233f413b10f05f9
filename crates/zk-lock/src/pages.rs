//! What zk-lock says of itself: its man pages, its completions, and the schema of its JSON lines.

use std::io::Write;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::cli::{Cli, ManArgs, STATUSES};
use crate::exit::Failure;

/// Prints a man page, or writes all of them into a directory.
pub fn man(args: &ManArgs) -> Result<u8, Failure> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    if let Some(directory) = &args.to {
        for command in std::iter::once(&program).chain(program.get_subcommands()) {
            let file = directory.join(format!("{}.1", title(command)));
            std::fs::write(&file, page(&program, command)?)
                .map_err(|e| Failure::system(format!("{}: {e}", file.display())))?;
        }
        return Ok(0);
    }
    let command = match &args.command {
        None => &program,
        Some(name) => program.find_subcommand(name).ok_or_else(|| {
            Failure::usage(format!("there is no command {name}; zk-lock --help lists them"))
        })?,
    };
    print(&page(&program, command)?)
}

/// The man page of the program, or of one of its commands.
fn page(program: &Command, command: &Command) -> Result<Vec<u8>, Failure> {
    let is_program = command.get_name() == program.get_name();
    let version = program.get_version().unwrap_or_default();
    let command = command.clone().subcommand_help_heading("COMMANDS");
    let man = Man::new(command.clone()).source(format!("zk-lock {version}")).manual("zk-lock");
    let mut page = Vec::new();
    let mut render = || -> std::io::Result<()> {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        // clap_mangen's synopsis lists all options, and lacks the -- before a command.
        let usage = command.clone().render_usage().to_string();
        let mut synopsis = Roff::new();
        synopsis.control("SH", ["SYNOPSIS"]);
        synopsis.text([roman(usage.trim_start_matches("Usage: "))]);
        synopsis.to_writer(&mut page)?;
        man.render_description_section(&mut page)?;
        if is_program {
            man.render_subcommands_section(&mut page)?;
        }
        man.render_options_section(&mut page)?;
        let mut rest = Roff::new();
        rest.control("SH", ["EXIT STATUS"]);
        for (status, meaning) in STATUSES {
            entry(&mut rest, status, meaning);
        }
        rest.control("SH", ["FILES"]);
        for file in ["$XDG_CONFIG_HOME/zk-lock.toml", "~/.config/zk-lock.toml", "/etc/zk-lock.toml"]
        {
            entry(&mut rest, file, "the first of these that exists has the settings; see --config");
        }
        rest.control("SH", ["SEE ALSO"]);
        let others = std::iter::once(program).chain(program.get_subcommands());
        let others = others.map(title).filter(|other| *other != title(&command));
        let others: Vec<String> = others.map(|other| format!("{other}(1)")).collect();
        rest.text([roman(others.join(", "))]);
        rest.to_writer(&mut page)
    };
    render().map_err(|e| Failure::system(format!("the man page: {e}")))?;
    Ok(page)
}

fn entry(page: &mut Roff, head: &str, text: &str) {
    let head: Inline = bold(head);
    page.control("TP", []).text([head]).text([roman(text)]);
}

/// The name of a page: zk-lock, or zk-lock-run.
fn title(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

pub fn completions(shell: Shell) -> Result<u8, Failure> {
    let (mut command, mut script) = (Cli::command(), Vec::new());
    if shell == Shell::Bash {
        // clap_complete's script for bash knows no command of a program that has a '-' in its name
        // (clap-rs/clap#6421). So it is made for another name, and serves this one.
        generate(shell, &mut command, "zk_lock", &mut script);
        let text = String::from_utf8_lossy(&script);
        return print(text.replace("default zk_lock\n", "default zk-lock\n").as_bytes());
    }
    if shell == Shell::Zsh {
        // In zsh a ':' ends the name of a value, and clap_complete leaves it as it is.
        command = command.mut_args(|arg| match arg.get_value_names().and_then(<[_]>::first) {
            Some(name) if name.contains(':') => {
                let name = name.replace(':', "\\:");
                arg.value_name(name)
            }
            _ => arg,
        });
    }
    generate(shell, &mut command, "zk-lock", &mut script);
    print(&script)
}

/// The lines of `--json`, described as JSON Schema does it.
pub fn schema() -> Result<u8, Failure> {
    print(include_bytes!("../schema/zk-lock.schema.json"))
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    match std::io::stdout().write_all(text) {
        Ok(()) => Ok(0),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        Err(e) => Err(Failure::system(format!("cannot write the result: {e}"))),
    }
}
