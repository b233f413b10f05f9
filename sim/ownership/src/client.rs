//! The client of the model: the library's own machine, in the copy of one rule.

use std::cell::Cell;
use std::hash::DefaultHasher;

/// The session timeout in milliseconds. With it a late create is remembered for 10 T and T more.
pub const T: u64 = 6_000;

/// The path of the client's write without an effect.
pub const NOOP: &str = "/no-op/none";

/// A lock that the client asks for.
#[derive(Clone, Debug, Hash)]
pub struct Lock {
    /// The name of its node has an id; the nodes of other locks have one common name.
    pub is_named: bool,
    pub id: String,
    pub path: String,
}

impl Lock {
    pub fn new(is_named: bool, number: usize) -> Self {
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let path = if is_named { format!("/l/_c_{id}-lock-") } else { "/l/lock".into() };
        Lock { is_named, id, path }
    }

    pub fn data(&self) -> Vec<u8> {
        if self.is_named { Vec::new() } else { format!("{}\n", self.id).into_bytes() }
    }
}

/// What the machine lets its owner know.
#[derive(Clone, Debug)]
pub enum Said {
    /// A call is answered; it has made this node, of this czxid, or none.
    Answered(u64, Option<(String, i64)>),
    /// The machine has given the connection up.
    Cut,
    /// The session has ended.
    Lost(String),
}

/// The end of the machine at which the model drives it. All times are in milliseconds.
pub trait Client {
    fn copied(&self) -> Box<dyn Client>;
    fn hash(&self, h: &mut DefaultHasher);
    /// The connection breaks, if there is one, and a socket to another server is connected. Gives
    /// the connect request.
    fn dial(&mut self, now: u64) -> Vec<u8>;
    fn hang_up(&mut self, now: u64);
    fn bytes(&mut self, bytes: &[u8], now: u64);
    /// The event loop wakes up at the time that `next` has named.
    fn wake(&mut self, now: u64);
    fn next(&self) -> Option<u64>;
    /// Takes the bytes for the server.
    fn sent(&mut self) -> Vec<u8>;
    fn said(&mut self) -> Vec<Said>;
    /// A caller asks for this lock; gives the number of its call.
    fn lock(&mut self, lock: &Lock, now: u64) -> u64;
    fn abandon(&mut self, call: u64, now: u64);
    fn release(&mut self, lock: &Lock, path: &str, czxid: i64, now: u64);
    /// From now on a hold depends on the lease.
    fn hold(&mut self);
    fn is_up(&self) -> bool;
    /// Whether servers have taken the session up for T and have not served it: then the client lets
    /// it go.
    fn was_let_go(&self, now: u64) -> bool;
    /// Whether the node with this id is among the pending deletes.
    fn is_pending(&self, id: &str) -> bool;
    fn lease_end(&self) -> Option<u64>;
}

thread_local! {
    static HASHED_AT: Cell<i64> = const { Cell::new(0) };
}

/// Times are hashed as the distance from this time.
pub fn hashed_at() -> i64 {
    HASHED_AT.get()
}

pub fn hash_at(now: u64) {
    HASHED_AT.set(now as i64);
}
