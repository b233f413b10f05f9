//! What the build scripts of `sim/schedules` and `sim/ownership` share: they make copies of files
//! of the library, and break some of the copies. Files and places are found wherever they stand
//! below the folders of `tests/library_roots.txt`, by the same rules as in `tests/places.py`.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The texts of files, by their places in a copy.
pub type Files = BTreeMap<String, String>;

/// One edit: an item (a function, a constant or a static, with the type, trait or inline module
/// around it if others have its name), a code that stands once in it, and its replacement.
pub type Edit = (&'static str, &'static str, &'static str);

// ---- the library's files ----

/// The library's source files. A file of the package itself has the same place in a copy as below
/// `src`. A file of another crate has its place below a module that is called like that crate.
pub struct Library {
    files: Files,
    /// These modules.
    crates: Vec<String>,
}

impl Library {
    /// Reads all files below the roots. `top` is the top of the repository.
    pub fn read(top: &Path) -> Library {
        let list = top.join("tests/library_roots.txt");
        println!("cargo::rerun-if-changed={}", list.display());
        let (mut files, mut crates) = (Files::new(), Vec::new());
        for root in read(&list).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            println!("cargo::rerun-if-changed={}", top.join(root).display());
            let package = Path::new(root).parent().and_then(Path::file_name);
            let module = package.map(|name| name.to_string_lossy().replace('-', "_"));
            let prefix = module.iter().map(|module| format!("{module}/")).collect::<String>();
            for path in rust_files(&top.join(root)) {
                let below = path.strip_prefix(top.join(root)).expect("it is below");
                files.insert(format!("{prefix}{}", below.display()), read(&path));
            }
            crates.extend(module);
        }
        Library { files, crates }
    }

    /// The file with this place in a copy, or whose place ends so: its place, and its text.
    pub fn file(&self, end: &str) -> (&str, &str) {
        if let Some((place, text)) = self.files.get_key_value(end) {
            return (place, text);
        }
        let is_meant = |place: &str| place == end || place.ends_with(&format!("/{end}"));
        let found: Vec<_> = self.files.iter().filter(|(place, _)| is_meant(place)).collect();
        let [(place, text)] = found[..] else {
            let places: Vec<_> = found.iter().map(|(place, _)| place).collect();
            panic!("the library has one file {end}? It has {places:?}");
        };
        (place, text)
    }

    /// Replaces the lines `//= ITEM` by these items of the library.
    pub fn taken_over(&self, text: &str) -> String {
        let mut all = String::new();
        for line in text.split_inclusive('\n') {
            let Some(item) = line.trim().strip_prefix("//= ") else {
                all += line;
                continue;
            };
            let found = called(&self.files, item);
            let [(place, range)] = &found[..] else {
                let lines: Vec<_> = found.iter().map(|at| line_of(&self.files, at)).collect();
                panic!("the library has one item {item}? It has {lines:?}");
            };
            all += &self.files[*place][range.clone()];
            all.push('\n');
        }
        all
    }

    /// In a copy with this name `crate::` means the copy, and another crate of the library is a
    /// module of the copy.
    pub fn with_paths(&self, place: &str, text: &str, copy: &str) -> String {
        let mut text = text.to_owned();
        for module in &self.crates {
            text = match place.strip_prefix(module.as_str()).is_some_and(|at| at.starts_with('/')) {
                true => text.replace("crate::", &format!("crate::{module}::")),
                false => text.replace(&format!("{module}::"), &format!("crate::{module}::")),
            };
        }
        text.replace("crate::", &format!("crate::{copy}::"))
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let (dirs, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs");
    files.into_iter().filter(is_rust).chain(dirs.iter().flat_map(|dir| rust_files(dir))).collect()
}

// ---- Rust ----

/// The text with spaces in place of comments, and perhaps of strings and characters. Every byte
/// keeps its place.
fn blank(text: &str, is_literal_blank: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let find = |from: usize, what: &str| {
        text.get(from..)
            .and_then(|rest| rest.find(what))
            .map_or(bytes.len(), |at| from + at + what.len())
    };
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let is_word_before = at > 0 && is_word(bytes[at - 1]) && bytes[at - 1] != b'b';
        let raw = rest.strip_prefix('r').filter(|_| !is_word_before);
        let raw = raw.map(|raw| raw.trim_start_matches('#')).filter(|raw| raw.starts_with('"'));
        let (end, is_comment) = if rest.starts_with("//") {
            (find(at, "\n"), true)
        } else if rest.starts_with("/*") {
            (find(at, "*/"), true)
        } else if let Some(raw) = raw {
            let hashes = rest.len() - raw.len() - 1;
            (find(at + hashes + 2, &format!("\"{}", "#".repeat(hashes))), false)
        } else if rest.starts_with('"') || is_character(rest) {
            let mut end = at + 1;
            while end < bytes.len() && bytes[end] != bytes[at] {
                end += 1 + usize::from(bytes[end] == b'\\');
            }
            ((end + 1).min(bytes.len()), false)
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        if is_comment || is_literal_blank {
            code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    code
}

/// Whether this is a character, and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'')
        && chars.next().is_some_and(|of| of == '\\' || chars.next() == Some('\''))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Where an item ends: behind its `;`, or behind the bracket that closes its body.
fn end_of_item(code: &[u8], from: usize, is_function: bool) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b';' => {}
            _ => continue,
        }
        if depth == 0 && (*byte == b';' || *byte == b'}' && is_function) {
            return at + 1;
        }
    }
    code.len()
}

/// What an `impl`, a trait or a module is called: of an `impl`, its type.
fn name_around(header: &str) -> Option<&str> {
    let of_impl =
        header.strip_prefix("impl").filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
    let Some(mut of_impl) = of_impl else {
        let rest = header.strip_prefix("trait ").or_else(|| header.strip_prefix("mod "))?;
        return rest
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .find(|word| !word.is_empty());
    };
    let mut depth = 0;
    let mut outside = Vec::new(); // the words outside of angle brackets
    while let Some(c) = of_impl.chars().next() {
        let word =
            of_impl.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(of_impl.len());
        let step = if word > 0 { word } else { c.len_utf8() };
        let arrow = of_impl.starts_with("->");
        depth += i32::from(c == '<') - i32::from(c == '>');
        if word > 0 && depth == 0 {
            outside.push(&of_impl[..word]);
        }
        of_impl = &of_impl[if arrow { 2 } else { step }..];
    }
    let outside = outside.split(|word| *word == "where").next()?;
    outside.last().copied()
}

/// The items of this name in a text. An item that is inside another is a part of it.
fn items(text: &str, name: &str) -> Vec<Range<usize>> {
    let (around, own) = name.rsplit_once("::").map_or((None, name), |(of, own)| (Some(of), own));
    if !text.contains(own) {
        return Vec::new();
    }
    let code = blank(text, true);
    let blanked = String::from_utf8_lossy(&code);
    let (mut outer, mut found) = (Vec::new(), Vec::<Range<usize>>::new());
    let mut begin = 0;
    for line in blanked.split_inclusive('\n') {
        let mut head = line.trim_start();
        if let Some(rest) = head.strip_prefix("pub") {
            let rest =
                rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |r| r.1);
            head = rest.trim_start();
        }
        let at = begin + line.len() - head.len();
        let body = blanked[at..].find(['{', ';']).filter(|body| code[at + body] == b'{');
        if let Some(body) = body
            && let Some(of) = name_around(&blanked[at..at + body])
            && ["impl", "trait", "mod"].iter().any(|word| head.starts_with(word))
        {
            outer.push((begin..end_of_item(&code, at + body, true), of));
        }
        let mut named = head;
        while let Some(rest) = named.strip_prefix("const ").or_else(|| named.strip_prefix("async "))
        {
            named = rest;
        }
        let function = named.strip_prefix("fn ");
        let constant = head.strip_prefix("const ").or_else(|| head.strip_prefix("static "));
        let rest = function.or(constant).and_then(|rest| rest.trim_start().strip_prefix(own));
        if let Some(rest) = rest
            && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
            && found.last().is_none_or(|before| begin >= before.end)
        {
            let last = outer.iter().rev().find(|(range, _)| range.contains(&begin));
            if around.is_none() || around == last.map(|(_, of)| *of) {
                found.push(begin..end_of_item(&code, at, function.is_some()));
            }
        }
        begin += line.len();
    }
    found
}

/// The items with this name: the place of the file, and the range in it.
fn called<'a>(files: &'a Files, name: &str) -> Vec<(&'a str, Range<usize>)> {
    let in_file = |(place, text): (&'a String, &String)| {
        items(text, name).into_iter().map(|range| (place.as_str(), range)).collect::<Vec<_>>()
    };
    files.iter().flat_map(in_file).collect()
}

fn line_of(files: &Files, (place, range): &(&str, Range<usize>)) -> String {
    format!("{place}:{}", files[*place][..range.start].matches('\n').count() + 1)
}

// ---- edits ----

/// The bytes of a text that neither the formatter nor a comment changes, each with its place: no
/// white space, and no comma before a closing bracket.
fn squeezed(text: &str) -> Vec<(usize, u8)> {
    let code = blank(text, false).into_iter().enumerate();
    let dense: Vec<_> = code.filter(|(_, byte)| !byte.is_ascii_whitespace()).collect();
    let is_last = |at: usize| dense.get(at + 1).is_some_and(|(_, byte)| b")]}".contains(byte));
    let kept = (0..dense.len()).filter(|&at| dense[at].1 != b',' || !is_last(at));
    kept.map(|at| dense[at]).collect()
}

/// The places of this code in a text, however it is wrapped. It begins and ends with whole words.
fn occurrences(text: &str, code: &str) -> Vec<Range<usize>> {
    let (whole, part) = (squeezed(text), squeezed(code));
    let is_same = |at: &[(usize, u8)]| at.iter().map(|a| a.1).eq(part.iter().map(|p| p.1));
    let range = |at: &[(usize, u8)]| at[0].0..at[at.len() - 1].0 + 1;
    let is_in_word = |at: usize| {
        let bytes = text.as_bytes();
        at > 0 && at < bytes.len() && is_word(bytes[at - 1]) && is_word(bytes[at])
    };
    let found = whole.windows(part.len()).filter(|at| is_same(at)).map(range);
    found.filter(|range| !is_in_word(range.start) && !is_in_word(range.end)).collect()
}

/// Makes an edit in one of these files, and returns the place of that file. `who` wants the edit.
pub fn edit(files: &mut Files, (item, old, new): Edit, who: &str) -> String {
    let within = called(files, item);
    let in_item = |(place, range): &(&str, Range<usize>)| {
        let found = occurrences(&files[*place][range.clone()], old).into_iter();
        let absolute = |of: Range<usize>| of.start + range.start..of.end + range.start;
        let place = place.to_string();
        found.map(|of| (place.clone(), absolute(of))).collect::<Vec<_>>()
    };
    let found: Vec<_> = within.iter().flat_map(in_item).collect();
    let [(place, range)] = &found[..] else {
        let lines: Vec<_> = within.iter().map(|at| line_of(files, at)).collect();
        panic!(
            "{who}: `{old}` is {} times in `{item}` ({}). CONTRIBUTING.md says what to do.",
            found.len(),
            if lines.is_empty() { "no item is called so".into() } else { lines.join(", ") },
        );
    };
    files.get_mut(place).expect("it was found there").replace_range(range.clone(), new);
    place.clone()
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The folder of a copy, without what an earlier build has written there: a file may have moved.
pub fn emptied(dir: PathBuf) -> PathBuf {
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{}: {e}", dir.display()),
        _ => dir,
    }
}

pub fn write(path: &Path, text: &str) {
    let dir = path.parent().expect("a file is in a directory");
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, text))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
