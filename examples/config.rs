//! A configuration that changes while a service runs:
//!
//!     cargo run --example config

mod common;

use common::Result;
use std::{thread, time::Duration};
use zk_session::{Acl, CreateMode, Error, Session, WatchEvent, Watched};

const NODE: &str = "/example-config";
const VERSIONS: [&str; 3] = ["colour = red", "colour = green", "colour = blue"];

fn main() -> Result<()> {
    let server = common::server()?;
    let service = Session::connect(&server)?;
    let watch = service.requests().watch(NODE, Watched::Node)?; // before the node is read
    let operator = thread::spawn(move || edit(&server));
    let zk = service.requests().within(Duration::from_secs(10));
    loop {
        match zk.get(NODE) {
            Ok(node) => {
                let text = String::from_utf8_lossy(&node.data).into_owned();
                println!("version {}: {text}", node.stat.version);
                if text == VERSIONS[2] {
                    break; // the service has seen the last one
                }
            }
            Err(Error::NoNode { .. }) => println!("there is none, so the defaults count"),
            Err(e) => return Err(e.into()),
        }
        // Several changes may come as one event: the read shows the last of them.
        match watch.next(Duration::from_secs(10)).ok_or("no change was told")? {
            WatchEvent::Lost(reason) => return Err(reason.to_string().into()),
            event => println!("{event:?}"),
        }
    }
    operator.join().expect("the operator does not panic")?;
    Ok(zk.delete(NODE, None)?)
}

/// What an operator does, or a program of his.
fn edit(server: &str) -> Result<()> {
    let session = Session::connect(server)?;
    let zk = session.requests();
    zk.create(NODE, VERSIONS[0].as_bytes(), CreateMode::Persistent, &Acl::Open)?;
    zk.set(NODE, VERSIONS[1].as_bytes(), Some(0))?;
    zk.set(NODE, VERSIONS[2].as_bytes(), Some(1))?;
    Ok(())
}
