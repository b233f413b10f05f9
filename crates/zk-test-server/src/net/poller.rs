//! The server's thread: it waits for sockets, and runs a turn of the server when there is something
//! to do.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use mio::{Events, Poll};

use super::{Shared, WAKER, listener};

const NAME: &str = "zk-test-server";

pub(super) fn start(poll: Poll, shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(NAME.to_owned()).spawn(move || {
        let guard = CloseAtEnd(shared);
        if let Err(e) = run(poll, &guard.0) {
            error!("test server: {e}");
        }
    })
}

/// When the thread ends for any reason, all sockets are closed. Otherwise clients would wait for a
/// server that never answers.
struct CloseAtEnd(Arc<Shared>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.core.lock().stop();
        self.0.news.notify_all();
    }
}

fn run(mut poll: Poll, shared: &Shared) -> io::Result<()> {
    let mut events = Events::with_capacity(1024);
    let mut timeout = None;
    loop {
        match poll.poll(&mut events, timeout) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        let mut core = shared.core.lock();
        for event in &events {
            match event.token() {
                WAKER => {}
                listener::TOKEN => core.listener_ready(),
                token => core.socket_ready(token.0 as u64, event),
            }
        }
        core.turn();
        if core.is_over() {
            return Ok(());
        }
        timeout = core.timeout();
        let has_news = std::mem::take(&mut core.has_news);
        drop(core);
        if has_news {
            shared.news.notify_all();
        }
    }
}
