//! A service for Kubernetes or systemd: it works while it leads, answers probes over HTTP, and ends
//! in order at SIGTERM or Ctrl-C.
//!
//!     LISTEN=127.0.0.1:8080 cargo run --example probes    # curl -i http://127.0.0.1:8080/ready
//!
//! - `/live` is 200 while the thread that works goes round its loop, whatever ZooKeeper does: to be
//!   started anew would not help in an outage, and would cost the place in the queue.
//! - `/ready` is 200 while the session is connected: calls for locks wait meanwhile, or fail.
//!
//! Both only look at what the process knows already: no probe sends a request to ZooKeeper. Without
//! `LISTEN` the example asks itself, and ends when it has led for a second. The files in
//! docs/deployment start such a program.

mod common;

use common::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};
use zk_mutex::{CancelToken, Error, Leadership, SessionState, Wait, ZkElection, ZkSession};

const PATH: &str = "/zk-mutex/probes";
/// One step of the work, and how often a candidate looks whether it is to end.
const STEP: Duration = Duration::from_millis(100);
/// A loop that has not gone round for so long hangs. Longer than any step may take.
const HANGS: Duration = Duration::from_secs(10);
/// For how long the example waits to lead, if nobody listens to it.
const PATIENCE: Duration = Duration::from_secs(30);

struct Service {
    session: ZkSession,
    stop: CancelToken,
    /// When the loop went round last.
    round: Mutex<Instant>,
    leads: AtomicBool,
}

fn main() -> ExitCode {
    common::example(serve)
}

fn serve(server: &str) -> Result<()> {
    let listen = env::var("LISTEN").ok();
    let service = Service {
        // The service may start before its ZooKeeper: it is not ready then, and lives.
        session: ZkSession::builder(server).connect_in_background()?,
        stop: CancelToken::new(),
        round: Mutex::new(Instant::now()),
        leads: AtomicBool::new(false),
    };
    let signal = service.stop.clone();
    ctrlc::set_handler(move || signal.cancel())?; // SIGTERM too: see the example `shutdown`

    let listener = TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    println!("probes: http://{address}/live and http://{address}/ready");
    let worked = thread::scope(|scope| {
        let probes = scope.spawn(|| service.answer(&listener));
        let worked = service.work(listen.is_none().then_some(address));
        service.stop.cancel();
        let _ = TcpStream::connect(address); // so that the thread of the probes looks
        common::join(probes);
        worked
    });
    // The candidate has left, and the next one leads. This takes a second at most, and a process
    // that ends without it keeps others waiting until the servers expire its session.
    let closed = service.session.close();
    let steps = worked?;
    println!("led for {steps} steps");
    Ok(closed?)
}

impl Service {
    /// Works while it leads, until it is to end. With an address it asks its own probes there.
    fn work(&self, probes: Option<SocketAddr>) -> Result<u32> {
        let begun = Instant::now();
        let candidate = ZkElection::new(&self.session, PATH)?.join()?;
        let mut steps = 0;
        while !self.stop.is_cancelled() {
            *self.round.lock().unwrap() = Instant::now();
            // The candidate keeps its place in the queue between two of these calls.
            match candidate.wait_leader_with(Wait::timeout(STEP).cancelled_by(&self.stop)) {
                Ok(leadership) => steps += self.lead(&leadership, probes)?,
                Err(Error::Cancelled { .. }) => {}
                Err(error) if error.is_contended() || error.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
            if probes.is_some() && begun.elapsed() > PATIENCE {
                return Err(format!("it has not led for a second within {PATIENCE:?}").into());
            }
        }
        Ok(steps)
    }

    /// Works until the leadership is lost, or the service is to end; gives the number of steps.
    fn lead(&self, leadership: &Leadership, probes: Option<SocketAddr>) -> Result<u32> {
        println!("leads under the token {}", leadership.fencing_token());
        self.leads.store(true, Ordering::Relaxed);
        let lost = leadership.lost();
        let mut steps = 0;
        while !self.stop.is_cancelled() && lost.wait(STEP).is_none() {
            steps += 1; // A program would do a step of its work here.
            *self.round.lock().unwrap() = Instant::now();
            if let Some(address) = probes.filter(|_| steps == 10) {
                for probe in ["/live", "/ready"] {
                    let answer = ask(address, probe)?;
                    println!("{probe}: {answer}");
                    common::must(answer.starts_with("HTTP/1.1 200 "), probe)?;
                }
                self.stop.cancel(); // as SIGTERM does
            }
        }
        self.leads.store(false, Ordering::Relaxed);
        Ok(steps)
    }

    /// Answers probes, one after the other, until the service ends.
    fn answer(&self, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stop.is_cancelled() {
                break;
            }
            // Who asks may have gone, or say nothing: that is no trouble of this service.
            let _ = stream.and_then(|stream| self.reply(stream));
        }
    }

    fn reply(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        // To the empty line: a connection that is closed with bytes unread is broken for the other.
        let lines = BufReader::new((&stream).take(16 << 10)).lines().map_while(|line| line.ok());
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let (code, body) = match head.first().and_then(|line| line.split(' ').nth(1)) {
            Some("/live") => self.live(),
            Some("/ready") => self.ready(),
            _ => ("404 Not Found", "/live or /ready".into()),
        };
        let length = body.len() + 1;
        let headers = format!("Content-Type: text/plain\r\nContent-Length: {length}");
        let answer = format!("HTTP/1.1 {code}\r\n{headers}\r\nConnection: close\r\n\r\n{body}\n");
        stream.write_all(answer.as_bytes())
    }

    fn live(&self) -> (&'static str, String) {
        let ago = self.round.lock().unwrap().elapsed();
        let code = if ago < HANGS { "200 OK" } else { "503 Service Unavailable" };
        (code, format!("the loop went round {ago:.1?} ago"))
    }

    fn ready(&self) -> (&'static str, String) {
        let status = self.session.status();
        let is_connected = status.state == SessionState::Connected;
        let code = if is_connected { "200 OK" } else { "503 Service Unavailable" };
        let leads = if self.leads.load(Ordering::Relaxed) { "leads" } else { "does not lead" };
        let left = status.lease_remaining;
        (code, format!("{:?}, {leads}, {left:.1?} left of the lease", status.state))
    }
}

/// What the service answers to a probe: its first line, and its body.
fn ask(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let first = answer.lines().next().unwrap_or_default();
    Ok(format!("{first} | {}", answer.lines().last().unwrap_or_default()))
}
