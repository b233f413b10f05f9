//! TLS to the servers: which files it takes, what is checked, and the words for what goes wrong.
//!
//! The files are read anew for each connection, so that certificates can be replaced while the
//! program runs. `connection/tls.rs` carries the bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::connect_string::Host;
use crate::error::{Error, Result};

/// The longest file that is read. A file with all CAs of an operating system has a fourth of this.
const MAX_FILE: u64 = 1 << 20;

/// How a session proves the identity of the servers, and its own, on connections over TLS;
/// [`Config::tls`](crate::Config::tls).
///
/// Connections are TLS 1.2 or 1.3. Each server must have a certificate that is signed, directly or
/// through intermediates, by a CA of the CA file, and that is valid now and for the server's name
/// in the connect string. That name (or that IP address) must be a *subject alternative name* of
/// the certificate; a common name does not count. These checks cannot be switched off.
///
/// The CAs of the operating system are not trusted unless the CA file is theirs: an ensemble has a
/// CA of its own, and no other CA should be able to speak for its servers.
///
/// # Files
///
/// All files are PEM. They are read at [`connect`](crate::Session::connect) and again at
/// each later connection. So a certificate can be replaced while the program runs, and the next
/// connection uses the new file. (Existing connections go on with the old one.) If the files cannot
/// be read then, the servers are tried again until the files are right. Write the new files under
/// other names, and rename them into place.
///
/// # The servers
///
/// A connection over TLS goes to the port that ZooKeeper calls `secureClientPort`, or to a
/// `clientPort` with `client.portUnification=true`. Both need
/// `serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory`. By default ZooKeeper
/// wants a certificate of each client (`ssl.clientAuth=need`). With such a certificate the session
/// has an identity of the scheme `x509`: the subject of the certificate, as in
/// `CN=orders,O=Example`. ACLs may name it, and [`Acl::CreatorAll`](crate::Acl::CreatorAll)
/// includes it.
///
/// ```no_run
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::{Config, Session, TlsConfig};
///
/// let tls = TlsConfig::new("/etc/zk/ca.pem")
///     .client_certificate("/etc/zk/orders.pem", "/etc/zk/orders.key");
/// let config = Config::new("zk1.example:2281,zk2.example:2281").tls(tls);
/// let session = Session::connect(config)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing happens until it is given to Config::tls"]
pub struct TlsConfig {
    ca_file: PathBuf,
    client: Option<ClientFiles>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl TlsConfig {
    /// Trusts servers whose certificate is signed by a CA of this file; the file may have several.
    pub fn new(ca_file: impl Into<PathBuf>) -> Self {
        TlsConfig { ca_file: ca_file.into(), client: None }
    }

    /// Presents this certificate to servers that ask for one. The first file has the certificate,
    /// and behind it the intermediates up to a CA that the servers trust. The second file has its
    /// private key, without a password. Both may be the same file. By default no certificate is
    /// presented.
    pub fn client_certificate(
        mut self,
        certificate_file: impl Into<PathBuf>,
        key_file: impl Into<PathBuf>,
    ) -> Self {
        self.client =
            Some(ClientFiles { certificate: certificate_file.into(), key: key_file.into() });
        self
    }

    /// Whether the session has a certificate of its own, and so an identity of the scheme `x509`.
    pub(super) fn has_certificate(&self) -> bool {
        self.client.is_some()
    }

    /// Finds what can never work before any server is dialled.
    pub(super) fn check(&self, hosts: &[Host]) -> Result<()> {
        let invalid = |reason| Error::InvalidConfig { what: "tls", reason };
        self.load().map_err(invalid)?;
        hosts.iter().try_for_each(|host| server_name(&host.name).map(drop)).map_err(invalid)
    }

    /// Reads the files.
    pub(super) fn load(&self) -> Result<Arc<ClientConfig>, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be set up: {e}"))?
            .with_root_certificates(self.roots()?);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some(ClientFiles { certificate, key }) => {
                let chain = certificates("client certificate file", certificate)?;
                let builder = builder.with_client_auth_cert(chain, private_key(key)?);
                builder.map_err(|e| {
                    format!(
                        "the client certificate {} and the key {} cannot be used together: {e}",
                        certificate.display(),
                        key.display()
                    )
                })?
            }
        };
        // A resumed TLS session would not look at the certificates again.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for (i, ca) in certificates("CA file", &self.ca_file)?.into_iter().enumerate() {
            roots.add(ca).map_err(|e| {
                format!(
                    "the CA file {}: its certificate {} cannot be used: {e}",
                    self.ca_file.display(),
                    i + 1
                )
            })?;
        }
        Ok(roots)
    }

    /// The words for an error of a connection with the server of this name.
    pub(super) fn explain(&self, name: &str, error: &rustls::Error) -> String {
        match error {
            rustls::Error::InvalidCertificate(error) => self.explain_certificate(name, error),
            rustls::Error::AlertReceived(alert) => self.explain_alert(*alert),
            rustls::Error::InvalidMessage(_) => {
                format!("does not speak TLS ({error}); {RIGHT_PORT}")
            }
            _ => format!("TLS failed: {error}"),
        }
    }

    /// The words for the end of a connection in the middle of the handshake.
    pub(super) fn explain_end(&self) -> String {
        format!(
            "closed the connection in the TLS handshake; {RIGHT_PORT}; {}",
            self.client_advice()
        )
    }

    /// The words for the end of a connection after the handshake and before the server's first
    /// answer. With TLS 1.3 a server reads our certificate only then.
    pub(super) fn explain_early_end(&self) -> String {
        format!("closed the connection after the TLS handshake; {}", self.client_advice())
    }

    fn explain_certificate(&self, name: &str, error: &CertificateError) -> String {
        use CertificateError as E;
        let ago = |seconds: u64| format!("{} h {} min", seconds / 3600, seconds / 60 % 60);
        match error {
            E::UnknownIssuer => format!(
                "its certificate is signed by no CA of {}; put the CA that has signed it there",
                self.ca_file.display()
            ),
            E::BadSignature => format!(
                "its certificate does not bear the signature of the CA of that name in {}; the CA \
                 may have a new key: put its present certificate there",
                self.ca_file.display()
            ),
            E::NotValidForNameContext { presented, .. } => {
                let presented = match presented.join(", ") {
                    none if none.is_empty() => "no name at all".to_owned(),
                    names => names,
                };
                format!(
                    "its certificate is not for {name} but for {presented}; put a name of the \
                     certificate into the connect string, or give the server a certificate with \
                     {name} as a subject alternative name"
                )
            }
            E::NotValidForName => format!(
                "its certificate is not for {name}; give the server a certificate with {name} as a \
                 subject alternative name"
            ),
            E::ExpiredContext { time, not_after } => format!(
                "its certificate (or that of a CA above it) expired {} ago by the clock of this \
                 host; renew it",
                ago(time.as_secs().saturating_sub(not_after.as_secs()))
            ),
            E::NotValidYetContext { time, not_before } => format!(
                "its certificate (or that of a CA above it) will be valid in {} by the clock of \
                 this host; check the clock",
                ago(not_before.as_secs().saturating_sub(time.as_secs()))
            ),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
                "its certificate is not one for servers; issue it with the extended key usage \
                 serverAuth"
                    .to_owned()
            }
            _ => format!("its certificate is not accepted: {error}"),
        }
    }

    fn explain_alert(&self, alert: AlertDescription) -> String {
        use AlertDescription as A;
        match alert {
            A::ProtocolVersion => {
                "offers neither TLS 1.2 nor TLS 1.3; check ssl.enabledProtocols of the server"
                    .to_owned()
            }
            A::AccessDenied
            | A::BadCertificate
            | A::CertificateExpired
            | A::CertificateRequired
            | A::CertificateRevoked
            | A::CertificateUnknown
            | A::HandshakeFailure
            | A::UnknownCA
            | A::UnsupportedCertificate => {
                format!("refused the TLS connection (alert {alert:?}); {}", self.client_advice())
            }
            _ => format!("ended the TLS connection (alert {alert:?}); see the server's log"),
        }
    }

    /// What to do if the server may not like our side.
    fn client_advice(&self) -> String {
        match &self.client {
            None => "if it wants a certificate of its clients, give one with \
                     TlsConfig::client_certificate()"
                .to_owned(),
            Some(files) => format!(
                "check that it trusts the CA of our certificate {}, and that this has not expired; \
                 its log may say more",
                files.certificate.display()
            ),
        }
    }
}

/// What to do if a server seems not to speak TLS.
const RIGHT_PORT: &str =
    "check that the port is its secureClientPort, or has client.portUnification";

/// The name or the address that the server's certificate must bear.
pub(super) fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    // The zone of an IPv6 address ("%eth0") means something on this host only.
    let name = name.split('%').next().unwrap_or_default();
    ServerName::try_from(name.to_owned())
        .map_err(|_| format!("the host {name:?} of the connect string can be in no certificate"))
}

/// Reads a file of the application's, which must be an ordinary one: a pipe would block.
fn read(what: &str, path: &Path) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("the {what} {} cannot be read: {e}", path.display());
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return Err(format!(
            "the {what} {} is no file of at most {MAX_FILE} bytes",
            path.display()
        ));
    }
    fs::read(path).map_err(failed)
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(what, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|e| format!("the {what} {}: {}", path.display(), shown(&e)))?;
    if found.is_empty() {
        return Err(format!(
            "the {what} {} has no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
            path.display()
        ));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read("key file", path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| match e {
        pem::Error::NoItemsFound => format!(
            "the key file {} has no private key in PEM form (-----BEGIN PRIVATE KEY-----); a key \
             with a password is not read",
            path.display()
        ),
        e => format!("the key file {}: {}", path.display(), shown(&e)),
    })
}

/// The error without any piece of the file, which may be a piece of a key.
fn shown(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end line",
        pem::Error::IllegalSectionStart { .. } => "the first line of a section is malformed",
        pem::Error::Base64Decode(_) => "a section is not in base64",
        pem::Error::SectionTooLarge => "a section is too long",
        _ => "it is not in PEM form",
    }
}
