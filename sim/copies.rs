//! What the build scripts of `sim/schedules` and `sim/ownership` share: they make copies of files of
//! the library, and break some of the copies.

use std::fs;
use std::path::Path;

/// The characters of a text that the formatter keeps, each with its place: no white space, and no
/// comma before a closing bracket.
fn squeezed(text: &str) -> Vec<(usize, char)> {
    let dense: Vec<_> = text.char_indices().filter(|(_, c)| !c.is_whitespace()).collect();
    let is_last = |at: usize| dense.get(at + 1).is_some_and(|(_, c)| ")]}".contains(*c));
    let kept = (0..dense.len()).filter(|&at| dense[at].1 != ',' || !is_last(at));
    kept.map(|at| dense[at]).collect()
}

/// The places of this code in a text, however it is wrapped.
pub fn found(text: &str, code: &str) -> Vec<std::ops::Range<usize>> {
    let (whole, part) = (squeezed(text), squeezed(code));
    let is_same = |at: &[(usize, char)]| at.iter().map(|a| a.1).eq(part.iter().map(|p| p.1));
    let ends = |at: &[(usize, char)]| at[0].0..at[at.len() - 1].0 + at[at.len() - 1].1.len_utf8();
    whole.windows(part.len()).filter(|at| is_same(at)).map(ends).collect()
}

/// Replaces the lines that name single functions of the library by these functions.
pub fn taken_over(library: &Path, text: String) -> String {
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        let Some((file, start)) =
            line.trim().strip_prefix("//= ").and_then(|from| from.split_once(": "))
        else {
            all += line;
            continue;
        };
        let source = read(&library.join(file));
        let (_, rest) = source.split_once(start).unwrap_or_else(|| panic!("{file} has no {start}"));
        let (body, _) =
            rest.split_once("\n    }\n").unwrap_or_else(|| panic!("{file}: {start} has no end"));
        all += &format!("    {start}{body}\n    }}\n");
    }
    all
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn write(path: &Path, text: &str) {
    let dir = path.parent().expect("a file is in a directory");
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, text))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
