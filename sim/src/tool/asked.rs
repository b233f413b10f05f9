//! Which run to play.

use std::fmt;
use std::path::PathBuf;

use zk_mutex_sim::file;
use zk_mutex_sim::scenario::{Mode, Scenario};

/// One run, as the command line asks for it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where the scenario comes from.
    pub source: Source,
    /// These faults of its plan alone.
    pub faults: Option<Vec<usize>>,
    /// What chooses all that the scenario leaves open.
    pub chance: Option<u64>,
    /// Fails on purpose once these faults have struck.
    pub planted: Vec<usize>,
}

/// Where a scenario comes from.
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

    /// What is to be played.
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

    /// What to tell this program, so that it plays this run.
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
        let list =
            |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
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
    /// The command that plays it.
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
