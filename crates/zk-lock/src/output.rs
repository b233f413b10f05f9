//! What the program says: text for people, or one JSON object a line.
//!
//! Results go to stdout. What happens on the way goes to stderr, since the stdout of `run` is its
//! command's.

use std::io::{self, IsTerminal, Write};

use log::LevelFilter;
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::exit::Failure;

/// How the program speaks.
#[derive(Clone, Debug)]
pub struct Output {
    pub json: bool,
    level: LevelFilter,
}

impl Output {
    pub fn new(common: &Common) -> Output {
        let level = match (common.quiet, common.verbose) {
            (true, _) => LevelFilter::Error,
            (_, 0) => LevelFilter::Warn,
            (_, 1) => LevelFilter::Info,
            _ => LevelFilter::Debug,
        };
        let json = common.json;
        // The messages of the client crate are of no use to an operator.
        let filter = std::env::var("RUST_LOG")
            .unwrap_or_else(|_| format!("off,zk_mutex={level},zk_session={level}"));
        let mut logger = env_logger::Builder::new();
        logger.parse_filters(&filter).format(move |to, record| {
            if json {
                let level = record.level().as_str().to_lowercase();
                let line =
                    json!({"event": "log", "level": level, "message": record.args().to_string()});
                writeln!(to, "{line}")
            } else {
                writeln!(to, "zk-lock: {}", record.args())
            }
        });
        let _ = logger.try_init();
        Output { json, level }
    }

    /// Something happened of which operators should see a line in any case but `--quiet`.
    pub fn warn(&self, event: &str, text: &str, fields: Value) {
        self.tell(LevelFilter::Warn, event, text, fields);
    }

    /// A step that is of interest with `--verbose`, and for programs that read `--json`.
    pub fn note(&self, event: &str, text: &str, fields: Value) {
        let level = if self.json { LevelFilter::Warn } else { LevelFilter::Info };
        self.tell(level, event, text, fields);
    }

    /// For a person in front of a terminal: shown there, or with `--verbose`.
    pub fn hint(&self, event: &str, text: &str, fields: Value) {
        let is_seen = self.json || io::stderr().is_terminal();
        let level = if is_seen { LevelFilter::Warn } else { LevelFilter::Info };
        self.tell(level, event, text, fields);
    }

    pub fn failed(&self, failure: &Failure) {
        let fields = json!({"kind": failure.kind, "status": failure.code});
        self.tell(LevelFilter::Error, "failed", &failure.message, fields);
    }

    fn tell(&self, level: LevelFilter, event: &str, text: &str, fields: Value) {
        if level > self.level {
            return;
        }
        let line = if self.json {
            let mut all = Map::new();
            all.insert("event".to_owned(), event.into());
            all.insert("message".to_owned(), text.into());
            if let Value::Object(fields) = fields {
                all.extend(fields);
            }
            Value::Object(all).to_string()
        } else {
            format!("zk-lock: {text}")
        };
        // In one write: lines of several processes share a log.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }

    /// A result. A reader that has gone (`zk-lock ls | head`) is no failure.
    pub fn result(&self, line: &str) -> Result<(), Failure> {
        match io::stdout().write_all(format!("{line}\n").as_bytes()) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            Err(e) => Err(Failure::system(format!("cannot write the result: {e}"))),
        }
    }
}

/// Rows of cells as columns, each as wide as its widest cell; the last is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["A", "B"]), row(["long", "é"])]), "A     B\nlong  é");
        assert_eq!(table(&[]), "");
    }
}
