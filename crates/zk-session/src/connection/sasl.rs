//! The steps of a login by SASL on one connection. The machine asks for each step, and says to the
//! server what the mechanism says.
//!
//! DIGEST-MD5 makes its steps at once, on the event loop. Kerberos may wait for its KDC, and so
//! makes them on a thread of its own (`gssapi`).

#[cfg(feature = "sasl-gssapi")]
use super::gssapi;
use crate::machine::SaslStep;
use crate::sasl::Sasl;
#[cfg(feature = "sasl-digest-md5")]
use zk_wire::digest_md5::{Client, Failure, Step};

/// A login on one connection.
pub(super) enum Login {
    #[cfg(feature = "sasl-digest-md5")]
    DigestMd5(Client),
    #[cfg(feature = "sasl-gssapi")]
    Gssapi(gssapi::Login),
}

impl Login {
    /// `host` is the server as the connect string has it, with its port. `wake` has the event loop
    /// call [`made_later`](Self::made_later).
    #[cfg_attr(not(feature = "sasl-gssapi"), allow(unused_variables))]
    pub(super) fn new(sasl: &Sasl, host: &str, wake: impl Fn() + Send + 'static) -> Self {
        match *sasl {
            #[cfg(feature = "sasl-digest-md5")]
            Sasl::DigestMd5 { ref user, ref password } => {
                let nonce = crate::world::new_uuid().simple().to_string();
                Login::DigestMd5(Client::new(user, password, nonce))
            }
            #[cfg(feature = "sasl-gssapi")]
            Sasl::Gssapi(ref gssapi) => Login::Gssapi(gssapi::Login::new(gssapi, host, wake)),
        }
    }

    /// Makes the first step, or the answer to this token of the server. `None`: it comes later.
    #[cfg_attr(
        not(any(feature = "sasl-digest-md5", feature = "sasl-gssapi")),
        allow(unused_variables)
    )]
    #[allow(clippy::unnecessary_wraps)] // without Kerberos no step comes later
    pub(super) fn step(&mut self, token: Option<Vec<u8>>) -> Option<SaslStep> {
        match *self {
            #[cfg(feature = "sasl-digest-md5")]
            Login::DigestMd5(ref mut client) => Some(digest_md5(client, token)),
            #[cfg(feature = "sasl-gssapi")]
            Login::Gssapi(ref mut login) => login.step(token),
        }
    }

    /// The step that has been made since, if there is one.
    pub(super) fn made_later(&mut self) -> Option<SaslStep> {
        match *self {
            #[cfg(feature = "sasl-digest-md5")]
            Login::DigestMd5(_) => None,
            #[cfg(feature = "sasl-gssapi")]
            Login::Gssapi(ref mut login) => login.made_later(),
        }
    }
}

/// A server that has no mechanism for this login answers with no token.
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub(super) const NO_SASL: &str =
    "the server does not speak this mechanism: its JAAS file has no section Server for it";

#[cfg(feature = "sasl-digest-md5")]
fn digest_md5(client: &mut Client, token: Option<Vec<u8>>) -> SaslStep {
    const SASL: &str = "SASL DIGEST-MD5";
    let Some(token) = token else { return SaslStep::Send(Vec::new()) };
    match client.step(&token) {
        Ok(Step::Send(token)) => SaslStep::Send(token),
        Ok(Step::Done) => SaslStep::Done,
        Err(Failure::NotProven | Failure::Refused) => SaslStep::Refused(format!(
            "{SASL}: the server has not proven that it knows the password; check the user and the password (a server with zookeeper.allowSaslFailedClients answers so where they are wrong), and whether it is the right server"
        )),
        Err(Failure::Malformed(_)) if token.is_empty() => {
            SaslStep::Failed(format!("{SASL}: {NO_SASL} (or its zookeeper.fips-mode forbids MD5)"))
        }
        Err(Failure::Malformed(what)) => {
            SaslStep::Failed(format!("{SASL}: the server sent {what}"))
        }
    }
}
