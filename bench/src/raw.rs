//! A minimal client of ZooKeeper's protocol, which can send without waiting for answers.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::thread;

pub const PERSISTENT: i32 = 0;
pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
pub const SEQUENTIAL: i32 = 2;

pub const CREATE: i32 = 1;
pub const DELETE: i32 = 2;
pub const GET_DATA: i32 = 4;
pub const GET_CHILDREN: i32 = 8;
const CLOSE: i32 = -11;

pub struct Raw {
    input: BufReader<TcpStream>,
    output: BufWriter<TcpStream>,
    xid: i32,
    /// The watch events that have come and that nobody has waited for yet.
    events: usize,
}

impl Raw {
    pub fn connect(address: &str) -> io::Result<Raw> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let (input, output) = (BufReader::new(stream.try_clone()?), BufWriter::new(stream));
        let mut raw = Raw { input, output, xid: 0, events: 0 };
        // Version, last zxid, timeout in ms, session id, no password.
        let (version, zxid, timeout, session, password) = (0i32, 0i64, 30_000i32, 0i64, 0i32);
        let mut hello = version.to_be_bytes().to_vec();
        hello.extend(zxid.to_be_bytes());
        hello.extend(timeout.to_be_bytes());
        hello.extend(session.to_be_bytes());
        hello.extend(password.to_be_bytes());
        send(&mut raw.output, &hello)?;
        raw.output.flush()?;
        read_frame(&mut raw.input)?;
        Ok(raw)
    }

    /// Creates a node, open to all, and gives its path.
    pub fn create(&mut self, path: &str, flags: i32) -> io::Result<String> {
        let body = create_body(path, flags);
        let answer = self.call(CREATE, &body)?;
        String::from_utf8(answer.get(4..).unwrap_or_default().to_vec())
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Sends `count` creates without waiting, and reads the answers meanwhile.
    pub fn create_pipelined(&mut self, path: &str, flags: i32, count: usize) -> io::Result<()> {
        let body = create_body(path, flags);
        let (input, output, first) = (&mut self.input, &mut self.output, self.xid);
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                for n in 0..count {
                    send(output, &request(first.wrapping_add(n as i32 + 1), CREATE, &body))?;
                }
                output.flush()
            });
            let answers = (0..count).try_for_each(|_| check(&read_frame(input)?).map(drop));
            let sent =
                sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
            answers.and(sent)
        })
    }

    /// Sets a watch on a node.
    pub fn watch(&mut self, path: &str) -> io::Result<()> {
        let mut body = string(path);
        body.push(1);
        self.call(GET_DATA, &body).map(drop)
    }

    /// Ends the session.
    pub fn close(mut self) -> io::Result<()> {
        self.call(CLOSE, &[]).map(drop)
    }

    /// Sends a request and returns its answer.
    pub fn call(&mut self, op: i32, body: &[u8]) -> io::Result<Vec<u8>> {
        self.queue(op, body)?;
        self.answer()
    }

    /// Adds a request to the flight that the next `flush` or `answer` sends.
    pub fn queue(&mut self, op: i32, body: &[u8]) -> io::Result<()> {
        self.xid += 1;
        send(&mut self.output, &request(self.xid, op, body))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// The answer to the oldest request that has none yet.
    pub fn answer(&mut self) -> io::Result<Vec<u8>> {
        self.flush()?;
        loop {
            let frame = read_frame(&mut self.input)?;
            if !is_event(&frame) {
                return check(&frame).map(<[u8]>::to_vec);
            }
            self.events += 1;
        }
    }

    /// Waits for a watch event. There is no request without an answer.
    pub fn event(&mut self) -> io::Result<()> {
        while self.events == 0 {
            if !is_event(&read_frame(&mut self.input)?) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.events += 1;
        }
        self.events -= 1;
        Ok(())
    }
}

fn request(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &op.to_be_bytes(), body].concat()
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as i32).to_be_bytes()[..], text.as_bytes()].concat()
}

pub fn create_body(path: &str, flags: i32) -> Vec<u8> {
    let (no_data, one_acl, all) = ((-1i32).to_be_bytes(), 1i32.to_be_bytes(), 31i32.to_be_bytes());
    [
        string(path),
        no_data.into(),
        one_acl.into(),
        all.into(),
        string("world"),
        string("anyone"),
        flags.to_be_bytes().into(),
    ]
    .concat()
}

fn send(output: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    output.write_all(&(frame.len() as i32).to_be_bytes())?;
    output.write_all(frame)
}

fn read_frame(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length =
        usize::try_from(i32::from_be_bytes(length)).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut frame = vec![0; length];
    input.read_exact(&mut frame)?;
    Ok(frame)
}

fn is_event(frame: &[u8]) -> bool {
    frame.starts_with(&(-1i32).to_be_bytes())
}

/// The body of an answer that is not an error. The header is xid, zxid and error code.
fn check(frame: &[u8]) -> io::Result<&[u8]> {
    let code = frame.get(12..16).and_then(|code| code.try_into().ok()).map(i32::from_be_bytes);
    match code {
        Some(0) => Ok(frame.get(16..).unwrap_or_default()),
        Some(-101) => Err(io::ErrorKind::NotFound.into()),
        Some(-110) => Err(io::ErrorKind::AlreadyExists.into()),
        Some(code) => Err(io::Error::other(format!("the server answered with error {code}"))),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
