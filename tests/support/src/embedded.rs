//! The embedded server in the place of a real one: what a test does to a process, done to
//! `TestServer`.
use super::{Raw, brand, logged, raw, sasl, server::Builder};
use log::Level;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use zk_test_server::ServerTls;
use zk_test_server::{Brand, TestServer};

pub struct Embedded {
    server: TestServer,
}

impl Embedded {
    pub fn start(builder: &Builder, address: SocketAddr) -> Result<Embedded, String> {
        let properties = builder.properties.iter().filter(|(key, _)| !sasl::is_embedded(key));
        let real_only = builder.settings.iter().chain(properties).next();
        if let Some((key, _)) = real_only {
            return Err(format!("only a real server has {key}: the scenario is `on real`"));
        }
        if builder.shifted_clock != 0 {
            return Err("only a real server has a clock of its own".to_owned());
        }
        let mut server = sasl::add_to(brand::embedded(), builder)?;
        if let Some(digest) = &builder.super_digest {
            server = server.super_digest(digest);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &builder.tls {
            let files = tls.issue(address.ip());
            let mut side = ServerTls::new(files.certificate, files.key).allow_plain();
            if tls.wants_clients {
                side = side.client_ca(tls.pki.ca_file());
            }
            server = server.tls(side);
        }
        let server = server
            .container_check_interval(builder.container_check)
            .host(address.ip())
            .port(address.port())
            .tick(builder.tick)
            .min_session_timeout(builder.min_session)
            .max_session_timeout(builder.max_session)
            .start()
            .map_err(|e| format!("the embedded server at {address}: {e}"))?;
        if let Some((path, next)) = &builder.counter {
            // A Keeper knows no containers.
            let mode = if brand::current() == Brand::Keeper { 0 } else { raw::CONTAINER };
            Raw::connect(&server.connect_string())
                .and_then(|mut raw| raw.create(path, b"", mode))
                .map_err(|e| format!("{path}: {e}"))?;
            server.set_sequence(path, *next).map_err(|e| format!("the counter of {path}: {e}"))?;
        }
        Ok(Embedded { server })
    }

    pub fn test_server(&self) -> &TestServer {
        &self.server
    }

    /// Looks from outside like a process that died: the port refuses connections, open connections
    /// are cut, and bytes that are under way are lost.
    pub fn kill(&self) {
        self.server.refuse(true);
        self.server.cut_connections();
    }

    pub fn restart(&self) {
        self.server.restart();
        self.server.refuse(false);
    }

    /// All records that this process has logged.
    pub fn log(&self) -> String {
        [Level::Error, Level::Warn].map(|level| logged::logged(level, "").join("\n")).join("\n")
    }
}
