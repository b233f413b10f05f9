//! The run that the command line asks for.

use std::fmt;
use std::path::PathBuf;

use zk_mutex_sim::file;
use zk_mutex_sim::scenario::{Mode, Scenario};

use crate::number;

/// More faults than any plan has.
const LAST: usize = 1_000_000;

/// One run, as the command line asks for it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The source of the scenario.
    pub source: Source,
    /// Only these faults of its plan.
    pub faults: Option<Vec<usize>>,
    /// Decides everything that the scenario leaves open.
    pub chance: Option<u64>,
    /// The run fails on purpose once these faults were injected.
    pub planted: Vec<usize>,
}

/// The source of a scenario.
#[derive(Clone, Debug)]
pub enum Source {
    /// It is made from a seed.
    Seed(u64, Mode),
    /// It was written to a file.
    File(PathBuf),
}

impl Asked {
    /// The whole run of this seed.
    pub fn whole(seed: u64, mode: Mode, planted: &[usize]) -> Asked {
        Asked {
            source: Source::Seed(seed, mode),
            faults: None,
            chance: None,
            planted: planted.to_vec(),
        }
    }

    /// The scenario to play.
    pub fn scenario(&self) -> Result<Scenario, String> {
        let mut scenario = match &self.source {
            Source::Seed(seed, mode) => Scenario::of(*seed, *mode),
            Source::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|e| format!("{}: {e}", path.display()))?;
                file::read(&text).map_err(|e| format!("{}: {e}", path.display()))?
            }
        };
        scenario.chance = self.chance.unwrap_or(scenario.chance);
        let is_kept =
            |number: &usize| self.faults.as_ref().is_none_or(|kept| kept.contains(number));
        let plan = &mut scenario.plan.0;
        if !self.planted.is_empty() && self.planted.iter().all(is_kept) {
            scenario.planted =
                self.planted.iter().filter_map(|number| Some(plan.get(*number)?.0)).max();
        }
        let mut numbers = 0..;
        plan.retain(|_| numbers.next().is_some_and(|number| is_kept(&number)));
        Ok(scenario)
    }

    /// The arguments with which this program plays this run.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = match &self.source {
            Source::Seed(seed, Mode::Usual) => vec!["--play".to_owned(), seed.to_string()],
            Source::Seed(seed, mode) => {
                vec![
                    "--play".to_owned(),
                    seed.to_string(),
                    "--mode".to_owned(),
                    mode.name().to_owned(),
                ]
            }
            Source::File(path) => vec!["--plan".to_owned(), path.display().to_string()],
        };
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if let Some(faults) = &self.faults {
            add("--faults", list(faults));
        }
        if let Some(chance) = self.chance {
            add("--chance", chance.to_string());
        }
        if !self.planted.is_empty() {
            add("--planted", list(&self.planted));
        }
        arguments
    }
}

impl fmt::Display for Asked {
    /// Writes the command that plays this run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tests/simulate")?;
        for argument in self.arguments() {
            // The list of faults may be empty.
            let quotes = if argument.is_empty() { "''" } else { "" };
            write!(f, " {argument}{quotes}")?;
        }
        Ok(())
    }
}

/// Numbers on the command line: `0,3,5-9`.
pub fn numbers(list: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (number(first)?, number(last)?);
        if first > last || last > LAST {
            return Err(format!("{part:?} is not a range of faults"));
        }
        all.extend(first..=last);
    }
    Ok(all)
}

/// The list of these numbers for [`numbers`]. Three or more in a row become a range.
fn list(numbers: &[usize]) -> String {
    let rows = numbers.chunk_by(|number, next| number + 1 == *next);
    let parts = rows.flat_map(|row| match row {
        [first, _, .., last] => vec![format!("{first}-{last}")],
        _ => row.iter().map(usize::to_string).collect(),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for (all, told) in [
            (vec![], ""),
            (vec![7], "7"),
            (vec![5, 20], "5,20"),
            (vec![3, 4], "3,4"),
            (vec![3, 4, 5], "3-5"),
            ((0..2_585).collect(), "0-2584"),
            (vec![0, 1, 2, 9, 11, 12, 13, 14], "0-2,9,11-14"),
        ] {
            assert_eq!(list(&all), told);
            assert_eq!(numbers(told).unwrap(), all);
        }
        assert_eq!(numbers("4-4,1-2").unwrap(), [4, 1, 2]);
    }

    #[test]
    fn an_invalid_list_of_numbers_is_refused() {
        for told in ["x", "1-", "-1", "1-2-3", "5-3", "0-18446744073709551615", "1..3"] {
            assert!(numbers(told).is_err(), "{told}");
        }
    }
}
