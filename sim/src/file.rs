//! A scenario as a file. It stays the same when the choices of seeds change. The first line has
//! everything but the faults; each further line has one fault and its time. Lines that begin with
//! `#` are for people. Parts that are missing in the first line are chosen by its seed, so a file
//! that is older than a part of the scenario can still be played. So can a file that is older than
//! the removal of a recipe's setting: such a setting is ignored.

use serde_json::Value;

use crate::faults::Plan;
use crate::scenario::Scenario;

/// The text of this scenario's file.
pub fn write(scenario: &Scenario) -> serde_json::Result<String> {
    let mut lines = vec![serde_json::to_string(scenario)?];
    for fault in &scenario.plan.0 {
        lines.push(serde_json::to_string(fault)?);
    }
    Ok(lines.join("\n") + "\n")
}

/// The scenario of a file with this text, or a description of the error.
pub fn read(text: &str) -> Result<Scenario, String> {
    let is_read = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
    let mut lines = text.lines().enumerate().filter(is_read);
    let (_, first) = lines.next().ok_or("there is nothing in it")?;
    let mut scenario = scenario(first).map_err(|e| format!("its scenario: {e}"))?;
    let faults = lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|e| format!("line {}: {e}", number + 1))
        })
        .collect::<Result<_, String>>()?;
    scenario.plan = Plan(faults);
    Ok(scenario)
}

fn scenario(line: &str) -> Result<Scenario, String> {
    let said: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let seed = said["seed"].as_u64().ok_or("it has no seed")?;
    let mode = serde_json::from_value(said["mode"].clone()).map_err(|e| e.to_string())?;
    // A file without this part is older than it, and plays what it played then.
    let chosen = match (&said["job"]["closes"], &said["names"], &said["job"]["remakes"]) {
        (Value::Null, ..) => Scenario::older(seed, mode),
        (_, Value::Null, _) => Scenario::before_names(seed, mode),
        (.., Value::Null) => Scenario::before_life(seed, mode),
        _ => Scenario::of(seed, mode),
    };
    let mut whole = serde_json::to_value(chosen).map_err(|e| e.to_string())?;
    replace(&mut whole, said)?;
    serde_json::from_value(whole).map_err(|e| e.to_string())
}

/// Replaces the seed's choices by those of the file, part by part.
fn replace(chosen: &mut Value, said: Value) -> Result<(), String> {
    match (chosen, said) {
        (Value::Object(chosen), Value::Object(said)) => {
            for (name, said) in said {
                let chosen =
                    chosen.get_mut(&name).ok_or_else(|| format!("{name:?} means nothing"))?;
                replace(chosen, said)?;
            }
        }
        (chosen, said) => *chosen = said,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Mode;

    #[test]
    fn a_scenario_is_read_as_it_was_written() {
        for (seed, mode) in (0..50).flat_map(|seed| [(seed, Mode::Usual), (seed, Mode::Drift)]) {
            let scenario = Scenario::of(seed, mode);
            let text = write(&scenario).unwrap();
            let commented = format!("# what it is for\n\n{text}");
            assert_eq!(format!("{:?}", read(&commented).unwrap()), format!("{scenario:?}"));
        }
    }

    #[test]
    fn missing_parts_of_a_file_come_from_its_seed() {
        let scenario =
            read(r#"{"seed": 3, "mode": "usual", "chance": 7, "mix": {"locks": 9}}"#).unwrap();
        let mut expected = Scenario::older(3, Mode::Usual);
        (expected.chance, expected.mix.locks, expected.plan) = (7, 9, Plan::default());
        assert_eq!(format!("{scenario:?}"), format!("{expected:?}"));
    }

    #[test]
    fn a_setting_that_a_recipe_has_no_more_is_ignored() {
        let written = (0..)
            .map(|seed| write(&Scenario::of(seed, Mode::Usual)).unwrap())
            .find(|text| text.contains("\"watches_parent\":false"))
            .unwrap();
        let older = written
            .replace("\"watches_parent\":false", "\"watches_parent\":false,\"persists\":true");
        assert_eq!(format!("{:?}", read(&older)), format!("{:?}", read(&written)));
    }

    #[test]
    fn an_invalid_scenario_is_refused_with_its_place() {
        let text = write(&Scenario::of(1, Mode::Usual)).unwrap();
        assert!(read("").is_err_and(|e| e == "there is nothing in it"));
        assert!(read("{}").is_err_and(|e| e == "its scenario: it has no seed"));
        let unknown = r#"{"seed": 3, "mode": "usual", "mix": {"tock": 1}}"#;
        assert!(read(unknown).is_err_and(|e| e == "its scenario: \"tock\" means nothing"));
        assert!(
            read(&format!("{}\nfault\n", text.lines().next().unwrap()))
                .is_err_and(|e| e.starts_with("line 2"))
        );
    }
}
