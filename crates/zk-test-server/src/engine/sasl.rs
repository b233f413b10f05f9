//! Logins by SASL: the users that the server knows, and the state of each connection's login
//! (`ZooKeeperServer.processSasl`, `AuthenticationHelper`, Java's `DigestMD5Server`). The mechanism
//! itself is `zk_wire::digest_md5`, which the feature `sasl` brings. Without the feature no server
//! has users, so none is configured for SASL.

use std::collections::BTreeMap;
use std::fmt;
use zk_wire::code::err;
#[cfg(feature = "sasl")]
use zk_wire::digest_md5::{Failure, Server};

/// How a server deals with logins by SASL. By default it has no users: it is not configured for
/// SASL.
#[derive(Clone, Default)]
pub struct Sasl {
    /// The passwords by the users' names.
    pub users: BTreeMap<String, String>,
    /// Only connections that have logged in are served (`zookeeper.sessionRequireClientSASLAuth`).
    pub is_required: bool,
    /// A connection stays open after a login that has failed (`zookeeper.allowSaslFailedClients`).
    pub allows_failed: bool,
}

/// The passwords stay out of logs.
impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sasl")
            .field("users", &self.users.keys())
            .field("is_required", &self.is_required)
            .field("allows_failed", &self.allows_failed)
            .finish()
    }
}

/// How far a connection's login has come. A connection has one login: there is no second one after
/// it, whether it has succeeded or not.
#[derive(Default)]
pub(crate) enum Login {
    #[default]
    New,
    /// The client has a challenge, and owes its response.
    #[cfg(feature = "sasl")]
    Challenged(Server),
    #[cfg(feature = "sasl")]
    Over,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Login::New => "New",
            #[cfg(feature = "sasl")]
            Login::Challenged(_) => "Challenged",
            #[cfg(feature = "sasl")]
            Login::Over => "Over",
        })
    }
}

/// The answer to a client's token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// The server's token, or a null one.
    pub(super) token: Option<Vec<u8>>,
    /// The user, once the client has logged in.
    pub(super) user: Option<String>,
}

/// Why a login has failed. It goes to the log alone.
struct Failed(&'static str);

impl Sasl {
    pub(crate) fn is_configured(&self) -> bool {
        !self.users.is_empty()
    }

    /// Takes a client's token. `nonce` makes one of letters and digits that was never used before.
    /// After an error code the connection is to be closed.
    pub(super) fn step(
        &self,
        login: &mut Login,
        token: &[u8],
        nonce: impl FnOnce() -> String,
    ) -> Result<Answer, i32> {
        if !self.is_configured() {
            // The real server has no `SaslServer` then. It catches the NullPointerException, and
            // answers as if all were well.
            return Ok(Answer::default());
        }
        login.take(token, &self.users, nonce).or_else(|Failed(why)| {
            warn!("test server: a login by SASL has failed: {why}");
            match self {
                Sasl { is_required: true, .. } => Err(err::REQUIRES_AUTH),
                Sasl { allows_failed: true, .. } => Ok(Answer::default()),
                _ => Err(err::AUTH_FAILED),
            }
        })
    }
}

impl Login {
    #[cfg(feature = "sasl")]
    fn take(
        &mut self,
        token: &[u8],
        users: &BTreeMap<String, String>,
        nonce: impl FnOnce() -> String,
    ) -> Result<Answer, Failed> {
        /// The longest token of a client. A longer one fails, and the login stays where it was.
        const LONGEST: usize = 4096;
        if token.len() > LONGEST {
            return Err(Failed("the token is too long"));
        }
        match self {
            // The server begins, whatever the client has sent to ask it for that.
            Login::New => {
                let server = Server::new(nonce());
                let challenge = server.challenge();
                *self = Login::Challenged(server);
                Ok(Answer { token: Some(challenge), user: None })
            }
            Login::Challenged(server) => {
                let result = server.answer(token, |user| users.get(user).cloned());
                *self = Login::Over;
                let (user, proof) = result.map_err(|failure| match failure {
                    Failure::Malformed(malformed) => Failed(malformed.0),
                    _ => Failed("there is no such user, or the password is wrong"),
                })?;
                Ok(Answer { token: Some(proof), user: Some(user) })
            }
            Login::Over => Err(Failed("the connection has had its login")),
        }
    }

    #[cfg(not(feature = "sasl"))]
    fn take(
        &mut self,
        _: &[u8],
        _: &BTreeMap<String, String>,
        _: impl FnOnce() -> String,
    ) -> Result<Answer, Failed> {
        Err(Failed("the feature `sasl` was left out"))
    }
}
