//! TLS on a connection's socket (feature `tls`): [`ServerTls`] has the settings, `Tls` carries one
//! connection's bytes.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::subject;

/// The first byte of a connection over TLS.
const HANDSHAKE: u8 = 0x16;

/// How a server serves over TLS: like ZooKeeper's `secureClientPort`, or like a port with
/// `client.portUnification`. [`TestServerBuilder::tls`](crate::TestServerBuilder::tls) takes it.
///
/// All files are PEM. They are read at the start, and again at each
/// [`restart`](crate::TestServer::restart) and [`wipe`](crate::TestServer::wipe); if they cannot be
/// read then, the former ones stay.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use zk_test_server::{ServerTls, TestServer};
///
/// let tls = ServerTls::new("server.pem", "server.key").client_ca("ca.pem");
/// let server = TestServer::builder().tls(tls).start()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it is given to TestServerBuilder::tls"]
pub struct ServerTls {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    allows_plain: bool,
}

impl ServerTls {
    /// Presents the certificate of the first file (with intermediates behind it), whose private key
    /// is in the second. By default clients need no certificate, and connections that are not over
    /// TLS are closed.
    pub fn new(certificate_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        ServerTls {
            certificate: certificate_file.into(),
            key: key_file.into(),
            client_ca: None,
            allows_plain: false,
        }
    }

    /// Wants a certificate of each client that connects over TLS, signed by a CA of this file, as
    /// ZooKeeper does by default (`ssl.clientAuth=need`). The client then has an identity of the
    /// scheme `x509`: the subject of its certificate, in the form of RFC 2253, for instance
    /// `CN=orders,O=Example`.
    pub fn client_ca(mut self, ca_file: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(ca_file.into());
        self
    }

    /// Also serves connections that are not over TLS, on the same port (ZooKeeper's
    /// `client.portUnification`).
    pub fn allow_plain(mut self) -> Self {
        self.allows_plain = true;
        self
    }

    pub(super) fn load(&self) -> io::Result<Acceptor> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|e| refusal(format!("no private key in {}: {e}", self.key.display())))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(refusal)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for ca in certificates(file)? {
                    roots.add(ca).map_err(refusal)?;
                }
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().map_err(refusal)?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(refusal)?;
        // Each connection proves its client anew.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Acceptor { config: Arc::new(config), allows_plain: self.allows_plain })
    }
}

fn refusal(why: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("TLS: {}", why.to_string()))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|e| refusal(format!("{} cannot be read: {e}", path.display())))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|e| refusal(format!("{}: {e}", path.display())))?;
    match found.is_empty() {
        true => Err(refusal(format!("no certificate in {}", path.display()))),
        false => Ok(found),
    }
}

/// What was read from the files.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    config: Arc<ServerConfig>,
    allows_plain: bool,
}

/// A connection over TLS, without its socket.
#[derive(Debug)]
pub(super) struct Tls {
    connection: ServerConnection,
    allows_plain: bool,
    has_begun: bool,
    /// Its client's certificate was looked at.
    is_known: bool,
}

impl Tls {
    pub(super) fn new(acceptor: &Acceptor) -> io::Result<Tls> {
        let connection =
            ServerConnection::new(Arc::clone(&acceptor.config)).map_err(io::Error::other)?;
        let allows_plain = acceptor.allows_plain;
        Ok(Tls { connection, allows_plain, has_begun: false, is_known: false })
    }

    /// Whether these are the first bytes of a connection that is not over TLS, and may be so.
    pub(super) fn is_plain(&self, bytes: &[u8]) -> bool {
        self.allows_plain && !self.has_begun && bytes.first() != Some(&HANDSHAKE)
    }

    /// Takes bytes of the socket, and gives those of the protocol. An error says why the connection
    /// is to be closed.
    pub(super) fn take(&mut self, mut bytes: &[u8], socket: &TcpStream) -> Result<Vec<u8>, String> {
        self.has_begun = true;
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            let taken = self.connection.read_tls(&mut bytes).map_err(|e| e.to_string())?;
            let result = self.connection.process_new_packets();
            let _ = self.flush(socket); // an alert, at the worst
            result.map_err(|e| format!("TLS: {e}"))?;
            // It ends with an error: there is no more now.
            let _ = self.connection.reader().read_to_end(&mut plain);
            if taken == 0 {
                break; // the client has ended the stream
            }
        }
        Ok(plain)
    }

    pub(super) fn take_subject(&mut self) -> Option<String> {
        if self.is_known || self.connection.is_handshaking() {
            return None;
        }
        self.is_known = true;
        subject::of(self.connection.peer_certificates()?.first()?)
    }

    /// Takes some of these bytes, if the socket has taken those before.
    pub(super) fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        if self.connection.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = self.connection.writer().write(bytes)?;
        self.flush(socket)?;
        Ok(taken)
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn has_unwritten(&self) -> bool {
        self.connection.wants_write()
    }

    /// Announces the end of the stream.
    pub(super) fn close(&mut self, socket: &TcpStream) {
        self.connection.send_close_notify();
        let _ = self.flush(socket);
    }
}
