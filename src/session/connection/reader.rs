//! A calling thread that reads the answer to its own request.
//!
//! The way by the event loop costs two changes of threads for each packet and two more for the
//! answer, on a path where a round trip takes some 100 us. So a caller waits for the socket itself
//! for a moment, in the place of the event loop. It reads what comes, gives it to the machine, and
//! carries out those outputs that only wake somebody. As soon as there is anything else to do (a watch
//! event, a change of the session, a line for the log), or the answer takes longer, or the connection
//! ends, the event loop goes on.
//!
//! One caller at a time does this; others wait for the event loop, or for this caller, who wakes them
//! too. The caller's deadline holds: it never waits for a lock that is held while foreign code runs.

use std::io::Read;
use std::time::Duration;

use crossbeam_channel::Receiver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Connection;
use super::machine::{Answers, Output};
use crate::clock::BootTime;
use crate::limit::Limit;

/// For so long a caller reads by itself: longer than a server with a fast disk needs, and short beside
/// what a caller may notice whose wait is cancelled.
const MOMENT: Duration = Duration::from_millis(10);

/// The longest answer that is read at once.
const CHUNK: usize = 16 << 10;

impl Connection {
    /// Waits for a moment until these answers are there. `take_output` carries out an output that does
    /// not block.
    pub(in crate::session) fn read_answers(
        &self,
        answers: &Receiver<Answers>,
        limit: &Limit<'_>,
        take_output: impl Fn(Output),
    ) -> Option<Answers> {
        let socket = {
            let mut inner = self.inner.lock();
            if inner.has_reader || !inner.machine.is_up() || limit.is_cancelled() {
                return None;
            }
            let socket = inner.socket.clone()?;
            inner.has_reader = true;
            inner.wait_for_socket(&self.registry);
            socket
        };
        let until = BootTime::now() + limit.left().map_or(MOMENT, |left| left.min(MOMENT));
        let mut buf = [0; CHUNK];
        let answered = loop {
            if let Ok(answers) = answers.try_recv() {
                break Some(answers);
            }
            let left = until.since(BootTime::now());
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&*socket, PollFlags::IN)];
            if left.is_zero() || !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
                break None;
            }
            let Some(_handing_out) = self.handing_out.try_lock() else { break None };
            let mut inner = self.inner.lock();
            let is_same = inner.socket.as_ref().is_some_and(|other| std::ptr::eq(&**other, &*socket));
            let read = if is_same { (&*socket).read(&mut buf) } else { Ok(0) };
            let Ok(Some(bytes)) = read.map(|n| buf.get(..n).filter(|bytes| !bytes.is_empty())) else {
                break None; // the event loop finds the end of the connection
            };
            inner.machine.server_bytes(bytes, BootTime::now());
            inner.flush(&self.registry);
            let light = inner.machine.outputs.iter().take_while(|output| output.is_light()).count();
            let outputs: Vec<Output> = inner.machine.outputs.drain(..light).collect();
            let is_loops = inner.failed.is_some() || inner.machine.wants_attention();
            drop(inner);
            outputs.into_iter().for_each(&take_output);
            if is_loops {
                self.wake();
                break answers.try_recv().ok();
            }
        };
        let mut inner = self.inner.lock();
        inner.has_reader = false;
        inner.wait_for_socket(&self.registry);
        answered
    }
}

impl Output {
    /// Whether it only wakes somebody.
    fn is_light(&self) -> bool {
        matches!(self, Output::Answered(..) | Output::Done(..) | Output::Heard(_))
    }
}
