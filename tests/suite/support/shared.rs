//! One server for all scenarios that do no harm to it: the runner starts it when the first scenario asks, and stops it at the end.
use super::{Raw, Scratch, Server};
use std::{
    env,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Names the runner's port, where a connection is answered with the shared server's address.
pub const VAR: &str = "ZK_MUTEX_TEST_SHARED";

/// The shared server, as a scenario sees it.
pub struct Shared;

impl Shared {
    /// `host:port` of the shared server, which is started if it was not yet.
    pub fn connect_string() -> String {
        let keeper = env::var(VAR).expect("scenarios are run by the runner");
        let mut answer = String::new();
        let mut connection = TcpStream::connect(keeper).expect("the runner listens");
        connection.read_to_string(&mut answer).expect("the runner answers");
        match answer.strip_prefix("at ") {
            Some(address) => address.to_owned(),
            None => panic!("the shared server did not start:\n{answer}"),
        }
    }

    /// `host:port/unique`: the shared server with a chroot of the scenario's own, which exists.
    pub fn chroot() -> String {
        let address = Shared::connect_string();
        let path = format!("/t-{}", uuid::Uuid::new_v4().simple());
        Raw::connect(&address)
            .and_then(|mut raw| raw.create(&path, b"", 0))
            .expect("the scenario's chroot is made");
        address + &path
    }
}

/// The runner's side: answers who asks for the server.
pub struct Keeper {
    address: SocketAddr,
    server: Arc<Mutex<Option<Result<Server, String>>>>,
}

impl Keeper {
    pub fn start(run: &Path) -> Keeper {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port for the runner");
        let address = listener.local_addr().expect("the runner's port");
        let server = Arc::new(Mutex::new(None));
        let (state, run) = (Arc::clone(&server), run.to_owned());
        // Ends with the process.
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (state, run) = (Arc::clone(&state), run.clone());
                thread::spawn(move || answer(connection, &state, run));
            }
        });
        Keeper { address, server }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn stop(&self) {
        drop(self.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn answer(mut connection: TcpStream, state: &Mutex<Option<Result<Server, String>>>, run: PathBuf) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let server = state.get_or_insert_with(|| Server::builder().try_start(Scratch::below(&run, "shared")));
    let line = match server {
        Ok(server) => format!("at {}", server.connect_string()),
        Err(why) => why.clone(),
    };
    let _ = connection.write_all(line.as_bytes());
}
