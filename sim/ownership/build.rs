//! Makes the copies of the connection's machine: an unchanged one, and one for each weaker rule, in
//! which a little code is replaced. In each copy `crate::` means the copy, and the types of the
//! machine can be cloned and hashed, so that the search can keep and compare its states.

use std::path::PathBuf;

#[path = "../copies.rs"]
mod copies;
#[path = "src/rules.rs"]
#[allow(dead_code)] // this script uses the edits only
mod rules;

use copies::{Files, Library, edit, emptied, read, write};

/// The library's own files: the ends of their paths.
const LIBRARY: &[&str] = &[
    "acl.rs",
    "clock.rs",
    "zk_session/error.rs",
    "codec.rs",
    "machine/background.rs",
    "machine/ending.rs",
    "machine/late.rs",
    "machine/login.rs",
    "machine/looks.rs",
    "machine/mod.rs",
    "machine/removal.rs",
    "machine/requests.rs",
    "machine/server_side.rs",
    "machine/timing.rs",
    "heard.rs",
    "nonce.rs",
];

/// The files of `copy/`: replacements for the rest of the library, and the end at which the model
/// drives the machine.
const OWN: &[&str] = &["mod.rs", "zk_session/end.rs", "zk_session/mod.rs", "zk_session/world.rs"];

/// Types that get no `Clone` and `Hash` here: `copy/` has them, or no state has a value of them.
const LEFT_OUT: &[&str] =
    &["Answers", "BootTime", "Machine", "MachineConfig", "Operation", "Output", "SharedTime"];

fn main() {
    let here =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where we are"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where to write"));
    let own = here.join("copy");
    for path in
        [&own, &here.join("build.rs"), &here.join("../copies.rs"), &here.join("src/rules.rs")]
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let library = Library::read(&here.join("../.."));
    let (machine, _) = library.file("machine/mod.rs");
    let mut unchanged = Files::new();
    for (place, text) in LIBRARY.iter().map(|end| library.file(end)) {
        unchanged.insert(place.to_owned(), text.to_owned());
    }
    for &place in OWN {
        unchanged.insert(place.to_owned(), library.taken_over(&read(&own.join(place))));
    }
    let mut copies = String::new();
    let mut table = String::new();
    let weaker = rules::WEAKER.iter().map(|rule| (rule.name, Some(rule)));
    for (name, rule) in std::iter::once(("today", None)).chain(weaker) {
        let dir = emptied(out.join(name));
        let mut files = unchanged.clone();
        for &of in rule.iter().flat_map(|rule| rule.edits) {
            edit(&mut files, of, name);
        }
        for (place, mut text) in files {
            if !OWN.contains(&&*place) {
                text = with_derives(&text);
                // The tests in the library's files are never compiled in the copies.
                let fuzzed = "#[cfg(any(test, fuzzing))]";
                let measured = "#[cfg(any(test, fuzzing, feature = \"test\"))]";
                let counted = "#[cfg(any(feature = \"test\", zk_sim))]";
                for tests in ["#[cfg(test)]", fuzzed, measured, counted] {
                    text = text.replace(tests, "#[cfg(any())]");
                }
            }
            if place == machine {
                // A part of the machine, because it reads and sets the machine's own fields.
                text += &format!(
                    "\n#[path = {:?}]\npub(crate) mod end;\n",
                    dir.join("zk_session/end.rs")
                );
            }
            text = library.with_paths(&place, &text, name);
            write(&dir.join(place), &text.replace("outside::", "crate::"));
        }
        let path = dir.join("mod.rs");
        copies +=
            &format!("#[allow(dead_code, unused, clippy::all)]\n#[path = {path:?}]\nmod {name};\n");
        table += &format!("        {name:?} => {name}::zk_session::machine::end::new(),\n");
    }
    copies += &format!(
        "\n/// A client with this rule.\nfn client(rule: &str) -> Box<dyn client::Client> {{\n    match rule {{\n{table}        _ => panic!(\"no rule {{rule}}\"),\n    }}\n}}\n"
    );
    write(&out.join("copies.rs"), &copies);
}

/// Lets each type be cloned and hashed.
fn with_derives(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let bare = ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|v| line.strip_prefix(v));
        let kind = bare.unwrap_or(line);
        let name = kind.strip_prefix("struct ").or_else(|| kind.strip_prefix("enum "));
        let name = name.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or(""));
        if name.is_some_and(|name| !LEFT_OUT.contains(&name)) {
            let attributes = lines.iter().rposition(|l| !l.starts_with("#["));
            let from = attributes.map_or(0, |at| at + 1);
            let derives =
                lines[from..].iter_mut().find_map(|l| l.starts_with("#[derive(").then_some(l));
            let had = derives.as_ref().map_or("", |l| l.as_str()).to_owned();
            let more = ["Clone", "Hash"].into_iter().filter(|d| !had.contains(d));
            let more: Vec<&str> = more.collect();
            match derives {
                Some(derives) => {
                    *derives = had.replace("#[derive(", &format!("#[derive({}, ", more.join(", ")));
                    *derives = derives.replace("(, ", "(");
                }
                None => lines.push("#[derive(Clone, Hash)]".into()),
            }
        }
        lines.push(line.to_owned());
    }
    lines.join("\n") + "\n"
}
