//! What the program says: text for people, or one JSON object a line.
//!
//! Results go to stdout. What happens on the way goes to stderr, since the stdout of `run` is its
//! command's.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use log::LevelFilter;
use serde_json::{Map, Value, json};

use crate::cli::Common;
use crate::exit::{self, Failure};

/// The version of the JSON lines, which `schema/zk-lock.schema.json` describes. A new event or a
/// new member keeps it; a member that goes, or means something else, makes it greater.
const VERSION: u32 = 1;

/// How the program speaks.
#[derive(Clone, Debug)]
pub struct Output {
    pub json: bool,
    level: LevelFilter,
}

/// How this process speaks. Its helper processes write to the same stderr, in the same form.
static OWN: OnceLock<Output> = OnceLock::new();

/// In the library's lines about refused credentials. They end the program, which then says what to
/// do about them: one line is enough.
const REFUSED: &str = "the server refused ";

const JSON: &str = "json";
const TEXT: &str = "text";

/// The form of this process's lines, as a word for [`Output::of_helper`].
pub fn form() -> &'static str {
    if OWN.get().is_some_and(|own| own.json) { JSON } else { TEXT }
}

impl Output {
    pub fn new(common: &Common) -> Output {
        let level = match (common.quiet, common.verbose) {
            (true, _) => LevelFilter::Error,
            (_, 0) => LevelFilter::Warn,
            (_, 1) => LevelFilter::Info,
            _ => LevelFilter::Debug,
        };
        let output = Output { json: common.json, level };
        let _ = OWN.set(output.clone());
        // The messages of the client crate are of no use to an operator.
        let filter = std::env::var("RUST_LOG")
            .unwrap_or_else(|_| format!("off,zk_mutex={level},zk_session={level}"));
        let (mut logger, speaks) = (env_logger::Builder::new(), output.clone());
        logger.parse_filters(&filter).format(move |to, record| {
            let text = exit::in_options(&record.args().to_string());
            if level < LevelFilter::Info && text.contains(REFUSED) {
                return Ok(());
            }
            let level = record.level().as_str().to_lowercase();
            writeln!(to, "{}", speaks.line("log", &text, json!({"level": level})))
        });
        let _ = logger.try_init();
        output
    }

    /// The output of a program whose command line is wrong: nothing but its arguments is known.
    pub fn of_arguments<'a>(mut arguments: impl Iterator<Item = &'a OsStr>) -> Output {
        let json = arguments.any(|argument| argument == "--json");
        Output { json, level: LevelFilter::Error }
    }

    /// The output of a helper process, which gets the form from zk-lock.
    pub fn of_helper(form: &OsStr) -> Output {
        Output { json: form == JSON, level: LevelFilter::Warn }
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

    /// The work has failed while it was done: shown with `--quiet` too.
    pub fn error(&self, event: &str, text: &str, fields: Value) {
        self.tell(LevelFilter::Error, event, text, fields);
    }

    pub fn failed(&self, failure: &Failure) {
        let fields = json!({"kind": failure.kind, "status": failure.code});
        self.error("failed", &failure.message, fields);
    }

    fn tell(&self, level: LevelFilter, event: &str, text: &str, fields: Value) {
        if level > self.level {
            return;
        }
        // In one write: lines of several processes share a log.
        let line = self.line(event, text, fields);
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }

    /// A line for stderr.
    pub fn line(&self, event: &str, text: &str, mut fields: Value) -> String {
        if !self.json {
            return format!("zk-lock: {}", printable(text));
        }
        if let Value::Object(fields) = &mut fields {
            fields.insert("message".to_owned(), text.into());
        }
        object(event, fields)
    }

    /// A result: an object of this event, or lines of text.
    pub fn report(&self, event: &str, fields: Value, text: &str) -> Result<(), Failure> {
        if self.json { write(&object(event, fields)) } else { self.result(text) }
    }

    /// A result of one or more lines of text.
    pub fn result(&self, text: &str) -> Result<(), Failure> {
        write(&lines(text))
    }

    /// A result that replaces all that a terminal shows.
    pub fn screen(&self, text: &str) -> Result<(), Failure> {
        write(&format!("\x1b[H\x1b[2J{}", lines(text)))
    }
}

/// A line of JSON. Characters that a terminal would not show as they are stand in it in JSON's own
/// notation, which is the same text for a program that reads JSON.
fn object(event: &str, fields: Value) -> String {
    let mut all = Map::new();
    all.insert("v".to_owned(), VERSION.into());
    all.insert("event".to_owned(), event.into());
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    escape(&Value::Object(all).to_string(), |c, line| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            line.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

/// Writes to stdout. A reader that has gone (`zk-lock ls | head`) is no failure.
fn write(line: &str) -> Result<(), Failure> {
    match io::stdout().write_all(format!("{line}\n").as_bytes()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => Err(Failure::system(format!("cannot write the result: {e}"))),
    }
}

/// Text that may come from a node, as it can go to a terminal or a log. A character that shows
/// nothing, or that changes how others are shown (a control character, U+200B, U+202E), is written
/// `\u{202e}`. What was made so once stays as it is.
pub fn printable(text: &str) -> String {
    escape(text, |c, shown| shown.extend(c.escape_debug()))
}

/// The same of a text of several lines.
pub fn lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

fn escape(text: &str, write: impl Fn(char, &mut String)) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // The standard library knows which characters can be shown. Of these it escapes three.
        if matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1 {
            escaped.push(c);
        } else {
            write(c, &mut escaped);
        }
    }
    escaped
}

/// Rows of cells as columns, each as wide as its widest cell; the last is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
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
        assert_eq!(table(&[row(["a\nb", "c"]), row(["", "d"])]), "a\\nb  c\n      d");
    }

    #[test]
    fn what_a_terminal_would_not_show_is_escaped() {
        let shown = "a\\b 'c' \"d\" é 漢";
        assert_eq!(printable(shown), shown);
        let hostile =
            "a\u{202e}b\u{200b}c\u{2066}d\u{feff}e\u{ad}f\x1b[2Jg\r\n\u{9b}h\u{e0041}\u{180e}";
        let safe = printable(hostile);
        assert_eq!(
            safe,
            "a\\u{202e}b\\u{200b}c\\u{2066}d\\u{feff}e\\u{ad}f\\u{1b}[2Jg\\r\\n\\u{9b}h\\u{e0041}\\u{180e}"
        );
        assert_eq!(printable(&safe), safe);
        let line = object("lock", json!({"path": hostile}));
        assert!(line.contains("a\\u202eb\\u200bc"), "{line}");
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["path"], hostile);
    }
}
