//! Makes the copies of the library's parts: one unchanged copy for each engine, and one for each
//! mutant, in which a piece of text is replaced. In each copy `crate::` means the copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[path = "../copies.rs"]
mod copies;
#[path = "src/mutants.rs"]
#[allow(dead_code)] // this script does not use how a mutant is found
mod mutants;

use copies::{found, read, taken_over, write};

/// The library's own files, with their places in `src/` and in a copy.
const LIBRARY: &[&str] = &[
    "cancel.rs",
    "clock.rs",
    "error.rs",
    "local/keep.rs",
    "local/lock.rs",
    "limit.rs",
    "local/queue.rs",
    "local/reentry.rs",
    "local/turn.rs",
    "process.rs",
    "queue/held_node.rs",
    "session/notifier.rs",
    "session/leased_node.rs",
    "session/lease.rs",
    "signal.rs",
    "wait.rs",
];

/// The files of `copy/`: replacements for the rest of the library, and the scenarios.
const OWN: &[&str] = &[
    "local/mod.rs",
    "mod.rs",
    "queue/call.rs",
    "queue/mod.rs",
    "queue/name.rs",
    "scenarios/notifier.rs",
    "scenarios/local_lock.rs",
    "scenarios/lease.rs",
    "scenarios/mod.rs",
    "scenarios/queue.rs",
    "scenarios/reentry.rs",
    "scenarios/signal.rs",
    "session/generation.rs",
    "session/mod.rs",
    "stats.rs",
    "world.rs",
];

/// The files that the scenarios of one kind need; mutants of these scenarios get only these files.
/// A scenario that is not listed gets all files.
const NEEDED: &[(&str, &[&str])] = &[
    (
        "queue",
        &["cancel.rs", "limit.rs", "local/queue.rs", "scenarios/queue.rs", "signal.rs", "world.rs"],
    ),
    (
        "notifier",
        &[
            "cancel.rs",
            "limit.rs",
            "scenarios/notifier.rs",
            "session/notifier.rs",
            "signal.rs",
            "world.rs",
        ],
    ),
    ("signal", &["cancel.rs", "limit.rs", "scenarios/signal.rs", "signal.rs", "world.rs"]),
    (
        "lease",
        &[
            "cancel.rs",
            "clock.rs",
            "error.rs",
            "limit.rs",
            "process.rs",
            "scenarios/lease.rs",
            "session/notifier.rs",
            "session/generation.rs",
            "session/leased_node.rs",
            "session/lease.rs",
            "signal.rs",
            "stats.rs",
            "wait.rs",
            "world.rs",
        ],
    ),
    ("reentry", &["local/reentry.rs", "scenarios/reentry.rs", "world.rs"]),
];

/// Uses of the standard library that the engine must see, and their replacements.
const SEEN: &[(&str, &str)] = &[
    ("use std::sync::{Arc, OnceLock};", "use std::sync::Arc;\nuse crate::world::OnceLock;"),
    ("use std::sync::atomic::", "use crate::world::atomic::"),
    // The tests in the library's files are never compiled in the copies.
    ("#[cfg(test)]", "#[cfg(any())]"),
    // loom's atomics have no such method. No other thread can access the value at this point.
    ("*self.is_released.get_mut()", "self.is_released.load(Ordering::Relaxed)"),
];

fn main() {
    let here =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where we are"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to write"));
    let (library, own) = (here.join("../../src"), here.join("copy"));
    for path in [
        &library,
        &own,
        &here.join("build.rs"),
        &here.join("../copies.rs"),
        &here.join("src/mutants.rs"),
    ] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let mut copies = String::new();
    let faithful = ["loom", "shuttle"].map(|engine| (format!("{engine}_copy"), engine, None));
    let broken = mutants::ALL.iter().map(|m| (format!("mutant_{}", m.name), m.engine, Some(m)));
    for (name, engine, mutant) in faithful.into_iter().chain(broken) {
        let dir = out.join(&name);
        let mut is_mutated = false;
        let needed = mutant
            .and_then(|mutant| mutant.scenario.split_once("::"))
            .and_then(|(kind, _)| NEEDED.iter().find(|(needs, _)| *needs == kind))
            .map(|(_, files)| *files);
        for (from, files) in [(&library, LIBRARY), (&own, OWN)] {
            for file in files {
                if needed.is_some_and(|needed| !needed.contains(file)) {
                    continue;
                }
                let mut text = read(&from.join(file));
                if let Some(mutant) = mutant
                    && mutant.file == *file
                {
                    let places = found(&text, mutant.from);
                    let [range] = &places[..] else {
                        panic!(
                            "mutant {}: its text is {} times in {file}",
                            mutant.name,
                            places.len()
                        );
                    };
                    text.replace_range(range.clone(), mutant.to);
                    is_mutated = true;
                }
                if from == &library {
                    for (plain, seen) in SEEN {
                        text = text.replace(plain, seen);
                    }
                }
                text = taken_over(&library, text);
                text = text.replace("crate::", &format!("crate::{name}::"));
                if *file == "mod.rs" {
                    text += &engine_of(engine);
                }
                write(&dir.join(file), &text);
            }
        }
        if let Some(needed) = needed {
            modules(&dir, needed, &engine_of(engine));
        }
        assert!(mutant.is_none() || is_mutated, "{name}: no such file");
        let path = dir.join("mod.rs");
        copies +=
            &format!("#[allow(dead_code, unused, clippy::all)]\n#[path = {path:?}]\nmod {name};\n");
    }
    copies += "\nfn scenarios(copy: &str) -> Option<&'static [Scenario]> {\n    match copy {\n";
    for engine in ["loom", "shuttle"] {
        copies += &format!("        \"{engine}_copy\" => Some({engine}_copy::scenarios::ALL),\n");
    }
    // Of a mutant's copy only the one scenario that finds it is compiled to the end.
    for mutants::Mutant { name, scenario, .. } in mutants::ALL {
        let one = format!("&[({scenario:?}, mutant_{name}::scenarios::{scenario})]");
        copies += &format!("        \"mutant_{name}\" => {{\n            ");
        copies += &format!("const ONE: &[Scenario] = {one};\n            Some(ONE)\n        }}\n");
    }
    copies += "        _ => None,\n    }\n}\n";
    write(&out.join("copies.rs"), &copies);
}

fn engine_of(engine: &str) -> String {
    format!("\nuse crate::engines::{engine} as engine;\n")
}

/// Writes the `mod.rs` of a copy that has only these files, and those of its directories.
fn modules(dir: &Path, files: &[&str], engine: &str) {
    let mut all: BTreeMap<&str, String> = BTreeMap::from([("", engine.to_owned())]);
    for file in files {
        let name = file.trim_end_matches(".rs");
        let (place, name) = name.split_once('/').unwrap_or(("", name));
        *all.entry(place).or_default() += &format!("pub mod {name};\n");
        if name == "error" {
            *all.entry(place).or_default() += "pub(crate) use self::error::{Error, Result};\n";
        }
    }
    let places: Vec<&str> = all.keys().copied().filter(|place| !place.is_empty()).collect();
    for place in places {
        *all.entry("").or_default() += &format!("pub mod {place};\n");
    }
    for (place, text) in all {
        write(&dir.join(place).join("mod.rs"), &text);
    }
}
