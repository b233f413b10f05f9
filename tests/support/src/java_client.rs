//! ZooKeeper's own client in Java, for a few commands: what it is answered tells how a server is
//! configured, and no code of ours takes part.
use super::{Kdc, Scratch, java, kdc, sasl};
#[cfg(feature = "tls")]
use super::{pki::Pki, server::SECURE_PORT};
use std::{
    ffi::OsString,
    fs,
    io::Write,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long the commands may take, the start of Java included.
const LIMIT: Duration = Duration::from_secs(60);

/// The command line of ZooKeeper, with the settings of its client.
#[derive(Clone)]
pub struct JavaClient {
    connect_string: String,
    properties: Vec<String>,
    login: Option<String>,
}

impl JavaClient {
    /// Connects to these servers.
    pub fn new(connect_string: &str) -> JavaClient {
        JavaClient {
            connect_string: connect_string.to_owned(),
            properties: Vec::new(),
            login: None,
        }
    }

    /// Authenticates by SASL DIGEST-MD5.
    pub fn digest(mut self, user: &str, password: &str) -> JavaClient {
        self.login = Some(format!(
            "org.apache.zookeeper.server.auth.DigestLoginModule required \
             username=\"{user}\" password=\"{password}\""
        ));
        self.property(sasl::FIPS_MODE, "false")
    }

    /// Authenticates by SASL GSSAPI, as this principal of the KDC.
    #[track_caller]
    pub fn kerberos(mut self, kdc: &Kdc, principal: &str) -> JavaClient {
        let realm = kdc::REALM;
        self.login = Some(format!(
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\"{}\" \
             storeKey=true useTicketCache=false principal=\"{principal}@{realm}\"",
            kdc.keytab(principal).display(),
        ));
        let configuration = kdc.configuration();
        self.property("java.security.krb5.conf", &configuration.to_string_lossy())
            .property("zookeeper.server.principal", &format!("{}@{realm}", sasl::SERVICE))
    }

    /// Connects over TLS, and trusts this CA. The connect string names the secure port.
    #[cfg(feature = "tls")]
    pub fn tls(self, pki: &Pki) -> JavaClient {
        debug_assert!(self.connect_string.contains(&format!(":{SECURE_PORT}")));
        self.property("zookeeper.client.secure", "true")
            .property("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty")
            .property("zookeeper.ssl.trustStore.location", &pki.ca_file().to_string_lossy())
            .property("zookeeper.ssl.trustStore.type", "PEM")
    }

    fn property(mut self, key: &str, value: &str) -> JavaClient {
        self.properties.push(format!("-D{key}={value}"));
        self
    }

    /// Runs commands such as `create /a data` one after the other, in a session of its own. Returns
    /// all that the command line and the client have said.
    #[track_caller]
    pub fn run(&self, commands: &[&str]) -> String {
        let dir = Scratch::new("java-client");
        let mut arguments: Vec<OsString> =
            ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m"].map(OsString::from).into();
        arguments.push("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".into());
        arguments.push("-Dlog4j2.level=warn".into());
        if let Some(login) = &self.login {
            let file = dir.path().join("jaas.conf");
            fs::write(&file, format!("Client {{\n{login};\n}};\n")).expect("jaas.conf");
            let name = file.to_string_lossy().into_owned();
            arguments.push(format!("-Djava.security.auth.login.config={name}").into());
        }
        arguments.extend(self.properties.iter().map(OsString::from));
        arguments.extend(["-cp".into(), java::class_path().unwrap_or_else(|e| panic!("{e}"))]);
        arguments.extend(["org.apache.zookeeper.ZooKeeperMain", "-server"].map(OsString::from));
        arguments.push(self.connect_string.clone().into());
        let said = dir.path().join("said");
        let output = || fs::File::options().create(true).append(true).open(&said).expect("a file");
        let mut child = Command::new(java::java().unwrap_or_else(|e| panic!("{e}")))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output())
            .stderr(output())
            .spawn()
            .expect("Java starts");
        let mut lines = child.stdin.take().expect("stdin is a pipe");
        // A client that has ended early has said why.
        let _ = lines.write_all((commands.join("\n") + "\nquit\n").as_bytes());
        drop(lines);
        let is_over = wait(&mut child);
        let text = fs::read_to_string(&said).unwrap_or_default();
        assert!(is_over, "{commands:?} takes {LIMIT:?} or more:\n{text}");
        text
    }
}

/// Waits for the end of the process. If it takes too long, it is killed, and this is false.
fn wait(child: &mut Child) -> bool {
    let end = Instant::now() + LIMIT;
    loop {
        if child.try_wait().expect("the process can be waited for").is_some() {
            return true;
        }
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
