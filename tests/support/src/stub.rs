//! A server that sends the same bytes to every client. They are rarely ZooKeeper's protocol.
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

/// What happens to a connection after the bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Close,
    /// The first connection is closed, the later ones stay open.
    CloseFirst,
    /// The connection stays open and silent until the stub is dropped.
    Stay,
}

/// Accepts every connection, reads once, and sends the bytes.
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
                // Unread bytes would turn the close into a reset, and the client could lose the
                // sent bytes.
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

    /// A stub that accepts connections and sends nothing.
    #[track_caller]
    pub fn silent() -> Stub {
        Stub::start("", Then::Stay)
    }

    /// `host:port`.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// The number of connections that it has accepted.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // ends the wait for a connection
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
