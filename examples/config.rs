//! A configuration that changes while a service runs:
//!
//!     cargo run --example config

mod common;

use common::Result;
use std::process::ExitCode;
use std::{thread, time::Duration};
use zk_session::{Acl, CreateMode, Error, Session, Watch, WatchEvent, Watched};

const NODE: &str = "/example-config";
const VERSIONS: [&str; 3] = ["colour = red", "colour = green", "colour = blue"];
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    common::example(config)
}

fn config(server: &str) -> Result<()> {
    let service = Session::connect(server)?;
    let watch = service.requests().watch(NODE, Watched::Node)?; // before the node is read
    thread::scope(|scope| {
        let operator = scope.spawn(|| edit(server));
        let served = serve(&service, &watch);
        common::join(operator).and(served)
    })?;
    Ok(service.requests().within(PATIENCE).delete(NODE, None)?)
}

/// What a service does: it reads the configuration, and again after each change, until it has seen
/// the last one.
fn serve(service: &Session, watch: &Watch) -> Result<()> {
    let zk = service.requests().within(PATIENCE);
    loop {
        match zk.get(NODE) {
            Ok(node) => {
                let text = String::from_utf8_lossy(&node.data).into_owned();
                println!("version {}: {text}", node.stat.version);
                if text == VERSIONS[2] {
                    return Ok(());
                }
            }
            Err(Error::NoNode { .. }) => println!("there is none, so the defaults count"),
            Err(e) => return Err(e.into()),
        }
        // Several changes may come as one event: the read shows the last of them.
        match watch.next(PATIENCE).ok_or("no change was told")? {
            WatchEvent::Lost(reason) => return Err(reason.to_string().into()),
            event => println!("{event:?}"),
        }
    }
}

/// What an operator does, or a program of his.
fn edit(server: &str) -> Result<()> {
    let session = Session::connect(server)?;
    let zk = session.requests().within(PATIENCE);
    zk.create(NODE, VERSIONS[0].as_bytes(), CreateMode::Persistent, &Acl::Open)?;
    zk.set(NODE, VERSIONS[1].as_bytes(), Some(0))?;
    zk.set(NODE, VERSIONS[2].as_bytes(), Some(1))?;
    Ok(())
}
