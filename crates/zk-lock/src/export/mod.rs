//! `zk-lock export`: the locks as metrics for Prometheus, served over HTTP.
//!
//! The tree is read at its own pace (`inspect/follow.rs`), however often the page is asked for. A
//! request gets what was read last (`page.rs`), and never waits for ZooKeeper. `http.rs` answers
//! the requests.

mod http;
mod page;

use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use zk_mutex::ZkSession;

use self::page::{Read, State};
use crate::cli::{Common, ExportArgs};
use crate::connect;
use crate::exit::{Failure, of_signal};
use crate::inspect::follow::{End, Follow, Notifier};
use crate::nodes::tree::Tree;
use crate::output::Output;
use crate::signals;

pub fn export(common: &Common, args: &ExportArgs, output: &Output) -> Result<u8, Failure> {
    let failed = |e| Failure::system(format!("cannot listen on {}: {e}", args.listen));
    let listener = TcpListener::bind(&args.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let config = connect::config(common, Duration::from_secs(10))?;
    // It serves from the start, and says that ZooKeeper does not answer, if that is so.
    let connect = || Ok(ZkSession::builder(config).connect_in_background()?);
    let follow = Follow::start(connect, None, output)?;
    let state = Arc::new(Mutex::new(State::new(args.max_locks)));
    let served = state.clone();
    http::serve(listener, move || lock(&served).page())?;
    let text = format!("serving http://{address}/metrics");
    output.hint("listening", &text, json!({"address": address.to_string()}));
    let path = args.path.clone();
    let look = move |session: &ZkSession, _: &mut Notifier| {
        let began = Instant::now();
        let tree = Tree::read(session, &path)?;
        Ok(Read { tree, began, took: began.elapsed(), at: SystemTime::now() })
    };
    let end = follow.run(args.every, look, |read| {
        match read {
            Some(read) => lock(&state).read(read),
            None => lock(&state).is_away(),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    // A service that ends because it was asked to, by SIGTERM or SIGINT, has not failed.
    let asked = [signals::parse("TERM"), signals::parse("INT")];
    match end {
        End::Signal(signal) if !asked.contains(&Ok(signal)) => Ok(of_signal(signal)),
        _ => Ok(0),
    }
}

/// No panic leaves a state that is half changed.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
