//! Scenarios that the runner has to fail (one has to pass). They run only inside
//! `runner::selftest`.
use crate::support::{Server, scenarios};
use std::{
    mem,
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

fn leaves_a_thread() {
    let park = || {
        loop {
            thread::park();
        }
    };
    thread::Builder::new().name("forgotten".into()).spawn(park).unwrap();
}

fn leaves_a_socket() {
    mem::forget(TcpListener::bind("127.0.0.1:0").unwrap());
}

fn leaves_a_process() {
    mem::forget(Command::new("sleep").arg("1000").spawn().unwrap());
}

fn panics() {
    println!("said before the panic");
    panic!("as told");
}

fn dies() {
    std::process::abort();
}

fn never_ends() {
    println!("said before the hang");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1000) {
        thread::park_timeout(Duration::from_secs(1));
    }
}

fn ends_its_thread_a_little_late() {
    thread::spawn(|| thread::sleep(Duration::from_millis(200)));
}

fn holds_a_server() {
    let server = Server::start();
    println!("{}", server.connect_string());
    loop {
        thread::park();
    }
}

scenarios![
    leaves_a_thread on none,
    leaves_a_socket on none,
    leaves_a_process on none,
    panics on none,
    dies on none,
    never_ends on none within 3,
    ends_its_thread_a_little_late on none,
    holds_a_server,
];
