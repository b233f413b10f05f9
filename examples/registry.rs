//! A service registry: instances are ephemeral nodes, and a client always knows which there are:
//!
//!     cargo run --example registry

mod common;

use common::Result;
use std::process::ExitCode;
use std::time::Duration;
use zk_session::{Acl, Session, WatchEvent, Watched};

const FOLDER: &str = "/example-registry";
const SOON: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    common::example(registry)
}

fn registry(server: &str) -> Result<()> {
    let [first, second, client] = [(); 3].map(|()| Session::connect(server));
    let (first, second, client) = (first?, second?, client?); // as if each were a host
    // An instance is there as long as this value, and no longer than its session lives.
    let web = first.requests().hold(&format!("{FOLDER}/web-"), b"10.0.0.1:80", &Acl::Open)?;

    let instances = client.requests().watch(FOLDER, Watched::Children)?; // before they are listed
    let list = |expected: usize| -> Result<Vec<String>> {
        let requests = client.requests().within(SOON);
        loop {
            let mut names = requests.children(FOLDER)?;
            println!("{} instances: {names:?}", names.len());
            if names.len() == expected {
                names.sort();
                return Ok(names);
            }
            match instances.next(SOON).ok_or("no change was told")? {
                WatchEvent::Refused(e) => return Err(e.into()),
                WatchEvent::Lost(reason) => return Err(reason.to_string().into()),
                _ => {} // another list
            }
        }
    };
    let alone = list(1)?;
    common::must(web.path().ends_with(&alone[0]) && web.is_held(), "the instance is lost")?;
    let other = second.requests().hold(&format!("{FOLDER}/web-"), b"10.0.0.2:80", &Acl::Open)?;
    let is_there = list(2)?.iter().any(|name| other.path().ends_with(name));
    common::must(is_there, "another instance is listed")?;
    second.close()?; // its instance goes with it
    common::must(!other.is_held(), "an instance outlives its session")?;
    common::must(list(1)? == alone, "another instance is listed")?;
    Ok(web.release()?)
}
