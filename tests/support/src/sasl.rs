//! SASL at a real server: its JAAS file, and what it demands of clients.
use super::{Kdc, kdc, server::Builder};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// In this mode, which is the default since 3.9, the Java client refuses DIGEST-MD5; servers newer
/// than 3.9.5 refuse it too. 3.8.0 does not know the mode.
pub(super) const FIPS_MODE: &str = "zookeeper.fips-mode";
/// The principal of every server: the address of a server is its own and has no name.
pub const SERVICE: &str = "zookeeper/localhost";

/// How a server authenticates clients by SASL.
#[derive(Clone)]
pub(super) struct Sasl {
    /// The JAAS login module with its options.
    module: String,
    /// The krb5.conf of a server that uses Kerberos.
    kerberos: Option<PathBuf>,
}

impl Builder {
    /// The server authenticates clients by SASL DIGEST-MD5, and knows these users and passwords.
    pub fn sasl_digest(mut self, users: &[(&str, &str)]) -> Builder {
        let users = users.iter().map(|(user, password)| format!(" user_{user}=\"{password}\""));
        let users: String = users.collect();
        let module = format!("org.apache.zookeeper.server.auth.DigestLoginModule required{users}");
        self.sasl = Some(Sasl { module, kerberos: None });
        self.property(FIPS_MODE, false)
    }

    /// The server authenticates clients by SASL GSSAPI, as the service `zookeeper/localhost` of
    /// this KDC's realm.
    #[track_caller]
    pub fn sasl_kerberos(mut self, kdc: &Kdc) -> Builder {
        let module = format!(
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"{}\" \
             storeKey=true useTicketCache=false principal=\"{SERVICE}@{}\"",
            kdc.keytab(SERVICE).display(),
            kdc::REALM,
        );
        self.sasl = Some(Sasl { module, kerberos: Some(kdc.configuration()) });
        self
    }

    /// The server ends the session of a client that is not authenticated by SASL, at its first
    /// request (`zookeeper.sessionRequireClientSASLAuth`).
    pub fn requires_sasl(self) -> Builder {
        self.property("zookeeper.sessionRequireClientSASLAuth", true)
    }

    /// The same, for clients that are not authenticated by one of these schemes, such as `sasl`
    /// (`zookeeper.enforce.auth.enabled`).
    pub fn enforces_auth(self, schemes: &str) -> Builder {
        self.property("zookeeper.enforce.auth.enabled", true)
            .property("zookeeper.enforce.auth.schemes", schemes)
    }

    /// The session of a client whose SASL fails goes on without that identity
    /// (`zookeeper.allowSaslFailedClients`). By default the server ends it.
    pub fn allows_failed_sasl(self) -> Builder {
        self.property("zookeeper.allowSaslFailedClients", true)
    }

    /// A real server's clock is so many seconds ahead of the machine's, or behind it if the number
    /// is negative. Kerberos accepts five minutes.
    pub fn shifted_clock(mut self, seconds: i64) -> Builder {
        self.shifted_clock = seconds;
        self
    }
}

impl Sasl {
    /// Writes the JAAS file into the server's directory. Returns Java's properties for it.
    pub(super) fn properties(&self, dir: &Path) -> Result<Vec<String>, String> {
        let file = dir.join("jaas.conf");
        fs::write(&file, format!("Server {{\n{};\n}};\n", self.module))
            .map_err(|e| format!("jaas.conf: {e}"))?;
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        let mut all = vec![
            format!("-Djava.security.auth.login.config={}", file.display()),
            format!("-Dzookeeper.authProvider.1={provider}"),
        ];
        let kerberos = self.kerberos.iter();
        all.extend(kerberos.map(|path| format!("-Djava.security.krb5.conf={}", path.display())));
        Ok(all)
    }
}
