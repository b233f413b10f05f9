//! Everything that the library needs from outside: time, threads, locks, channels, random numbers,
//! sockets, and statics.
//!
//! In a normal build these are re-exports of the standard library, `crossbeam-channel`,
//! `parking_lot` and `mio`. In the simulation (`sim/`, which compiles the library with
//! `cfg(zk_sim)`) the same names come from `sim/runtime`: a virtual clock, threads of which one
//! runs at a time, a network in memory. If a module took a clock, a lock or a random number from
//! anywhere else, the simulation would differ from run to run. Hash maps are here too, because the
//! standard library's hash maps have a random order of iteration. `Arc` is the same in both. The
//! modules `client` and `tls` are not part of the simulation.

#[cfg(not(zk_sim))]
pub use self::real::*;
#[cfg(zk_sim)]
pub use zk_sim_runtime::library::*;

/// Whether the calling thread holds no lock of the library. Foreign code (the application's logger,
/// an observer, a callback) must run under none: it may block, and would hold up other threads.
/// Only test builds count the locks.
#[cfg(not(all(debug_assertions, any(test, feature = "test"), not(zk_sim))))]
pub fn holds_no_lock() -> bool {
    true
}

#[cfg(not(zk_sim))]
#[allow(unused_imports)] // one list for all features and platforms
mod real {
    use std::cell::Cell;
    use std::io;
    use std::net::SocketAddr;
    use std::time::{Duration, SystemTime};

    pub use std::collections::{HashMap, HashSet};
    pub use std::sync::{LazyLock, OnceLock, atomic};
    pub use std::thread;
    pub use std::time::Instant;

    #[cfg(all(debug_assertions, any(test, feature = "test")))]
    pub use crate::counted::{Mutex, holds_no_lock};
    pub use crossbeam_channel::{
        Receiver, RecvTimeoutError, Select, Sender, TrySendError, bounded, never, unbounded,
    };
    pub use forkguard::Guard as ForkGuard;
    pub use mio::net::TcpStream;
    pub use mio::{Events, Interest, Poll, Registry, Token, Waker};
    #[cfg(not(all(debug_assertions, any(test, feature = "test"))))]
    pub use parking_lot::Mutex;

    /// The time since the start of a clock that goes on while the host sleeps.
    #[cfg(unix)]
    pub fn boot_time() -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        // On Apple systems CLOCK_MONOTONIC itself goes on during sleep.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let now = clock_gettime(ClockId::Boottime);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(
            u64::try_from(now.tv_sec).unwrap_or(0),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        )
    }

    /// On Windows `Instant` counts sleep.
    #[cfg(not(unix))]
    pub fn boot_time() -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    pub fn wall_time() -> SystemTime {
        SystemTime::now()
    }

    /// The calling thread's id.
    pub fn this_thread() -> thread::ThreadId {
        thread_local! {
            /// It needs no destructor, so the destructors of all other thread-locals can use it.
            static THIS: Cell<Option<thread::ThreadId>> = const { Cell::new(None) };
        }
        // Kept, because `thread::current().id()` takes and drops a reference to the thread each
        // time.
        THIS.with(|this| {
            this.get().unwrap_or_else(|| {
                let id = thread::current().id();
                this.set(Some(id));
                id
            })
        })
    }

    thread_local! {
        static IS_OWN: Cell<bool> = const { Cell::new(false) };
    }

    /// Starts a thread of the library. Each thread of the library is started here.
    pub fn spawn_own<T: Send + 'static>(
        name: String,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<thread::JoinHandle<T>> {
        thread::Builder::new().name(name).spawn(move || {
            IS_OWN.set(true);
            body()
        })
    }

    /// Whether the calling thread is one of the library's, and not one of the application's.
    pub fn is_own_thread() -> bool {
        IS_OWN.get()
    }

    /// Host and process id, so that an operator can find this process.
    pub fn host_and_process() -> String {
        #[cfg(unix)]
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        #[cfg(not(unix))]
        let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "?".into());
        format!("{host}:{}", std::process::id())
    }

    /// Looks a host name up. This blocks. The error [`io::ErrorKind::NotFound`] says that there is
    /// no such name, or that it has no address; any other error leaves that open.
    pub fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
        let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
        let found = getaddrinfo(Some(name), None, Some(hints)).map_err(|e| match e.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => {
                io::Error::new(io::ErrorKind::NotFound, e.to_string())
            }
            _ => e.into(),
        })?;
        let address = |found: io::Result<dns_lookup::AddrInfo>| {
            let mut addr = found?.sockaddr;
            addr.set_port(port);
            Ok(addr)
        };
        found.map(address).collect()
    }

    pub fn new_uuid() -> uuid::Uuid {
        uuid::Uuid::new_v4()
    }

    /// A random number, at least zero and below one.
    pub fn random() -> f64 {
        fastrand::f64()
    }

    pub fn shuffle<T>(items: &mut [T]) {
        fastrand::shuffle(items);
    }

    /// What an event loop waits for at a socket. These functions replace the registry's own methods,
    /// which call the application's logger: it may block or panic, and the event loop must not.
    #[cfg(unix)]
    pub mod socket {
        use std::io;
        use std::os::fd::AsRawFd;
        use std::time::Duration;

        use mio::event::Source;
        use mio::unix::SourceFd;
        use mio::{Interest, Registry, Token};
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::io::Errno;

        use super::TcpStream;

        pub fn register(
            socket: &TcpStream,
            registry: &Registry,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            SourceFd(&socket.as_raw_fd()).register(registry, token, interest)
        }

        pub fn reregister(
            socket: &TcpStream,
            registry: &Registry,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            SourceFd(&socket.as_raw_fd()).reregister(registry, token, interest)
        }

        pub fn deregister(socket: &TcpStream, registry: &Registry) -> io::Result<()> {
            SourceFd(&socket.as_raw_fd()).deregister(registry)
        }

        /// Waits until a read would return at once: with bytes, with the end of the stream, or with
        /// an error. False if that is not so within `timeout` (less than a second), or if a Unix
        /// signal came.
        pub fn wait_readable(socket: &TcpStream, timeout: Duration) -> io::Result<bool> {
            let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
            match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => Ok(ready > 0),
                Err(Errno::INTR) => Ok(false),
                Err(e) => Err(e.into()),
            }
        }
    }

    /// On this platform the registry's own method is the only one. It calls the application's logger
    /// at the level `trace`.
    #[cfg(not(unix))]
    pub mod socket {
        use std::io;

        use mio::{Interest, Registry, Token};

        use super::TcpStream;

        pub fn register(
            socket: &mut TcpStream,
            registry: &Registry,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            registry.register(socket, token, interest)
        }
    }
}
