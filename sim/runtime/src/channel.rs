//! Channels and `Select`, with the interface of `crossbeam-channel`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
};

use crate::core::{self, Tid};
use crate::time::Instant;
use crate::trace::Op;

struct Channel<T> {
    id: u64,
    room: usize,
    state: parking_lot::Mutex<State<T>>,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
    /// The threads that wait for a message. `writers` wait for room.
    readers: Vec<Tid>,
    writers: Vec<Tid>,
}

/// See `crossbeam_channel::Sender`.
pub struct Sender<T>(Arc<Channel<T>>);

/// See `crossbeam_channel::Receiver`.
pub struct Receiver<T>(Arc<Channel<T>>);

/// A channel with room for so many messages. With room for none, only its disconnection can be
/// observed: nothing can be sent.
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    make(room, 1)
}

/// A channel with room for any number of messages.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    make(usize::MAX, 1)
}

/// A channel that is never ready.
pub fn never<T>() -> Receiver<T> {
    let (sender, receiver) = make(0, 2);
    drop(sender);
    receiver
}

fn make<T>(room: usize, senders: usize) -> (Sender<T>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        senders,
        receivers: 1,
        readers: Vec::new(),
        writers: Vec::new(),
    };
    let channel =
        Arc::new(Channel { id: core::new_object(), room, state: parking_lot::Mutex::new(state) });
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Channel<T> {
    fn wake(threads: &[Tid]) {
        core::try_with(|sim| sim.wake_all(threads));
    }

    fn take(&self) -> Result<T, TryRecvError> {
        let mut state = self.state.lock();
        match state.queue.pop_front() {
            Some(message) => {
                Self::wake(&state.writers);
                Ok(message)
            }
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    fn put(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = self.state.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(message));
        }
        assert!(self.room > 0, "a channel without room");
        if state.queue.len() >= self.room {
            return Err(TrySendError::Full(message));
        }
        state.queue.push_back(message);
        Self::wake(&state.readers);
        Ok(())
    }
}

impl<T> Sender<T> {
    /// As crossbeam's.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        core::point(Op::Send, self.0.id);
        self.0.put(message)
    }

    /// As crossbeam's: waits for room.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        core::point(Op::Send, self.0.id);
        let mut message = message;
        loop {
            message = match self.0.put(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(message)) => return Err(SendError(message)),
                Err(TrySendError::Full(message)) => message,
            };
            core::with(|sim| {
                self.0.state.lock().writers.extend(sim.current());
                sim.block("room in channel", self.0.id, None);
                self.0.state.lock().writers.retain(|other| Some(*other) != sim.current());
            });
        }
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Receiver<T> {
    /// As crossbeam's.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        core::point(Op::Receive, self.0.id);
        self.0.take()
    }

    /// As crossbeam's.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.wait(None).map_err(|_| RecvError)
    }

    /// As crossbeam's.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.recv_deadline(deadline),
            None => self.recv().map_err(RecvTimeoutError::from),
        }
    }

    /// As crossbeam's.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.wait(Some(deadline))
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        core::point(Op::Receive, self.0.id);
        loop {
            match self.0.take() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let is_late = core::with(|sim| {
                if deadline.is_some_and(|deadline| Instant::now_at(sim) >= deadline) {
                    return true;
                }
                self.0.state.lock().readers.extend(sim.current());
                sim.block("channel", self.0.id, deadline.map(Instant::nanos));
                self.0.state.lock().readers.retain(|other| Some(*other) != sim.current());
                false
            });
            if is_late {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }

    /// As crossbeam's.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// As crossbeam's.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The messages until the channel is disconnected.
pub struct Iter<'a, T>(&'a Receiver<T>);

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.0.state.lock();
            state.senders -= 1;
            if state.senders == 0 {
                Channel::<T>::wake(&state.readers);
            }
            state.senders == 0
        };
        if is_last {
            core::point(Op::Disconnect, self.0.id);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.state.lock();
            state.receivers -= 1;
            if state.receivers > 0 {
                return;
            }
            Channel::<T>::wake(&state.writers);
            std::mem::take(&mut state.queue)
        };
        drop(left); // outside the lock, because dropping a message runs foreign code
        core::point(Op::Disconnect, self.0.id);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({})", self.0.id)
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({})", self.0.id)
    }
}

/// A channel of any message type, as `Select` sees it.
trait Readable {
    fn is_ready(&self) -> bool;
    fn join(&self, thread: Tid);
    fn part(&self, thread: Tid);
}

impl<T> Readable for Channel<T> {
    fn is_ready(&self) -> bool {
        let state = self.state.lock();
        !state.queue.is_empty() || state.senders == 0
    }

    fn join(&self, thread: Tid) {
        self.state.lock().readers.push(thread);
    }

    fn part(&self, thread: Tid) {
        self.state.lock().readers.retain(|other| *other != thread);
    }
}

/// See `crossbeam_channel::Select`: receiving from one of several channels.
#[derive(Default)]
pub struct Select<'a> {
    channels: Vec<&'a dyn Readable>,
}

impl<'a> Select<'a> {
    /// A `Select` without channels.
    pub fn new() -> Select<'a> {
        Select::default()
    }

    /// Adds a channel and returns its number.
    pub fn recv<T>(&mut self, channel: &'a Receiver<T>) -> usize {
        self.channels.push(&*channel.0);
        self.channels.len() - 1
    }

    /// Waits until a channel is ready: it has a message, or is disconnected.
    pub fn ready(&mut self) -> usize {
        self.wait(None).unwrap_or(0)
    }

    /// As `ready`, but returns at the deadline at the latest.
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        self.wait(Some(deadline)).ok_or(ReadyTimeoutError)
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<usize> {
        core::point(Op::Select, 0);
        loop {
            let ready: Vec<usize> = (0..self.channels.len())
                .filter(|number| self.channels[*number].is_ready())
                .collect();
            if !ready.is_empty() {
                return Some(core::with(|sim| {
                    ready[sim.library_rng.borrow_mut().usize(..ready.len())]
                }));
            }
            let is_late = core::with(|sim| {
                if deadline.is_some_and(|deadline| Instant::now_at(sim) >= deadline) {
                    return true;
                }
                let thread = sim.current().expect("the world must not wait");
                self.channels.iter().for_each(|channel| channel.join(thread));
                sim.block("one of several channels", 0, deadline.map(Instant::nanos));
                self.channels.iter().for_each(|channel| channel.part(thread));
                false
            });
            if is_late {
                return None;
            }
        }
    }
}
