//! One server of each variant, for all scenarios that do no harm to it. The runner starts it when
//! the first scenario asks for it, and stops it at the end.
use super::{Raw, Scratch, Server, Variant, server::Builder};
use parking_lot::Mutex;
use std::{
    env,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// Names the runner's port. A client that sends the name of a variant there gets the address of the
/// shared server.
pub const VAR: &str = "ZK_MUTEX_TEST_SHARED";

/// The shared server, as a scenario sees it.
pub struct Shared;

impl Shared {
    /// The address of the shared server (`host:port`). Starts it if it does not run yet.
    pub fn connect_string() -> String {
        let keeper = env::var(VAR).expect("scenarios are run by the runner");
        let mut answer = String::new();
        let mut connection = TcpStream::connect(keeper).expect("the runner listens");
        connection
            .write_all(Variant::current().name().as_bytes())
            .and_then(|()| connection.shutdown(Shutdown::Write))
            .expect("the runner is asked");
        connection.read_to_string(&mut answer).expect("the runner answers");
        match answer.strip_prefix("at ") {
            Some(address) => address.to_owned(),
            None => panic!("the shared server did not start:\n{answer}"),
        }
    }

    /// `host:port/unique`: the shared server with a chroot for this scenario, which exists.
    pub fn chroot() -> String {
        let address = Shared::connect_string();
        let path = format!("/t-{}", uuid::Uuid::new_v4().simple());
        Raw::connect(&address)
            .and_then(|mut raw| raw.create(&path, b"", 0))
            .expect("the scenario's chroot is made");
        address + &path
    }
}

/// The runner's side: answers the scenarios that ask for a server.
pub struct Keeper {
    address: SocketAddr,
    kept: Arc<Kept>,
}

/// The shared servers that were started.
struct Kept {
    run: PathBuf,
    real: Slot,
    embedded: Slot,
}

type Slot = Mutex<Option<Result<Server, String>>>;

impl Keeper {
    pub fn start(run: &Path) -> Keeper {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port for the runner");
        let address = listener.local_addr().expect("the runner's port");
        let kept = Arc::new(Kept {
            run: run.to_owned(),
            real: Slot::default(),
            embedded: Slot::default(),
        });
        let keeps = Arc::clone(&kept);
        // Ends with the process.
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let kept = Arc::clone(&keeps);
                thread::spawn(move || kept.answer(connection));
            }
        });
        Keeper { address, kept }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn stop(&self) {
        for slot in [&self.kept.real, &self.kept.embedded] {
            drop(slot.lock().take());
        }
    }
}

impl Kept {
    fn answer(&self, mut connection: TcpStream) {
        let mut name = String::new();
        let _ = connection.read_to_string(&mut name);
        let line = match name.as_str() {
            "real" => self.server(&self.real, Server::real()),
            "embedded" => self.server(&self.embedded, Server::embedded()),
            other => format!("there is no shared server for a scenario on {other:?}"),
        };
        let _ = connection.write_all(line.as_bytes());
    }

    fn server(&self, slot: &Slot, builder: Builder) -> String {
        let mut slot = slot.lock();
        let start = || builder.try_start(|_| Scratch::below(&self.run, "shared"));
        match slot.get_or_insert_with(start) {
            Ok(server) => format!("at {}", server.connect_string()),
            Err(why) => why.clone(),
        }
    }
}
