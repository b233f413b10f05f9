//! Locks that Prometheus can watch: a service that takes locks and serves its metrics over HTTP.
//!
//!     cargo run -p zk-mutex-bench --example prometheus              # five seconds, then it ends
//!         SECONDS=600 LISTEN=127.0.0.1:9464 cargo run -p zk-mutex-bench --example prometheus
//!     curl http://127.0.0.1:9464/metrics # meanwhile
//!
//! Two sessions stand for two processes. Their threads take a mutex, read and write locks, permits
//! of a semaphore and a leadership, on an embedded test server, which now and then answers slowly,
//! cuts the connections, and ends a session. So there is something to see on the dashboard
//! (`docs/grafana-dashboard.json`). It is not among the other examples since the exporter would
//! cost each of them fifteen more crates to compile.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, error};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use zk_mutex::{
    CancelToken, Config, MetricsObserver, Wait, ZkElection, ZkMutex, ZkRwLock, ZkSemaphore,
    ZkSession,
};
use zk_test_server::TestServer;

type Result<T> = std::result::Result<T, Box<dyn error::Error + Send + Sync>>;

/// The bounds of all histograms, in seconds. The dashboard computes quantiles from them.
const BUCKETS: [f64; 18] = [
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0,
    10.0, 30.0,
];

/// T: a short one, so that a lost session is soon replaced.
const TIMEOUT: Duration = Duration::from_secs(6);

fn main() -> Result<()> {
    let seconds = env::var("SECONDS").map_or(Ok(5), |seconds| seconds.parse())?;
    // The recorder first: what happens before it is there is not recorded.
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install_recorder()?;
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    println!("metrics are at http://{address}/metrics for {seconds} s");
    thread::spawn(move || serve(&listener, &recorder));

    let server = TestServer::start()?;
    let stop = CancelToken::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    let sessions = [(); 2].map(|()| {
        ZkSession::builder(Config::new(server.connect_string()).session_timeout(TIMEOUT))
            .observer(MetricsObserver::default())
            .connect()
    });
    thread::scope(|scope| {
        for session in sessions {
            let (session, stop) = (session?, &stop);
            for worker in 0..3 {
                let session = session.clone();
                scope.spawn(move || report(work(&session, worker, until)));
            }
            scope.spawn(move || report(lead(&session, stop)));
        }
        trouble(&server, until);
        stop.cancel();
        Ok::<(), Box<dyn error::Error + Send + Sync>>(())
    })?;

    let mut page = String::new();
    let mut client = TcpStream::connect(address)?;
    client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    client.read_to_string(&mut page)?;
    let acquired = page.lines().find(|line| {
        line.starts_with("zkmutex_lock_wait_seconds_count") && line.contains("\"acquired\"")
    });
    println!("one of {} lines: {}", page.lines().count(), acquired.ok_or("no lock was taken")?);
    Ok(())
}

/// Answers each request with all metrics. A real program lets the exporter do this, with its
/// feature `http-listener`.
fn serve(listener: &TcpListener, recorder: &PrometheusHandle) {
    for stream in listener.incoming() {
        let answer = || -> io::Result<()> {
            let mut stream = stream?;
            let mut head = BufReader::new(&stream).lines();
            while head.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
            let page = recorder.render();
            write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len())
        };
        let _ = answer(); // a client that has left
    }
}

/// Takes locks until the time is over.
fn work(session: &ZkSession, worker: u64, until: Instant) -> Result<()> {
    // The name, and not the path, is the label.
    let orders = ZkMutex::builder(session, "/locks/orders").name("orders").build()?;
    let rates = ZkRwLock::builder(session, "/locks/rates").name("rates").build()?;
    let uploads = ZkSemaphore::builder(session, "/locks/uploads", 2).name("uploads").build()?;
    let soon = || Wait::timeout(Duration::from_millis(200));
    for round in 0.. {
        if Instant::now() >= until {
            break;
        }
        let pause = Duration::from_millis(3 + 5 * ((round + worker) % 4));
        // Others have it, or there is an outage: the worker goes on with something else.
        if let Ok(_order) = orders.lock_with(soon()) {
            thread::sleep(pause);
        }
        if round % 8 == 0 {
            drop(rates.write_with(soon()));
        } else if let Ok(_rates) = rates.read_with(soon()) {
            thread::sleep(pause);
        }
        if let Ok(_upload) = uploads.acquire_with(soon()) {
            thread::sleep(pause);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Leads for two seconds at a time.
fn lead(session: &ZkSession, stop: &CancelToken) -> Result<()> {
    let election = ZkElection::builder(session, "/elections/nightly").name("nightly").build()?;
    let ended = election.run_until_cancelled(stop, |leadership| {
        leadership.lost().wait(Duration::from_secs(2));
        if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match ended {
        Err(zk_mutex::Error::Cancelled { .. }) | Ok(()) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// What happens to a server: it is slow for a while, connections are cut, a session ends.
fn trouble(server: &TestServer, until: Instant) {
    for second in 1u32.. {
        thread::sleep(Duration::from_secs(1).min(until - Instant::now().min(until)));
        if Instant::now() >= until {
            break;
        }
        match second % 60 {
            15 => server.delay(Duration::from_millis(15)),
            25 => server.delay(Duration::ZERO),
            35 => server.cut_connections(),
            45 => server.refuse(true),
            46 => server.cut_connections(),
            50 => server.refuse(false),
            0 => {
                if let Some(session) = server.sessions().first() {
                    server.expire_session(session.id);
                }
            }
            _ => {}
        }
    }
}

fn report(outcome: Result<()>) {
    if let Err(e) = outcome {
        eprintln!("{e}");
    }
}
