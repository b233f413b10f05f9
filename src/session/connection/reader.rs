//! A calling thread that waits for the server, and reads the socket itself meanwhile.
//!
//! The way by the event loop costs two changes of threads for each packet and two more for the
//! waiting thread, on a path where a round trip takes some 100 us. So a thread that waits for an
//! answer, or for a watch event that notifies it, waits for the socket itself for its first moment,
//! in the place of the event loop. It reads what comes, gives it to the machine, and carries out
//! those outputs that only wake somebody. As soon as there is anything else to do (a change of the
//! session, a line for the log), or its own wait takes longer, or the connection ends, the event
//! loop goes on.
//!
//! One thread at a time does this; others wait for the event loop, or for this thread, which wakes
//! them too. The thread's deadline holds: it never waits for a lock that is held while foreign code
//! runs. Nobody else reads the socket meanwhile: if the event loop read what a thread waits for
//! while that thread waits for the socket, the thread would go on waiting. But a reader that gets
//! no processor does not keep the others from reading for long: the next thread that waits takes
//! its place when its moment is over, and the event loop does when it next looks, T/8 later at most
//! (T/16 while a guard lives). What comes from elsewhere (a change of the session, a cancelled
//! token) is noticed when the moment is over.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use super::machine::Output;
use super::{CHUNK, Inner};
use crate::clock::BootTime;
use crate::limit::Limit;
use crate::session::generation::Generation;
use crate::world::{TcpStream, socket};

/// For so long a caller reads by itself: longer than a server with a fast disk needs, and short
/// beside what a caller may notice whose wait is cancelled.
const READING_TIME: Duration = Duration::from_millis(10);

/// A calling thread reads the socket in the place of the event loop.
pub(super) struct CurrentReader {
    /// No other reader of this connection has the same.
    number: u64,
    /// From then on the event loop reads again, even if this thread got no processor meanwhile and
    /// still takes itself for the reader.
    pub(super) until: BootTime,
}

/// What the thread does that reads. When it is dropped, on whatever way the thread leaves, the
/// event loop reads again.
struct Reading<'a> {
    generation: &'a Generation,
    number: u64,
    socket: Arc<TcpStream>,
    until: BootTime,
}

enum ReadStart<'a, T> {
    Reading(Reading<'a>),
    /// What it wanted to wait for is there.
    Done(T),
}

enum AfterRead {
    GoOn,
    /// The event loop reads again, or carries out outputs.
    Leave,
}

impl Generation {
    /// Reads for a moment, until `done` gives a value. `done` is asked after each carrying out of
    /// outputs. A value that comes from anywhere else is noticed when the moment is over. `done` is
    /// also called while locks are held: it must not block, and must take no lock.
    pub(in crate::session) fn read_until<T>(
        &self,
        done: impl Fn() -> Option<T>,
        limit: &Limit<'_>,
    ) -> Option<T> {
        let reading = match self.become_reader(&done, limit)? {
            ReadStart::Reading(reading) => reading,
            ReadStart::Done(value) => return Some(value),
        };
        let mut buf = [0; CHUNK];
        loop {
            let left = reading.until.since(BootTime::now());
            if left.is_zero() {
                return None;
            }
            match socket::wait_readable(&reading.socket, left) {
                Ok(false) => {}
                Ok(true) => match reading.read(&mut buf) {
                    AfterRead::GoOn => {}
                    AfterRead::Leave => return done(),
                },
                Err(_) => return None,
            }
            if let Some(value) = done() {
                return Some(value);
            }
        }
    }

    fn become_reader<T>(
        &self,
        done: impl Fn() -> Option<T>,
        limit: &Limit<'_>,
    ) -> Option<ReadStart<'_, T>> {
        let connection = &self.connection;
        // Where somebody carries out outputs, or some are left, what this thread waits for may be
        // on its way: no more bytes may come after it.
        let _delivering = connection.delivering.try_lock()?;
        let mut inner = connection.inner.lock();
        if !inner.machine.is_up() || !inner.machine.outputs.is_empty() || limit.is_cancelled() {
            return None;
        }
        if let Some(value) = done() {
            return Some(ReadStart::Done(value));
        }
        let now = BootTime::now();
        if inner.reader.as_ref().is_some_and(|reader| now < reader.until) {
            return None;
        }
        let socket = inner.socket.clone()?;
        let until = now + limit.left().map_or(READING_TIME, |left| left.min(READING_TIME));
        inner.reader_number += 1;
        let number = inner.reader_number;
        inner.reader = Some(CurrentReader { number, until });
        inner.wait_for_socket(&connection.registry);
        Some(ReadStart::Reading(Reading { generation: self, number, socket, until }))
    }
}

impl Reading<'_> {
    fn read(&self, buf: &mut [u8]) -> AfterRead {
        let connection = &self.generation.connection;
        let Some(_delivering) = connection.delivering.try_lock() else { return AfterRead::Leave };
        let mut inner = connection.inner.lock();
        if !inner.is_reader(self.number) {
            return AfterRead::Leave; // the connection is another one, or the moment is over
        }
        match (&*self.socket).read(buf) {
            Ok(0) => return AfterRead::Leave, // the event loop finds the end of the connection
            Ok(n) => inner.machine.server_bytes(buf.get(..n).unwrap_or_default(), BootTime::now()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return AfterRead::GoOn;
            }
            // The socket tells of it only once.
            Err(e) => inner.failed = Some(e.to_string()),
        }
        inner.flush(&connection.registry);
        let is_light = |output: &&Output| self.generation.is_light(output);
        let light = inner.machine.outputs.iter().take_while(is_light).count();
        let outputs: Vec<Output> = inner.machine.outputs.drain(..light).collect();
        // Callers that wait until the lease is fresh hear of it when the event loop looks.
        let is_proven = outputs.iter().any(|output| matches!(output, Output::Heard(_)));
        let is_awaited = is_proven && inner.machine.is_proof_awaited();
        let needs_event_loop =
            is_awaited || inner.failed.is_some() || inner.machine.wants_attention();
        drop(inner);
        outputs.into_iter().for_each(|output| self.generation.take_output(output));
        if !needs_event_loop {
            return AfterRead::GoOn;
        }
        connection.wake();
        AfterRead::Leave
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let connection = &self.generation.connection;
        let mut inner = connection.inner.lock();
        if !inner.is_reader(self.number) {
            return;
        }
        inner.reader = None;
        inner.wait_for_socket(&connection.registry);
        let has_failed = inner.failed.is_some();
        drop(inner);
        if has_failed {
            connection.wake();
        }
    }
}

impl Inner {
    fn is_reader(&self, number: u64) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::Operation;
    use super::super::machine::Batch;
    use super::*;
    use crate::ZkSession;
    use zk_test_server::{Op, TestServer};

    /// The reader gets no processor for longer than its moment.
    #[test]
    fn the_event_loop_reads_when_the_moment_of_a_reader_is_over() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let held = server.hold_requests(Op::GetChildren);
        let (mut batch, answers) = Batch::new();
        batch.push(&Operation::GetChildren { path: "/", watch: false }, None);
        generation.connection.with(|machine, now| machine.submit(batch, now)).unwrap();
        let done = || answers.try_recv().ok();
        let reading = generation.become_reader(done, &Limit::NONE);
        assert!(matches!(reading, Some(ReadStart::Reading(_))));
        drop(held);
        let answers = answers.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(answers.all.iter().all(Result::is_ok), "{:?}", answers.all);
        drop(reading);
    }
}
