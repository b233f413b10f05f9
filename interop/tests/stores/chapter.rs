//! The blocks of SQL in the chapter, by the comment that each begins with.

const CHAPTER: &str = include_str!("../../../src/guide/fencing.md");

/// The statement of this name, without the line of its name.
#[track_caller]
pub fn statement(name: &str) -> &'static str {
    let begin = format!("```sql\n-- {name}\n");
    let (_, rest) = CHAPTER.split_once(&begin).unwrap_or_else(|| panic!("no block {name:?}"));
    assert!(!rest.contains(&begin), "two blocks {name:?}");
    rest.split_once("\n```").expect("the end of the block").0
}

#[test]
fn the_page_of_the_token_has_the_statement_of_the_chapter() {
    let page = include_str!("../../../src/fencing.sql");
    assert_eq!(statement("SQLite: write"), page.trim_end());
}

/// A new block that nobody tests is noticed.
#[test]
fn each_block_of_the_chapter_has_a_test() {
    let tests =
        [include_str!("mariadb.rs"), include_str!("postgresql.rs"), include_str!("sqlite.rs")];
    for block in CHAPTER.split("```sql\n").skip(1) {
        let name = block.lines().next().and_then(|line| line.strip_prefix("-- "));
        let name = format!("{:?}", name.expect("a block begins with its name"));
        assert!(tests.iter().any(|test| test.contains(&name)), "no test has the block {name}");
    }
}
