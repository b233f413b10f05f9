//! Makes the copies of the library's parts: one unchanged copy for each engine, and one for each
//! mutant, in which a little code is replaced. In each copy `crate::` means the copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[path = "../copies.rs"]
mod copies;
#[path = "src/mutants.rs"]
#[allow(dead_code)] // this script does not use how a mutant is found
mod mutants;

use copies::{Files, Library, edit, emptied, read, write};

/// The library's own files: the ends of their paths.
const LIBRARY: &[&str] = &[
    "cancel.rs",
    "clock.rs",
    "error.rs",
    "zk_session/error.rs",
    "keep.rs",
    "local/lock.rs",
    "limit.rs",
    "local/queue.rs",
    "reentry.rs",
    "process.rs",
    "held_node.rs",
    "revoke_signal.rs",
    "notifier.rs",
    "lease/heard.rs",
    "lease/node.rs",
    "lease/mod.rs",
    "signal.rs",
];

/// The files of `copy/`: replacements for the rest of the library, and the scenarios.
const OWN: &[&str] = &[
    "local/mod.rs",
    "mod.rs",
    "queue/mod.rs",
    "queue/name.rs",
    "queue/tally.rs",
    "queue/request.rs",
    "scenarios/notifier.rs",
    "scenarios/local_lock.rs",
    "scenarios/lease.rs",
    "scenarios/mod.rs",
    "scenarios/queue.rs",
    "scenarios/reentry.rs",
    "scenarios/signal.rs",
    "zk_session/generation.rs",
    "zk_session/mod.rs",
    "zk_session/retry.rs",
    "zk_session/world.rs",
];

/// The files that the scenarios of one kind need; mutants of these scenarios get only these files.
/// A scenario that is not listed gets all files.
const NEEDED: &[(&str, &[&str])] = &[
    (
        "queue",
        &[
            "cancel.rs",
            "limit.rs",
            "local/queue.rs",
            "queue/name.rs",
            "scenarios/queue.rs",
            "signal.rs",
            "zk_session/retry.rs",
            "zk_session/world.rs",
        ],
    ),
    (
        "notifier",
        &[
            "cancel.rs",
            "limit.rs",
            "scenarios/notifier.rs",
            "notifier.rs",
            "signal.rs",
            "zk_session/retry.rs",
            "zk_session/world.rs",
        ],
    ),
    (
        "signal",
        &[
            "cancel.rs",
            "limit.rs",
            "scenarios/signal.rs",
            "signal.rs",
            "zk_session/retry.rs",
            "zk_session/world.rs",
        ],
    ),
    (
        "lease",
        &[
            "cancel.rs",
            "clock.rs",
            "zk_session/error.rs",
            "limit.rs",
            "process.rs",
            "scenarios/lease.rs",
            "notifier.rs",
            "zk_session/generation.rs",
            "lease/heard.rs",
            "lease/node.rs",
            "lease/mod.rs",
            "signal.rs",
            "zk_session/retry.rs",
            "zk_session/world.rs",
        ],
    ),
    ("reentry", &["reentry.rs", "scenarios/reentry.rs", "zk_session/world.rs"]),
];

/// Uses of the standard library that the engine must see, and their replacements.
const SEEN: &[(&str, &str)] = &[
    ("use std::sync::{Arc, OnceLock};", "use std::sync::Arc;\nuse crate::world::OnceLock;"),
    ("use std::sync::atomic::", "use crate::world::atomic::"),
    // The tests in the library's files are never compiled in the copies.
    ("#[cfg(test)]", "#[cfg(any())]"),
    ("#[cfg(any(test, feature = \"test\"))]", "#[cfg(any())]"),
    ("#[cfg(any(test, feature = \"test\", zk_sim))]", "#[cfg(any())]"),
    ("#[cfg(any(feature = \"test\", zk_sim))]", "#[cfg(any())]"),
    // loom's atomics have no such method. No other thread can access the value at this point.
    ("*self.is_released.get_mut()", "self.is_released.load(Ordering::Relaxed)"),
];

fn main() {
    let here =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where we are"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to write"));
    let own = here.join("copy");
    for path in
        [&own, &here.join("build.rs"), &here.join("../copies.rs"), &here.join("src/mutants.rs")]
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let library = Library::read(&here.join("../.."));
    // The files of a copy: the names that `NEEDED` has for them, with their places.
    let of_library = LIBRARY.iter().map(|&end| (end, library.file(end)));
    let places: BTreeMap<&str, &str> = of_library
        .clone()
        .map(|(end, (place, _))| (end, place))
        .chain(OWN.iter().map(|&place| (place, place)))
        .collect();
    let mut unchanged: Files =
        of_library.map(|(_, (place, text))| (place.to_owned(), text.to_owned())).collect();
    for &place in OWN {
        unchanged.insert(place.to_owned(), library.taken_over(&read(&own.join(place))));
    }
    let mut copies = String::new();
    let faithful = ["loom", "shuttle"].map(|engine| (format!("{engine}_copy"), engine, None));
    let broken = mutants::ALL.iter().map(|m| (format!("mutant_{}", m.name), m.engine, Some(m)));
    for (name, engine, mutant) in faithful.into_iter().chain(broken) {
        let dir = emptied(out.join(&name));
        let needed: Option<Vec<&str>> = mutant
            .and_then(|mutant| mutant.scenario.split_once("::"))
            .and_then(|(kind, _)| NEEDED.iter().find(|(needs, _)| *needs == kind))
            .map(|(_, files)| files.iter().map(|file| places[file]).collect());
        let is_needed = |place: &str| needed.as_ref().is_none_or(|needed| needed.contains(&place));
        let mut files = unchanged.clone();
        for &of in mutant.iter().flat_map(|mutant| mutant.edits) {
            let place = edit(&mut files, of, &name);
            assert!(is_needed(&place), "{name}: NEEDED leaves {place} out");
        }
        for (place, mut text) in files.into_iter().filter(|(place, _)| is_needed(place)) {
            if !OWN.contains(&&*place) {
                for (plain, seen) in SEEN {
                    text = text.replace(plain, seen);
                }
            }
            text = library.with_paths(&place, &text, &name);
            if place == "mod.rs" {
                text += &engine_of(engine);
            }
            write(&dir.join(place), &text);
        }
        if let Some(needed) = needed {
            modules(&dir, &needed, &engine_of(engine));
        }
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
        // A folder inside of this has a `mod.rs` of the library.
        let name = name.split('/').next().unwrap_or_default();
        let (modules, module) = (all.entry(place).or_default(), format!("pub mod {name};\n"));
        if !modules.contains(&module) {
            *modules += &module;
        }
        if name == "error" {
            *all.entry(place).or_default() += "pub(crate) use self::error::{Error, Result};\n";
        }
    }
    let places: Vec<&str> = all.keys().copied().filter(|place| !place.is_empty()).collect();
    for place in places {
        *all.entry("").or_default() += &format!("pub mod {place};\n");
    }
    for (place, mut text) in all {
        if place == "zk_session" {
            let modules = text.lines().filter_map(|line| line.strip_prefix("pub mod "));
            let parts: Vec<&str> = modules.map(|module| module.trim_end_matches(';')).collect();
            text += &unstable(&parts);
        }
        write(&dir.join(place).join("mod.rs"), &text);
    }
}

/// What the library's files take from the session beside its face: all of these modules.
fn unstable(modules: &[&str]) -> String {
    let uses = modules.iter().map(|module| match *module {
        "error" => "    pub use super::error::{At, CLOSE};\n".to_owned(),
        module => format!("    pub use super::{module}::*;\n"),
    });
    format!("pub mod unstable {{\n{}}}\n", uses.collect::<String>())
}
