//! A calling thread that waits for an answer or a watch event reads the socket itself, for a short
//! time.
//!
//! If the event loop reads a packet for another thread, that costs two changes of threads for the
//! packet and two more to wake the waiting thread, while a round trip takes some 100 us. So a
//! waiting thread first waits for the socket itself, in the place of the event loop, for
//! `READING_TIME`. It reads the bytes, gives them to the machine, and carries out the outputs that
//! only wake other threads. The event loop reads again as soon as there is other work (a change of
//! the session, a line for the log), when the time of the reader is over, or when the connection
//! ends.
//!
//! Only one thread reads at a time. Other waiting threads wait for the event loop or for this
//! reader, which wakes them too. A reader keeps its own deadline: it never waits for a thread that
//! carries out outputs. While it reads, no other thread reads the socket: otherwise the event loop
//! could read the answer of the reader, and the reader would go on waiting at the socket.
//!
//! A reader that gets no processor does not stop the others for long. When its time is over, the
//! next waiting thread takes its place, or the event loop does when it next wakes: T/16 later at
//! most. A reader notices other events (a change of the session, a cancelled token) when its time
//! is over.

use std::sync::Arc;
use std::time::Duration;

use super::{CHUNK, Inner, Owner, is_light};
use crate::clock::BootTime;
use crate::limit::Limit;
use crate::machine::Output;
use crate::world::{TcpStream, socket};

/// How long a caller reads by itself. It is longer than the answer of a server with a fast disk
/// takes, and so short that a cancelled caller does not notice the delay.
const READING_TIME: Duration = Duration::from_millis(10);

/// The thread that reads the socket in the place of the event loop.
pub(super) struct CurrentReader {
    /// Its number; no other reader of this connection has the same.
    number: u64,
    /// After this time the event loop may read again, even if the thread got no processor and still
    /// believes that it is the reader.
    pub(super) until: BootTime,
}

/// The reader's own side. However the thread leaves, this is dropped, and then the event loop reads
/// again.
struct Reading<'a> {
    owner: &'a dyn Owner,
    number: u64,
    socket: Arc<TcpStream>,
    until: BootTime,
}

enum ReadStart<'a, T> {
    Reading(Reading<'a>),
    /// There is no need to wait: the value is there.
    Done(T),
}

enum AfterRead {
    GoOn,
    /// The event loop must read, or carry out outputs.
    Leave,
}

impl dyn Owner {
    /// Reads until `done` gives a value, for `READING_TIME` at most. `done` is called each time
    /// outputs were carried out. If its value comes from another source, the thread notices that
    /// when the time is over. `done` is also called while locks are held: it must not block, and
    /// must take no lock.
    pub(crate) fn read_until<T>(
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
        let connection = self.connection();
        // If another thread carries out outputs now, or outputs are left, the value may be on its
        // way to this thread. Then this thread must not wait for more bytes.
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
        Some(ReadStart::Reading(Reading { owner: self, number, socket, until }))
    }
}

impl Reading<'_> {
    fn read(&self, buf: &mut [u8]) -> AfterRead {
        let connection = self.owner.connection();
        let Some(_delivering) = connection.delivering.try_lock() else { return AfterRead::Leave };
        let mut inner = connection.inner.lock();
        if !inner.is_reader(self.number) {
            return AfterRead::Leave; // there is another connection, or the time is over
        }
        match inner.read(&self.socket, buf) {
            // The event loop reads the end of the stream too, and handles it. The end of a TLS stream
            // is a record, which this thread has taken from the socket: it is kept for the event loop.
            Ok(Some(0)) => {
                if inner.tls.is_some() {
                    inner.failed.get_or_insert_with(|| "closed the connection".to_owned());
                }
                return AfterRead::Leave;
            }
            Ok(Some(_)) => {}
            Ok(None) => return AfterRead::GoOn,
            // The socket reports this error only once, so it is kept for the event loop.
            Err(e) => inner.fail(&e),
        }
        inner.flush(&connection.registry);
        let is_light = |output: &&Output| is_light(output, self.owner);
        let light = inner.machine.outputs.iter().take_while(is_light).count();
        let outputs: Vec<Output> = inner.machine.outputs.drain(..light).collect();
        // The event loop's next `tick` answers the callers that wait until the lease is fresh.
        let needs_event_loop = inner.machine.has_answered_proof()
            || inner.failed.is_some()
            || inner.machine.wants_attention();
        drop(inner);
        outputs.into_iter().for_each(|output| connection.carry_out(output, self.owner));
        if !needs_event_loop {
            return AfterRead::GoOn;
        }
        connection.wake();
        AfterRead::Leave
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let connection = self.owner.connection();
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
    use super::super::{Connection, Dialling, EventLoop};
    use super::*;
    use crate::connect_string::ConnectString;
    use crate::machine::codec::{CallError, Operation};
    use crate::machine::{Answers, Batch, LeaseStatus, MachineConfig, WatchedNode};
    use crate::world::{Interest, Receiver};
    use zk_test_server::{Op, TestServer};

    /// The owner of a connection in whose session nothing is held.
    struct Alone(Connection);

    impl Owner for Alone {
        fn connection(&self) -> &Connection {
            &self.0
        }

        fn take_output(&self, _: Output) {}

        fn is_light(&self, _: &Output) -> bool {
            false
        }

        fn tell_losses(&self) {}

        fn run_timers(&self, _: BootTime) -> Option<BootTime> {
            None
        }

        fn lease(&self, _: BootTime) -> LeaseStatus {
            LeaseStatus { end: None, is_fresh: true }
        }

        fn to_watch(&self, _: u64, _: BootTime) -> Vec<WatchedNode> {
            Vec::new()
        }

        fn next_watch(&self, _: u64) -> Option<BootTime> {
            None
        }
    }

    fn connect(server: &TestServer) -> Arc<Alone> {
        let config = MachineConfig::new(Duration::from_secs(30), "/no-op/none".into());
        let hosts = ConnectString::parse(&server.connect_string()).unwrap().hosts;
        let dialling = Dialling::to(&hosts);
        let (alive, _) = crate::world::bounded(0);
        EventLoop::start("zkm-loop-test".into(), config, dialling, alive, Alone).unwrap()
    }

    fn list(owner: &Alone) -> Receiver<Answers> {
        let mut batch = Batch::new();
        batch.push(&Operation::GetChildren { path: "/", watch: false }, None);
        owner.0.submit(batch).unwrap().1
    }

    fn wait(answers: &Receiver<Answers>) {
        let answers = answers.recv_timeout(Duration::from_secs(20)).unwrap();
        let all: Vec<Option<CallError>> = answers.all.into_iter().map(Result::err).collect();
        assert_eq!(all, [None]);
    }

    /// Waits until the event loop has carried out the last outputs.
    fn become_reader<T>(owner: &dyn Owner, done: impl Fn() -> Option<T>) -> Reading<'_> {
        loop {
            match owner.become_reader(&done, &Limit::NONE) {
                Some(ReadStart::Reading(reading)) => return reading,
                Some(ReadStart::Done(_)) => panic!("it needs no reader"),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Otherwise events would lie there until something is sent.
    #[test]
    fn the_event_loop_waits_for_the_socket_again_when_a_reader_leaves() {
        let server = TestServer::start().unwrap();
        let owner = connect(&server);
        wait(&list(&owner));
        let any = &*owner as &dyn Owner;
        drop(become_reader(any, || None::<()>));
        let interest = owner.0.inner.lock().interest;
        assert_eq!(interest, Some(Interest::READABLE));
        assert_eq!(owner.0.close(|_, _| ()).recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    /// The reader here gets no processor until its time is over.
    #[test]
    fn the_event_loop_reads_when_the_time_of_a_reader_is_over() {
        let server = TestServer::start().unwrap();
        let owner = connect(&server);
        wait(&list(&owner));
        let held = server.hold_requests(Op::GetChildren);
        let answers = list(&owner);
        let any = &*owner as &dyn Owner;
        let reading = become_reader(any, || answers.try_recv().ok());
        drop(held);
        wait(&answers);
        drop(reading);
        assert_eq!(owner.0.close(|_, _| ()).recv_timeout(Duration::from_secs(20)), Ok(true));
    }
}
