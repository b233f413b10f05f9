//! What stands where a link died: makes the client crate end too.
//!
//! Left alone the crate would dial the dead link for ever at full speed. Answered with a session
//! timeout below a second, and cut, it takes its session for expired and ends its threads.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpListener;

use crate::session::wire::record::ConnectReply;

const STANDS_FOR: Duration = Duration::from_secs(4);

pub(super) fn stand(listener: &TcpListener) {
    let reply = ConnectReply { timeout_ms: 900, session_id: 1, password: vec![0; 16] }.frame();
    let until = Instant::now() + STANDS_FOR;
    while Instant::now() < until {
        match listener.accept() {
            Ok((mut peer, _)) => {
                // The request is on its way: the crate writes as soon as it is connected.
                std::thread::sleep(Duration::from_millis(20));
                let _ = peer.read(&mut [0; 256]);
                let _ = peer.write(&reply);
                std::thread::sleep(Duration::from_millis(20));
            }
            // Nobody yet, or no descriptor left for him.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
