//! Each message of the guide's page on errors is what a real failure prints.
//!
//! Each scenario has some variants of the error. It makes their failures, and compares what these
//! print with all rows of those variants on the page.
use super::{holds, servers, settings};
use crate::support::scenarios;
use std::{collections::BTreeSet, fmt};
use zk_mutex::{Cause, Error, HostFailure};

const PAGE: &str = include_str!("../../../src/guide/errors.md");
const SOURCE: &str = include_str!("../../../src/error.rs");
/// Most failures are those of a lock with this path.
pub const LOCK: &str = "/locks/orders";

// ---- the page ----

/// A row of the page's table, without its words on the cause and on what to do. They are for people.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    variant: String,
    message: String,
    is_transient: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | `{}` | .. | {} |", self.variant, self.message, self.is_transient)
    }
}

/// All rows: variant, message, cause, what to do, whether it is transient.
#[track_caller]
fn page() -> Vec<Row> {
    let row = |line: &str| {
        let cells: Vec<&str> =
            line.strip_prefix("| [`")?.strip_suffix(" |")?.split(" | ").collect();
        let [variant, message, cause, advice, is_transient] = cells[..] else {
            panic!("not five cells: {line}");
        };
        assert!(!cause.is_empty() && !advice.is_empty(), "{line}");
        Some(Row {
            variant: variant.split_once('`').expect("a link").0.to_owned(),
            message: message.trim_matches('`').to_owned(),
            is_transient: is_transient.to_owned(),
        })
    };
    PAGE.lines().filter_map(row).collect()
}

// ---- the failures ----

/// What the failures of one scenario print.
pub struct Failures {
    variants: &'static [&'static str],
    printed: BTreeSet<Row>,
}

impl Failures {
    /// The scenario makes all failures of these variants.
    pub fn of(variants: &'static [&'static str]) -> Failures {
        Failures { variants, printed: BTreeSet::new() }
    }

    /// Takes an error that a failure has given. `hidden`: texts that differ from run to run, each
    /// with the page's word for it.
    #[track_caller]
    pub fn add(&mut self, error: &Error, hidden: &[(&str, &str)]) {
        self.add_line(&line(error, hidden));
    }

    /// Takes a line that [`line`] has made, maybe in another process.
    #[track_caller]
    pub fn add_line(&mut self, line: &str) {
        let parts: Vec<&str> = line.split('\t').collect();
        let [variant, is_transient, message] = parts[..] else { panic!("{line:?}") };
        assert!(self.variants.contains(&variant), "of another scenario: {line}");
        let [variant, message, is_transient] =
            [variant, message, is_transient].map(ToOwned::to_owned);
        self.printed.insert(Row { variant, message, is_transient });
    }

    /// Takes an error that no failure of this scenario gives, for the reason in the comment at the
    /// call. Only its text is compared.
    #[track_caller]
    pub fn not_made(&mut self, error: &Error, hidden: &[(&str, &str)]) {
        self.add(error, hidden);
    }

    /// Compares what was printed with the page.
    #[track_caller]
    pub fn check(self) {
        let rows = page().into_iter().filter(|row| self.variants.contains(&row.variant.as_str()));
        let rows: BTreeSet<Row> = rows.collect();
        let shown = |some: Vec<&Row>| {
            some.iter().map(|row| format!("  {row}")).collect::<Vec<_>>().join("\n")
        };
        let missing: Vec<&Row> = self.printed.difference(&rows).collect();
        let unprinted: Vec<&Row> = rows.difference(&self.printed).collect();
        assert!(
            missing.is_empty() && unprinted.is_empty(),
            "src/guide/errors.md has no row for what failures print:\n{}\nand no failure prints its rows:\n{}",
            shown(missing),
            shown(unprinted)
        );
    }
}

/// An error on one line: its variant, whether it is transient, and its message.
pub fn line(error: &Error, hidden: &[(&str, &str)]) -> String {
    let debug = format!("{error:?}");
    let variant = debug.split(' ').next().unwrap_or_default();
    let message = hidden.iter().fold(error.to_string(), |message, (text, word)| {
        if text.is_empty() { message } else { message.replace(text, word) }
    });
    let is_transient = if error.is_transient() { "yes" } else { "no" };
    format!("{variant}\t{is_transient}\t{message}")
}

#[track_caller]
pub fn failed<T>(result: Result<T, Error>) -> Error {
    match result {
        Ok(_) => panic!("it did not fail"),
        Err(e) => e,
    }
}

/// What hides the hosts of an error.
#[track_caller]
pub fn hosts(error: &Error) -> Vec<(String, &'static str)> {
    let hosts = match error {
        Error::Connect { hosts, .. } | Error::Unavailable { cause: Cause::Outage(hosts), .. } => {
            hosts
        }
        other => panic!("{other:?}"),
    };
    assert!(!hosts.is_empty(), "{error:?}");
    hosts.iter().map(|host: &HostFailure| (host.to_string(), "HOST: REASON")).collect()
}

/// An entry for each text, as [`Failures::add`] takes it.
pub fn all<'a>(texts: &'a [(String, &'static str)]) -> Vec<(&'a str, &'a str)> {
    texts.iter().map(|(text, word)| (text.as_str(), *word)).collect()
}

// ---- the variants ----

/// A variant without a scenario could have any rows.
fn each_variant_has_rows_and_a_scenario() {
    let body = SOURCE.split_once("pub enum Error {").unwrap().1.split_once("\n}\n").unwrap().0;
    let variants: Vec<&str> =
        body.lines().filter_map(|line| line.strip_prefix("    ")?.strip_suffix(" {")).collect();
    let mut on_the_page: Vec<String> = page().into_iter().map(|row| row.variant).collect();
    on_the_page.dedup();
    assert_eq!(on_the_page, variants, "the variants on the page, in their order");
    let scenarios = [settings::VARIANTS, servers::VARIANTS, holds::VARIANTS].concat();
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(sorted(scenarios), sorted(variants), "the variants of scenarios");
}

scenarios![each_variant_has_rows_and_a_scenario on none];
