//! Seeds are played in processes of their own, as `tests/simulate` does.

use std::collections::BTreeMap;
use std::process::Command;

/// What the simulation says of this seed with these faults of its plan.
fn play(seed: u64, faults: Option<&str>) -> BTreeMap<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zk-mutex-sim"));
    command.args(["play", "--seed", &seed.to_string()]);
    if let Some(faults) = faults {
        command.args(["--faults", faults]);
    }
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let head: Vec<&str> = told.lines().take(3).collect();
    assert!(output.status.success(), "{}", head.join("\n"));
    let words = String::from_utf8(output.stdout).unwrap();
    words.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

/// One that takes few steps.
const SHORT: u64 = 21;

#[test]
fn a_seed_is_the_same_run_each_time() {
    let (mut first, mut again) = (play(SHORT, None), play(SHORT, None));
    assert!(first.remove("processor").is_some() && again.remove("processor").is_some());
    assert_eq!(first, again);
    assert!(first["acquisitions"].parse::<u64>().unwrap() > 100);
}

#[test]
fn a_part_of_the_faults_is_another_run() {
    let (all, none) = (play(SHORT, None), play(SHORT, Some("")));
    assert_ne!(all["hash"], none["hash"]);
    assert!(none.keys().all(|key| !key.starts_with("fault:")));
    assert_eq!(none["lost"], "0", "without faults no lock is lost");
}
