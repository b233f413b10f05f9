//! Znode paths: ZooKeeper's own rules for them, and functions that take them apart and join them.

/// Checks an absolute znode path by the rules of ZooKeeper's `PathUtils.validatePath`. The error
/// says which rule is broken.
pub fn check(path: &str) -> Result<(), &'static str> {
    if path == "/" {
        return Ok(());
    }
    let Some(nodes) = path.strip_prefix('/') else {
        return Err(if path.is_empty() {
            "it must not be empty"
        } else {
            "it must start with '/'"
        });
    };
    if nodes.ends_with('/') {
        return Err("it must not end with '/'");
    }
    for node in nodes.split('/') {
        match node {
            "" => return Err("it must not have an empty node name ('//')"),
            "." | ".." => return Err("it must not have '.' or '..' as a node name"),
            _ => {}
        }
    }
    match nodes.chars().find(|&c| !is_allowed(c)) {
        Some('\0') => Err("it must not have a NUL character"),
        Some('\u{1}'..='\u{1f}' | '\u{7f}'..='\u{9f}') => {
            Err("it must not have a control character")
        }
        Some('\u{10000}'..) => Err("it must not have a character beyond U+FFFF"),
        Some(_) => Err(
            "it must not have a private-use or special character (U+E000 to U+F8FF, U+FFF0 to U+FFFF)",
        ),
        None => Ok(()),
    }
}

/// Java's chars are UTF-16 units. Java forbids the surrogates (U+D800 to U+DFFF), and so every
/// character beyond U+FFFF.
fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The path of the node's parent: "/a" for "/a/b", "/" for "/a" and for "/".
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &path[..end],
    }
}

/// The name of a node, without the path of its parent.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The path of the child `name` of the node `dir`.
pub fn join(dir: &str, name: &str) -> String {
    let dir = dir.strip_suffix('/').unwrap_or(dir); // only "/" has one
    [dir, "/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_paths_are_allowed() {
        for path in [
            "/",
            "/a",
            "/locks/orders",
            "/a b/c",
            "/...",
            "/.a/a./a..b",
            "/ä/錠",
            "/a\u{a0}",
            "/\u{ffef}",
            "/\u{d7ff}",
            "/\u{f900}",
        ] {
            assert_eq!(check(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn what_zookeeper_refuses_is_refused() {
        for (path, word) in [
            ("", "empty"),
            ("a", "start"),
            ("a/b", "start"),
            ("/a/", "end"),
            ("//", "end"),
            ("//a", "empty node"),
            ("/a//b", "empty node"),
            ("/.", "'.'"),
            ("/..", "'.'"),
            ("/a/./b", "'.'"),
            ("/a/../b", "'.'"),
            ("/a/..", "'.'"),
            ("/a\0", "NUL"),
            ("/a\u{1}", "control"),
            ("/a\n/b", "control"),
            ("/\u{1f}", "control"),
            ("/\u{7f}", "control"),
            ("/\u{9f}", "control"),
            ("/\u{e000}", "private-use"),
            ("/\u{f8ff}", "private-use"),
            ("/\u{fff0}", "private-use"),
            ("/\u{ffff}", "private-use"),
            ("/\u{1f512}", "beyond"),
        ] {
            let rule = check(path).expect_err(path);
            assert!(rule.contains(word), "{path:?}: {rule}");
        }
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(parent("/a/b/c"), "/a/b");
        assert_eq!(parent("/a"), "/");
        assert_eq!(parent("/"), "/");
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
    }

    /// `PathUtils.validatePath` as it is written, over UTF-16 units.
    fn as_in_java(path: &str) -> bool {
        let chars: Vec<u16> = path.encode_utf16().collect();
        let (slash, dot) = (u16::from(b'/'), u16::from(b'.'));
        if chars.first() != Some(&slash) {
            return false;
        }
        if chars.len() == 1 {
            return true;
        }
        if chars.last() == Some(&slash) {
            return false;
        }
        let ends = |i: usize| i + 1 == chars.len() || chars[i + 1] == slash;
        for i in 1..chars.len() {
            let (last, c) = (chars[i - 1], chars[i]);
            let bad = c == 0
                || c == slash && last == slash
                || c == dot && last == dot && chars[i - 2] == slash && ends(i)
                || c == dot && last == slash && ends(i)
                || (1..=0x1f).contains(&c)
                || (0x7f..=0x9f).contains(&c)
                || (0xd800..=0xf8ff).contains(&c)
                || c >= 0xfff0;
            if bad {
                return false;
            }
        }
        true
    }

    proptest! {
        #[test]
        fn we_allow_exactly_what_java_allows(path in "(/?([./a\u{1}\u{7f}]|\\PC|\\p{Any}){0,3}){0,5}") {
            prop_assert_eq!(check(&path).is_ok(), as_in_java(&path), "{:?}", path);
        }

        #[test]
        fn nothing_makes_it_panic(path in any::<String>()) {
            let _ = check(&path);
            let _ = parent(&path);
        }

        #[test]
        fn a_joined_path_has_its_parts(dir in "(/[a-z]{1,3}){1,4}", name in "[a-z.]{3,6}") {
            let path = join(&dir, &name);
            prop_assert_eq!(check(&path), Ok(()));
            prop_assert_eq!(parent(&path), &dir);
        }
    }
}
