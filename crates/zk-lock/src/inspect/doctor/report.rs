//! What was found, and how it is told.

use serde_json::json;

use crate::exit::{Failure, NOTHING};
use crate::output::Output;

/// So many places of one finding are named.
const MOST: usize = 5;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Ok,
    /// Worth knowing.
    Note,
    /// It works, but not as well or as safely as it could.
    Warning,
    /// Locks do not work, or are not safe.
    Fault,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Fault => "FAULT",
        }
    }
}

pub struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    advice: String,
}

#[derive(Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(check, Level::Ok, text, "");
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn add(
        &mut self,
        check: &'static str,
        level: Level,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.0.push(Finding { check, level, text: text.into(), advice: advice.into() });
    }

    /// Adds what was found at many places: each of the first ones, and how many more there are.
    pub fn places(
        &mut self,
        check: &'static str,
        level: Level,
        texts: &[String],
        advice: &'static str,
    ) {
        for text in texts.iter().take(MOST) {
            self.add(check, level, text, advice);
        }
        if let Some(more @ 1..) = texts.len().checked_sub(MOST) {
            self.add(check, level, format!("and {more} more of that"), advice);
        }
    }
}

pub fn report(findings: &Findings, output: &Output) -> Result<u8, Failure> {
    for Finding { check, level, text, advice } in &findings.0 {
        if output.json {
            let level = level.name().to_lowercase();
            let fields = json!({"check": check, "level": level, "text": text, "advice": advice});
            output.report("finding", fields, "")?;
            continue;
        }
        output.result(&format!("{:<8} {check:<11} {text}", level.name()))?;
        if !advice.is_empty() {
            output.result(&format!("{:20} -> {advice}", ""))?;
        }
    }
    let has_fault = findings.0.iter().any(|finding| finding.level == Level::Fault);
    Ok(if has_fault { NOTHING } else { 0 })
}
