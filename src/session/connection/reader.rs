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
//! Nobody else reads the socket meanwhile: if the event loop read a caller's answer while the caller
//! waits for the socket, the caller would go on waiting. But a reader that gets no processor keeps
//! nobody from reading for longer than its moment: the event loop, or the next caller, takes its place.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use mio::net::TcpStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::machine::{Answers, Output};
use super::{Connection, Inner};
use crate::clock::BootTime;
use crate::limit::Limit;

/// For so long a caller reads by itself: longer than a server with a fast disk needs, and short beside
/// what a caller may notice whose wait is cancelled.
const MOMENT: Duration = Duration::from_millis(10);

/// So much is read at once. It lies on the stack of each calling thread.
const CHUNK: usize = 4 << 10;

/// A calling thread reads the socket in the place of the event loop.
pub(super) struct Reader {
    /// The number of its requests. No other reader has the same.
    number: u64,
    /// From then on the event loop reads again, even if this thread got no processor meanwhile and still
    /// takes itself for the reader.
    pub(super) until: BootTime,
}

/// What the thread does that reads. When it is dropped, on whatever way the thread leaves, the event
/// loop reads again.
struct Reading<'a> {
    connection: &'a Connection,
    number: u64,
    socket: Arc<TcpStream>,
    until: BootTime,
}

enum Next {
    Read,
    /// The event loop reads again, or carries out outputs.
    Leave,
}

impl Connection {
    /// Waits for a moment until these answers are there, to the requests of this number. `take_output`
    /// carries out an output that does not block.
    pub(in crate::session) fn read_answers(
        &self,
        number: u64,
        answers: &Receiver<Answers>,
        limit: &Limit<'_>,
        take_output: impl Fn(Output),
    ) -> Option<Answers> {
        let reading = self.become_reader(number, limit)?;
        let mut buf = [0; CHUNK];
        loop {
            if let Ok(answers) = answers.try_recv() {
                return Some(answers);
            }
            let left = reading.until.since(BootTime::now());
            if left.is_zero() {
                return None;
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&*reading.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => match reading.read(&mut buf, &take_output) {
                    Next::Read => {}
                    Next::Leave => return answers.try_recv().ok(),
                },
                Err(_) => return None,
            }
        }
    }

    fn become_reader(&self, number: u64, limit: &Limit<'_>) -> Option<Reading<'_>> {
        let mut inner = self.inner.lock();
        let now = BootTime::now();
        // Answers that another thread has read are on their way: no more bytes may come after them.
        let waits = inner.machine.is_up() && inner.machine.is_under_way(number) && !limit.is_cancelled();
        if !waits || inner.reader.as_ref().is_some_and(|reader| now < reader.until) {
            return None;
        }
        let socket = inner.socket.clone()?;
        let until = now + limit.left().map_or(MOMENT, |left| left.min(MOMENT));
        inner.reader = Some(Reader { number, until });
        inner.wait_for_socket(&self.registry);
        Some(Reading { connection: self, number, socket, until })
    }
}

impl Reading<'_> {
    fn read(&self, buf: &mut [u8], take_output: &impl Fn(Output)) -> Next {
        let connection = self.connection;
        let Some(_handing_out) = connection.handing_out.try_lock() else { return Next::Leave };
        let mut inner = connection.inner.lock();
        if !inner.is_reader(self.number) {
            return Next::Leave; // the connection is another one, or the moment is over
        }
        match (&*self.socket).read(buf) {
            Ok(0) => return Next::Leave, // the event loop finds the end of the connection
            Ok(n) => inner.machine.server_bytes(buf.get(..n).unwrap_or_default(), BootTime::now()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Next::Read;
            }
            // The socket tells of it only once.
            Err(e) => inner.failed = Some(e.to_string()),
        }
        inner.flush(&connection.registry);
        let light = inner.machine.outputs.iter().take_while(|output| output.is_light()).count();
        let outputs: Vec<Output> = inner.machine.outputs.drain(..light).collect();
        // Callers that wait until the lease is fresh hear of it when the event loop looks.
        let is_proven = outputs.iter().any(|output| matches!(output, Output::Heard(_)));
        let is_awaited = is_proven && inner.machine.is_proof_awaited();
        let is_loops = is_awaited || inner.failed.is_some() || inner.machine.wants_attention();
        drop(inner);
        outputs.into_iter().for_each(take_output);
        if !is_loops {
            return Next::Read;
        }
        connection.wake();
        Next::Leave
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut inner = self.connection.inner.lock();
        if !inner.is_reader(self.number) {
            return;
        }
        inner.reader = None;
        inner.wait_for_socket(&self.connection.registry);
        let has_failed = inner.failed.is_some();
        drop(inner);
        if has_failed {
            self.connection.wake();
        }
    }
}

impl Inner {
    fn is_reader(&self, number: u64) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.number == number)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::super::codec::Operation;
    use super::super::machine::{Batch, Settle};
    use super::*;
    use crate::ZkSession;
    use crate::testing::{Op, TestServer};

    /// The reader gets no processor for longer than its moment.
    #[test]
    fn the_event_loop_reads_when_the_moment_of_a_reader_is_over() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let connection = &generation.connection;
        let held = server.hold_requests(Op::GetChildren);
        let (mut batch, answers) = Batch::new();
        batch.push(&Operation::GetChildren { path: "/", watch: false }, Settle::Nothing);
        let number = connection.with(|machine, now| machine.submit(batch, now)).unwrap();
        let reading = connection.become_reader(number, &Limit::NONE).unwrap();
        drop(held);
        let answers = answers.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(answers.all.iter().all(Result::is_ok), "{:?}", answers.all);
        drop(reading);
    }
}
