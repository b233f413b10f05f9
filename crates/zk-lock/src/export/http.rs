//! Serves one page over HTTP, to every client that can reach the port.
//!
//! A request is bounded in its size, and each connection in its time; so many connections at once
//! are served as there are threads. Others wait in the kernel's queue. The worst that a client can
//! do is to keep Prometheus waiting: it reaches neither ZooKeeper nor the memory of this process.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::Failure;

/// So many connections are served at once.
const CONNECTIONS: usize = 8;

/// A request must have come within this time after its connection.
const REQUEST_TIME: Duration = Duration::from_secs(3);

/// The client must have taken the page within this time after its request.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The client must have closed the connection within this time after the page.
const LINGER: Duration = Duration::from_secs(1);

/// A longer request, its headers included, is refused.
const LONGEST: usize = 8 << 10;

/// So much behind a request is read, and thrown away.
const LEFT_UNREAD: u64 = 64 << 10;

/// As many headers as one request may have.
const HEADERS: usize = 64;

/// The format of the page.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers requests for `/metrics` with the page of that moment, until the program ends.
pub fn serve(
    listener: TcpListener,
    page: impl Fn() -> Result<String, Failure> + Send + Sync + 'static,
) -> Result<(), Failure> {
    let (listener, page) = (Arc::new(listener), Arc::new(page));
    for _ in 0..CONNECTIONS {
        let (listener, page) = (listener.clone(), page.clone());
        let serve = move || {
            loop {
                match listener.accept() {
                    // A client that has gone, or is too slow, needs no answer.
                    Ok((stream, _)) => {
                        let _ = answer(stream, &*page);
                    }
                    // Without a file descriptor, for instance: others end meanwhile.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        };
        thread::Builder::new()
            .name("http".into())
            .spawn(serve)
            .map_err(|e| Failure::system(format!("no thread: {e}")))?;
    }
    Ok(())
}

fn answer(stream: TcpStream, page: impl Fn() -> Result<String, Failure>) -> io::Result<()> {
    let mut link = Link { stream, end: Instant::now() + REQUEST_TIME };
    let request = read_request(&mut link)?;
    let (status, body) = match request {
        Asked::Page { .. } => match page() {
            Ok(page) => ("200 OK", page),
            Err(failure) => ("500 Internal Server Error", failure.message),
        },
        Asked::Refused(status) => (status, format!("{status}: ask for GET /metrics\n")),
    };
    let allow = if status == NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {}\r\n{allow}\
         Connection: close\r\n\r\n",
        body.len()
    );
    link.end = Instant::now() + ANSWER_TIME;
    link.write_all(head.as_bytes())?;
    if !matches!(request, Asked::Page { head_only: true }) {
        link.write_all(body.as_bytes())?;
    }
    link.stream.shutdown(Shutdown::Write)?;
    // If something that was sent is not read, the client gets a reset in place of the answer.
    link.end = link.end.min(Instant::now() + LINGER);
    io::copy(&mut Read::take(&mut link, LEFT_UNREAD), &mut io::sink())?;
    Ok(())
}

/// What a client asks for.
enum Asked {
    Page {
        head_only: bool,
    },
    /// Not the page, so it gets this status.
    Refused(&'static str),
}

const NOT_ALLOWED: &str = "405 Method Not Allowed";

fn read_request(link: &mut Link) -> io::Result<Asked> {
    let (mut buffer, mut length) = ([0; LONGEST], 0);
    loop {
        let count = match link.read(&mut buffer[length..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Ok(Asked::Refused("408 Request Timeout"));
            }
            Err(e) => return Err(e),
        };
        length += count;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&buffer[..length]) {
            Ok(httparse::Status::Complete(_)) => return Ok(asked(&request)),
            Ok(httparse::Status::Partial) if length < LONGEST => {}
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Ok(Asked::Refused("431 Request Header Fields Too Large"));
            }
            Err(_) => return Ok(Asked::Refused("400 Bad Request")),
        }
    }
}

fn asked(request: &httparse::Request<'_, '_>) -> Asked {
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match (path, request.method) {
        ("/metrics", Some("GET")) => Asked::Page { head_only: false },
        ("/metrics", Some("HEAD")) => Asked::Page { head_only: true },
        ("/metrics", _) => Asked::Refused(NOT_ALLOWED),
        _ => Asked::Refused("404 Not Found"),
    }
}

/// A connection that ends at its time, however slowly bytes come and go.
struct Link {
    stream: TcpStream,
    end: Instant,
}

impl Link {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Systems have two names for a time that is over.
fn timed<T>(done: io::Result<T>) -> io::Result<T> {
    done.map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => e,
    })
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        timed(self.stream.read(buffer))
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        timed(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
