//! Each example as a process whose server dies in the middle: in one test it comes back, in another
//! it stays away. No example may hang or panic, and each says in words what has failed.
//!
//!     cargo test -p zk-mutex-examples
//!
//! That builds the examples too; with `--test outages`, cargo takes those that are there.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use support::Back::{GoesOn, GoesOnOrFails};
use support::{Example, Running, in_the_middle, test};
use zk_test_server::Op::{Create, Delete, GetData};

#[rustfmt::skip] // a table
const EXAMPLES: [Example; 13] = [
    Example { name: "barrier", middle: (Create, "/bert-", 0), back: GoesOn },
    Example { name: "config", middle: (GetData, "/example-config", 1), back: GoesOnOrFails },
    Example { name: "contend", middle: (Create, "/contend/", 30), back: GoesOn },
    Example { name: "election", middle: (Create, "/election/", 4), back: GoesOn },
    Example { name: "fencing", middle: (Create, "/fencing/", 2), back: GoesOn },
    Example { name: "leader", middle: (Create, "/leader/", 2), back: GoesOn },
    Example { name: "multi", middle: (Create, "/bank/account-2/", 10), back: GoesOn },
    Example { name: "probes", middle: (Create, "/probes/", 0), back: GoesOn },
    Example { name: "registry", middle: (Create, "/web-", 2), back: GoesOn },
    Example { name: "rwlock", middle: (Create, "/rwlock/", 20), back: GoesOn },
    Example { name: "semaphore", middle: (Create, "/locks/", 8), back: GoesOn },
    Example { name: "service", middle: (Create, "/charging/", 3), back: GoesOn },
    Example { name: "shutdown", middle: (Delete, "/shutdown/", 0), back: GoesOn },
];

/// The examples that have their tests elsewhere, and where.
const ELSEWHERE: [&str; 2] = [
    "expired_session", // It is a test itself: in the middle of its work it stops its own server.
    "shared_session",  // tests/outages_with_client.rs: it needs the feature `client`.
];

fn main() -> ExitCode {
    let mut all = support::tests(&EXAMPLES);
    all.push(test("shutdown::sigterm_ends_it_while_its_server_is_away", sigterm_while_away));
    all.push(test("service::it_ends_in_time_while_its_server_is_away", service_in_time));
    all.push(test("contend::the_readme_shows_what_it_prints", readme));
    all.push(test("each_example_is_in_a_list", each_is_listed));
    support::run(all)
}

fn example(name: &str) -> &'static Example {
    EXAMPLES.iter().find(|one| one.name == name).expect("an example of the list")
}

fn sigterm_while_away() {
    let (server, running) = in_the_middle(example("shutdown"));
    server.stop();
    let begun = Instant::now();
    running.send("TERM");
    // The holder could not release its lock.
    let ended = running.end().failed();
    assert!(ended.out.contains("waits no longer"), "{ended:?}");
    // Not the minute for which a wait for the lock goes on in an outage.
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}: {ended:?}", begun.elapsed());
}

/// Its time, its grace and a second for the session: six seconds, whatever the server does.
fn service_in_time() {
    let begun = Instant::now();
    let (server, running) = in_the_middle(example("service"));
    server.stop();
    let ended = running.end().failed();
    assert!(ended.err.contains("are left that it has taken"), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}: {ended:?}", begun.elapsed());
}

/// The README shows the first lines of what the first command prints, but for the numbers.
fn readme() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md"));
    let text = text.expect("the README");
    let shown = text.split("```text\n").find(|block| block.starts_with("without the lock: "));
    let shown = shown.and_then(|block| block.split("```").next()).expect("the block of contend");
    let ended = Running::start("contend", None, &[]).end().succeeded();
    let word = |word: &str| match word {
        token if token.starts_with("0x") => "TOKEN".to_owned(),
        number if number.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("NUMBER{}", number.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        other => other.to_owned(),
    };
    let shape = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    for (shown, printed) in shown.lines().zip(ended.out.lines()) {
        assert_eq!(shape(shown), shape(printed), "the README shows another line");
    }
}

fn each_is_listed() {
    let files = fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("the folder of the examples");
    let name = |path: &Path| path.file_stem()?.to_str().map(str::to_owned);
    let sources = files.map(|file| file.expect("a file").path());
    let sources = sources.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let there: BTreeSet<String> = sources.filter_map(|path| name(&path)).collect();
    let listed = EXAMPLES.iter().map(|one| one.name).chain(ELSEWHERE);
    assert_eq!(there, listed.map(str::to_owned).collect(), "an example has no test here");
}
