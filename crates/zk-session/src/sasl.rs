//! How a session logs in by SASL: the settings of each mechanism, and the words for what goes
//! wrong. `connection/sasl.rs` makes the steps of a login.

use crate::error::Result;
use crate::machine::SaslWords;

#[cfg(feature = "sasl-gssapi")]
pub(crate) use self::gssapi::Asked;
#[cfg(feature = "sasl-gssapi")]
pub use self::gssapi::Gssapi;

#[cfg(feature = "sasl-gssapi")]
mod gssapi;

/// The mechanism of a session, with its settings. Without a feature of SASL there is none.
#[derive(Clone)]
pub(crate) enum Sasl {
    #[cfg(feature = "sasl-digest-md5")]
    DigestMd5 { user: String, password: String },
    #[cfg(feature = "sasl-gssapi")]
    Gssapi(Gssapi),
}

impl Sasl {
    /// What messages say of this login.
    pub(crate) fn words(&self) -> SaslWords {
        match *self {
            #[cfg(feature = "sasl-digest-md5")]
            Sasl::DigestMd5 { ref user, .. } => SaslWords {
                login: format!("SASL DIGEST-MD5 as {user:?}"),
                advice: "check the user and the password against the section Server of the servers' JAAS file, and that this section is for DIGEST-MD5",
            },
            #[cfg(feature = "sasl-gssapi")]
            Sasl::Gssapi(ref gssapi) => gssapi.words(),
        }
    }

    /// The same login, for one session.
    pub(crate) fn for_a_session(&self) -> Self {
        match *self {
            #[cfg(feature = "sasl-digest-md5")]
            Sasl::DigestMd5 { .. } => self.clone(),
            #[cfg(feature = "sasl-gssapi")]
            Sasl::Gssapi(ref gssapi) => Sasl::Gssapi(gssapi.for_a_session()),
        }
    }

    /// Finds what can never work before any server is dialled.
    pub(crate) fn check(&self) -> Result<()> {
        match *self {
            #[cfg(feature = "sasl-digest-md5")]
            Sasl::DigestMd5 { ref user, ref password } => {
                use crate::error::Error;
                let is_right = |text: &str| text.len() <= 1024 && !text.contains(char::is_control);
                if user.is_empty() || !is_right(user) || !is_right(password) {
                    return Err(Error::InvalidConfig {
                        what: "sasl_digest_md5",
                        reason: "the user must have 1 to 1024 bytes and the password at most 1024, without control characters".into(),
                    });
                }
                Ok(())
            }
            #[cfg(feature = "sasl-gssapi")]
            Sasl::Gssapi(ref gssapi) => gssapi.check(),
        }
    }
}
