//! Where an example connects to: the servers that it was told, or one of its own.

use super::Args;
use zk_test_server::TestServer;

/// The servers of one run.
pub struct Servers {
    connect_string: String,
    /// Stops with this value.
    embedded: Option<TestServer>,
}

impl Servers {
    pub fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// The embedded server, if it is that.
    #[allow(dead_code)] // most examples do not care
    pub fn embedded(&self) -> Option<&TestServer> {
        self.embedded.as_ref()
    }
}

impl Args {
    /// The servers of `--connect` or else of the environment; where neither names any, the embedded
    /// server, which other processes do not share: `shared` are the flags that only make sense with
    /// a server that they do.
    pub fn servers(&self, shared: &[&str]) -> Servers {
        let environment = std::env::var("ZK_CONNECT").ok().filter(|servers| !servers.is_empty());
        if let Some(servers) = self.text(super::CONNECT.0).map(str::to_owned).or(environment) {
            return Servers { connect_string: servers, embedded: None };
        }
        if let Some(flag) = shared.iter().find(|flag| self.text(flag).is_some()) {
            self.refuse(&format!(
                "{flag} is for several processes: name the server that they share with --connect"
            ));
        }
        match TestServer::start() {
            Ok(server) => {
                let at = server.connect_string();
                // Not on stdout, which may be for programs to read.
                eprintln!(
                    "{}: no --connect and no ZK_CONNECT, so it runs on an embedded test server of its own, {at}",
                    self.program
                );
                Servers { connect_string: at, embedded: Some(server) }
            }
            Err(error) => {
                eprintln!("{}: the embedded server: {error}", self.program);
                std::process::exit(1);
            }
        }
    }
}
