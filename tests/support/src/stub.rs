//! A server of a test's own making: it says to everyone what it was told to say, which is rarely
//! ZooKeeper's protocol.
use super::own_loopback;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// What becomes of a connection after the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Close,
    /// The first is closed, the later ones stay open.
    CloseFirst,
    /// It stays open, and nothing more is said, until the stub is dropped.
    Stay,
}

/// Takes every connection, hears the client out once, speaks.
pub struct Stub {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Stub {
    #[track_caller]
    pub fn start(words: impl Into<Vec<u8>>, then: Then) -> Stub {
        let listener = TcpListener::bind((own_loopback(), 0)).expect("the stub listens");
        let address = listener.local_addr().expect("the stub's address");
        let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count, words) = (Arc::clone(&stop), Arc::clone(&taken), words.into());
        let serve = move || {
            let mut open = Vec::new();
            for mut client in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let earlier = count.fetch_add(1, Ordering::SeqCst);
                // Unread bytes would make the close a reset, and the words be lost.
                let _ = client.set_read_timeout(Some(Duration::from_secs(1)));
                let _ = client.read(&mut [0; 1024]);
                let _ = client.write_all(&words);
                if then == Then::Stay || (then == Then::CloseFirst && earlier > 0) {
                    open.push(client);
                }
            }
        };
        let thread =
            thread::Builder::new().name("stub".into()).spawn(serve).expect("a thread for the stub");
        Stub { address, stop, taken, thread: Some(thread) }
    }

    /// One that takes connections and says nothing.
    #[track_caller]
    pub fn silent() -> Stub {
        Stub::start("", Then::Stay)
    }

    /// `host:port`.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// How many connections it has taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes it
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
