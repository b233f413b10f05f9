//! The list of examples, and the tests that each of them gets.

use super::{Running, Test, in_the_middle, test};
use std::thread;
use std::time::Duration;
use zk_test_server::Op;

/// An example, and the request in the middle of its work at which its server dies.
pub struct Example {
    pub name: &'static str,
    /// This request, on a path that contains this, when so many of them have come before.
    pub middle: (Op, &'static str, usize),
    pub back: Back,
}

/// What is right if the server comes back after a second.
#[derive(Clone, Copy, PartialEq)]
pub enum Back {
    /// The example does all that it would have done.
    GoesOn,
    /// The same; or it ends with an error, because it is unknown whether a write was done of which
    /// the answer is lost. (Nobody may send such a write again without looking.)
    GoesOnOrFails,
}

/// The tests of these examples.
pub fn tests(examples: &'static [Example]) -> Vec<Test> {
    let of = |example: &'static Example| {
        let name = example.name;
        [
            test(format!("{name}::its_server_dies_and_stays_away"), || stays_away(example)),
            test(format!("{name}::its_server_dies_and_comes_back"), || comes_back(example)),
            test(format!("{name}::it_takes_no_arguments"), || takes_no_arguments(example)),
        ]
    };
    // What takes longest comes first.
    let (mut away, mut other) = (Vec::new(), Vec::new());
    for [one, two, three] in examples.iter().map(of) {
        away.push(one);
        other.extend([two, three]);
    }
    away.extend(other);
    away
}

fn stays_away(example: &Example) {
    let (server, running) = in_the_middle(example);
    server.stop();
    running.end().failed();
}

fn comes_back(example: &Example) {
    let (server, running) = in_the_middle(example);
    thread::sleep(Duration::from_secs(1));
    server.restart();
    server.refuse(false);
    let ended = running.end();
    if ended.code == Some(1) && example.back == Back::GoesOnOrFails {
        ended.failed();
    } else {
        ended.succeeded();
    }
}

fn takes_no_arguments(example: &Example) {
    let ended = Running::start(example.name, None, &["127.0.0.1:2181"]).end();
    let usage = format!("--example {}\n", example.name);
    let says_how = ended.err.contains("usage: ") && ended.err.ends_with(&usage);
    assert!(ended.code == Some(2) && ended.out.is_empty() && says_how, "{ended:?}");
}
