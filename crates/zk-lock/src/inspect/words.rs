//! The four-letter words, and other questions to one server, asked as the session connects: in
//! plain text, or over TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::cli::Common;
use crate::time::show;

/// How long the connection may take, and then the answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The same for an answer over TLS: the first handshake of a server that has just started takes
/// seconds.
#[cfg(feature = "tls")]
const TLS_LIMIT: Duration = Duration::from_secs(6);
/// The longest answer that is read.
const LONGEST: u64 = 16 << 20;
/// The content type of an alert, the first byte of what a server of TLS answers to plain text.
const ALERT: u8 = 0x15;

#[cfg(feature = "tls")]
mod tls;
/// Without the feature no connection is over TLS.
#[cfg(not(feature = "tls"))]
mod tls {
    pub enum Client {}
}

/// A connection to a server.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// How the servers are asked.
pub struct Words {
    /// The settings of TLS, or why they cannot be used.
    tls: Option<Result<tls::Client, String>>,
}

/// Why a server has not answered a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The word is not in its whitelist.
    NotAllowed(String),
    /// It does not speak plain text.
    WantsTls,
    /// No connection over TLS is made.
    NoTls(String),
    /// It closed the connection, or the time was over.
    NoAnswer(String),
}

impl Silence {
    pub fn why(&self) -> String {
        match self {
            Silence::NotAllowed(word) => format!("its whitelist does not have {word}"),
            Silence::WantsTls => "it speaks TLS, and was asked in plain text".to_owned(),
            Silence::NoTls(why) => format!("no connection over TLS: {why}"),
            Silence::NoAnswer(why) => why.clone(),
        }
    }

    pub fn advice(&self) -> &'static str {
        match self {
            Silence::NotAllowed(_) => {
                "allow it: 4lw.commands.whitelist=srvr,conf,wchp,cons in zoo.cfg"
            }
            Silence::WantsTls => "connect over TLS: --tls-ca, and --tls-cert if it wants one",
            Silence::NoTls(_) => {
                "see --tls-ca, --tls-cert and --tls-key, that the port is the server's \
                 secureClientPort, and the server's log"
            }
            Silence::NoAnswer(_) => {
                "a port for TLS does not answer plain text (then give --tls-ca), and one for plain \
                 text does not answer TLS; otherwise its log may say why"
            }
        }
    }
}

impl Words {
    pub fn new(common: &Common) -> Words {
        #[cfg(feature = "tls")]
        let tls = tls::Client::new(&common.tls).transpose();
        #[cfg(not(feature = "tls"))]
        let tls = {
            let _ = common;
            None
        };
        Words { tls }
    }

    /// The answer to a four-letter word.
    pub fn ask(&self, host: &str, word: &str) -> Result<String, Silence> {
        let stream = self.open(host)?;
        let answer = exchange(stream, word).map_err(|e| self.silence(&e))?;
        if answer.first() == Some(&ALERT) {
            return Err(Silence::WantsTls);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if answer.contains("is not executed because") {
            return Err(Silence::NotAllowed(word.to_owned()));
        }
        if answer.is_empty() {
            return Err(Silence::NoAnswer(CLOSED.to_owned()));
        }
        Ok(answer)
    }

    /// A connection to a server. Over TLS the first write makes the handshake.
    pub fn open(&self, host: &str) -> Result<Box<dyn Stream>, Silence> {
        let socket = connect(host).map_err(Silence::NoAnswer)?;
        match &self.tls {
            None => Ok(Box::new(socket)),
            #[cfg(feature = "tls")]
            Some(Ok(client)) => {
                let _ = socket.set_read_timeout(Some(TLS_LIMIT));
                Ok(Box::new(client.stream(host, socket).map_err(Silence::NoTls)?))
            }
            #[cfg(not(feature = "tls"))]
            Some(Ok(client)) => match *client {},
            Some(Err(why)) => Err(Silence::NoTls(why.clone())),
        }
    }

    /// Why a connection of [`open`](Self::open) gives no answer.
    pub fn silence(&self, error: &io::Error) -> Silence {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return match error.get_ref() {
                Some(_) => Silence::NoTls(error.to_string()),
                None => no_answer(error, TLS_LIMIT),
            };
        }
        no_answer(error, LIMIT)
    }
}

/// How long it takes to connect to a server, or why that fails.
pub fn dial(host: &str) -> Result<Duration, String> {
    let began = Instant::now();
    connect(host).map(|_| began.elapsed())
}

fn connect(host: &str) -> Result<TcpStream, String> {
    let mut addresses =
        host.to_socket_addrs().map_err(|e| format!("its name cannot be resolved: {e}"))?;
    let address = addresses.next().ok_or("its name has no address")?;
    let socket = TcpStream::connect_timeout(&address, LIMIT).map_err(|e| e.to_string())?;
    let limits = socket.set_read_timeout(Some(LIMIT)).and(socket.set_write_timeout(Some(LIMIT)));
    limits.map_err(|e| e.to_string())?;
    Ok(socket)
}

/// Sends the word, and reads until the server ends the connection. What has come before an error
/// counts: not every server announces the end of a connection over TLS.
fn exchange(mut stream: impl Read + Write, word: &str) -> io::Result<Vec<u8>> {
    stream.write_all(word.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.take(LONGEST).read_to_end(&mut answer) {
        Err(e) if answer.is_empty() => Err(e),
        _ => Ok(answer),
    }
}

const CLOSED: &str = "it closes the connection without an answer";

fn no_answer(error: &io::Error, limit: Duration) -> Silence {
    use io::ErrorKind as E;
    Silence::NoAnswer(match error.kind() {
        E::WouldBlock | E::TimedOut => format!("it gives no answer within {}", show(limit)),
        E::UnexpectedEof | E::ConnectionReset | E::BrokenPipe => CLOSED.to_owned(),
        _ => format!("the connection ends: {error}"),
    })
}
