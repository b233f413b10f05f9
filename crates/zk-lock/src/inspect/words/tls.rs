//! TLS as the session has it: the same files, the same versions and the same checks (`TlsConfig` of
//! zk-session).

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::cli::TlsArgs;

/// What each connection is made with.
pub struct Client(Arc<ClientConfig>);

impl Client {
    /// Reads the files; no client without `--tls-ca`.
    pub fn new(args: &TlsArgs) -> Result<Option<Client>, String> {
        let Some(ca) = &args.tls_ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for ca in certificates(ca)? {
            roots.add(ca).map_err(|e| e.to_string())?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots);
        let mut config = match (&args.tls_cert, &args.tls_key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|_| format!("{} holds no private key", key.display()))?;
                let config = builder.with_client_auth_cert(certificates(certificate)?, key);
                config.map_err(|e| e.to_string())?
            }
            _ => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(Some(Client(Arc::new(config))))
    }

    /// A connection over this socket. The first write makes the handshake.
    pub fn stream(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        // The zone of an IPv6 address means something on this host only.
        let name = name.split('%').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(name).map_err(|e| e.to_string())?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(|e| e.to_string())?;
        Ok(StreamOwned::new(connection, socket))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| format!("{}: {e}", path.display()))
}
