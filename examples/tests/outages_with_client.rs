//! As `outages.rs`, for the example that needs the feature `client`.

mod support;

use std::process::ExitCode;
use support::{Back, Example};
use zk_test_server::Op::GetData;

const EXAMPLES: [Example; 1] = [Example {
    name: "shared_session",
    middle: (GetData, "/zk-mutex-hosts/", 0),
    back: Back::GoesOnOrFails,
}];

fn main() -> ExitCode {
    support::run(support::tests(&EXAMPLES))
}
