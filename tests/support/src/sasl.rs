//! SASL at a server: its users, and what it demands of clients. A real server gets a JAAS file and
//! properties. An embedded one knows DIGEST-MD5 alone, and that needs the feature `sasl`.
use super::{Kdc, kdc, server::Builder};
use std::{
    env, fs,
    path::{Path, PathBuf},
};
use zk_test_server::TestServerBuilder;

/// In this mode, which is the default since 3.9, the Java client refuses DIGEST-MD5; servers newer
/// than 3.9.5 refuse it too. 3.8.0 does not know the mode.
pub(super) const FIPS_MODE: &str = "zookeeper.fips-mode";
const REQUIRED: &str = "zookeeper.sessionRequireClientSASLAuth";
const ALLOWS_FAILED: &str = "zookeeper.allowSaslFailedClients";
/// The principal of every server: the address of a server is its own and has no name.
pub const SERVICE: &str = "zookeeper/localhost";

/// Set to `yes`: the sessions of the scenarios log in by SASL DIGEST-MD5, as [`USER`], whom the
/// servers know. (Raw clients do not log in, so no server requires it.) Needs the feature `sasl`
/// and, in zk-mutex, `sasl-digest-md5`.
pub const SWITCH: &str = "ZK_TEST_SASL";

/// The user of all sessions where the switch is on, with the password.
pub const USER: (&str, &str) = ("suite", "of the suite");

/// Whether the switch is on.
pub fn is_on() -> bool {
    env::var_os(SWITCH).is_some_and(|word| word == "yes")
}

/// Why the switch cannot be on, if it is.
pub(super) fn refusal() -> Option<&'static str> {
    (is_on() && cfg!(not(feature = "sasl")))
        .then_some("ZK_TEST_SASL needs `--features zk-test-support/sasl`")
}

/// How a server authenticates clients by SASL.
#[derive(Clone)]
pub(super) struct Sasl {
    /// The JAAS login module with its options.
    module: String,
    /// The names and passwords for DIGEST-MD5.
    #[cfg_attr(not(feature = "sasl"), expect(dead_code, reason = "embedded servers have no SASL"))]
    users: Vec<(String, String)>,
    /// The krb5.conf of a server that uses Kerberos.
    kerberos: Option<PathBuf>,
}

impl Builder {
    /// The server authenticates clients by SASL DIGEST-MD5, and knows these users and passwords.
    pub fn sasl_digest(mut self, users: &[(&str, &str)]) -> Builder {
        let quoted = |password: &str| password.replace('\\', "\\\\").replace('"', "\\\"");
        let lines = users.iter().map(|(user, word)| format!(" user_{user}=\"{}\"", quoted(word)));
        let lines: String = lines.collect();
        let module = format!("org.apache.zookeeper.server.auth.DigestLoginModule required{lines}");
        let own = |(user, word): &(&str, &str)| ((*user).to_owned(), (*word).to_owned());
        self.sasl = Some(Sasl { module, users: users.iter().map(own).collect(), kerberos: None });
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
        self.sasl = Some(Sasl { module, users: Vec::new(), kerberos: Some(kdc.configuration()) });
        self
    }

    /// The server ends the session of a client that is not authenticated by SASL, at its first
    /// request (`zookeeper.sessionRequireClientSASLAuth`).
    pub fn requires_sasl(self) -> Builder {
        self.property(REQUIRED, true)
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
        self.property(ALLOWS_FAILED, true)
    }

    /// A real server's clock is so many seconds ahead of the machine's, or behind it if the number
    /// is negative. Kerberos accepts five minutes.
    pub fn shifted_clock(mut self, seconds: i64) -> Builder {
        self.shifted_clock = seconds;
        self
    }
}

/// Whether an embedded server has this property too.
pub(super) fn is_embedded(property: &str) -> bool {
    [FIPS_MODE, REQUIRED, ALLOWS_FAILED].contains(&property)
}

/// Where the switch is on: the embedded server knows the user of all sessions.
pub fn with_user(server: TestServerBuilder) -> TestServerBuilder {
    #[cfg(feature = "sasl")]
    if is_on() {
        return server.sasl_user(USER.0, USER.1);
    }
    server
}

/// Gives an embedded server the users and the demands.
#[cfg(feature = "sasl")]
pub(super) fn add_to(
    server: TestServerBuilder,
    builder: &Builder,
) -> Result<TestServerBuilder, String> {
    if builder.sasl.as_ref().is_some_and(|sasl| sasl.kerberos.is_some()) {
        return Err("only a real server has Kerberos: the scenario is `on real`".to_owned());
    }
    let has = |property| builder.properties.iter().any(|(key, _)| key == property);
    let users = builder.sasl.iter().flat_map(|sasl| &sasl.users);
    let server = users.fold(server, |server, (user, word)| server.sasl_user(user, word));
    let server = if has(REQUIRED) { server.requires_sasl() } else { server };
    Ok(if has(ALLOWS_FAILED) { server.allows_failed_sasl() } else { server })
}

/// The same, without the feature.
#[cfg(not(feature = "sasl"))]
pub(super) fn add_to(
    server: TestServerBuilder,
    builder: &Builder,
) -> Result<TestServerBuilder, String> {
    let asked = builder.properties.iter().any(|(key, _)| is_embedded(key));
    match asked || builder.sasl.is_some() {
        true => Err("an embedded server with SASL needs the feature `sasl`".to_owned()),
        false => Ok(server),
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
