//! The client's side of a connection through the proxy, which may be over TLS: the proxy then ends
//! TLS, and reads requests and replies as it does without.
use super::pki::Files;
use parking_lot::Mutex;
use rustls::{
    ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
};

/// The first byte of a connection over TLS.
const HANDSHAKE: u8 = 0x16;

pub fn config(files: &Files) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(&files.certificate).expect("a certificate");
    let chain = chain.collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    Arc::new(config.expect("a certificate with its key"))
}

/// Whether a connection begins with TLS; waits for its first byte.
pub fn begins(socket: &TcpStream) -> bool {
    let mut first = [0];
    socket.peek(&mut first).is_ok_and(|count| count == 1 && first[0] == HANDSHAKE)
}

/// The server's end of TLS. One thread reads while another writes.
pub struct Terminated<'s> {
    socket: &'s TcpStream,
    connection: Mutex<ServerConnection>,
}

impl Terminated<'_> {
    pub fn new(socket: &TcpStream, config: Arc<ServerConfig>) -> Terminated<'_> {
        let mut connection = ServerConnection::new(config).expect("a connection over TLS");
        connection.set_buffer_limit(None);
        Terminated { socket, connection: Mutex::new(connection) }
    }

    pub fn end(&self) {
        self.announce_end();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Says that the stream ends, and leaves the connection open.
    pub fn announce_end(&self) {
        let mut connection = self.connection.lock();
        connection.send_close_notify();
        let _ = self.send(&mut connection);
    }

    fn send(&self, connection: &mut ServerConnection) -> io::Result<()> {
        let mut socket = self.socket;
        while connection.wants_write() {
            connection.write_tls(&mut socket)?;
        }
        Ok(())
    }
}

impl Read for &Terminated<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.lock().reader().read(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            // Less than what one record may have, so that the connection's buffer has room.
            let mut bytes = [0; 4 << 10];
            let mut socket = self.socket;
            let count = socket.read(&mut bytes)?; // without the lock: this blocks
            let mut connection = self.connection.lock();
            let mut rest = &bytes[..count];
            loop {
                let taken = connection.read_tls(&mut rest)?;
                let result = connection.process_new_packets();
                self.send(&mut connection)?;
                result.map_err(io::Error::other)?;
                if taken == 0 || rest.is_empty() {
                    break;
                }
            }
        }
    }
}

impl Write for &Terminated<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.connection.lock();
        let count = connection.writer().write(bytes)?;
        self.send(&mut connection)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
