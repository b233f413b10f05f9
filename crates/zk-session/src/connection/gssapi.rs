//! A login by SASL GSSAPI (RFC 4752) with the system's library of Kerberos.
//!
//! The library may ask a KDC, wait for it for half a minute, and cannot be stopped meanwhile. So
//! each login has a thread, which makes one step after the other; the event loop passes the
//! server's tokens to it and takes its steps. When the connection is given up, the event loop drops
//! its end, and the thread ends behind the call that it is in. While a thread of this session is in
//! such a call no other is started: otherwise a KDC that does not answer would cost a thread for
//! each try.
//!
//! ```text
//! client                                server
//!   a ticket for the server          ->
//!                                    <-   the server's proof
//!   an empty token                   ->
//!                                    <-   the offer: which security layers, signed
//!   the choice: none, signed         ->
//!                                    <-   an empty token
//! ```

use libgssapi::context::{ClientCtx, CtxFlags, SecurityContext};
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::error::Error;
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, GSS_NT_USER_NAME, OidSet};

use super::sasl::NO_SASL;
use crate::clock::BootTime;
use crate::logging::contained;
use crate::machine::SaslStep;
use crate::sasl::{Asked, Gssapi};
use crate::world::{Receiver, Sender, spawn_own, unbounded};

/// A login on one connection: the event loop's end of it.
pub(super) struct Login {
    tokens: Sender<Vec<u8>>,
    steps: Receiver<SaslStep>,
    /// What the first step is, if no thread makes it.
    failed: Option<SaslStep>,
}

impl Login {
    pub(super) fn new(settings: &Gssapi, host: &str, wake: impl Fn() + Send + 'static) -> Self {
        let (tokens, inbox) = unbounded();
        let (outbox, steps) = unbounded();
        let failed = |reason: String| Some(SaslStep::Failed(format!("SASL GSSAPI: {reason}")));
        let failed = match Asking::begin(&settings.asked) {
            Err(since) => failed(format!(
                "the library of Kerberos has waited for {:.1} s; does the KDC answer?",
                BootTime::now().since(since).as_secs_f64()
            )),
            Ok(asking) => {
                let thread = Thread {
                    settings: settings.clone(),
                    target: settings.target(host),
                    stage: Stage::Begin,
                };
                let body = move || thread.run(asking, &inbox, &outbox, &wake);
                let spawned = spawn_own("zkm-sasl".into(), move || {
                    contained(body);
                });
                spawned.err().and_then(|e| failed(format!("no thread for it ({e})")))
            }
        };
        Login { tokens, steps, failed }
    }

    /// Has the thread answer this token; it makes the first step by itself.
    pub(super) fn step(&mut self, token: Option<Vec<u8>>) -> Option<SaslStep> {
        if let Some(token) = token {
            let _ = self.tokens.send(token); // if the thread has ended, it has said why
        }
        self.failed.take()
    }

    pub(super) fn made_later(&mut self) -> Option<SaslStep> {
        self.steps.try_recv().ok()
    }
}

/// A thread of the session is in a call of the library as long as this lives.
struct Asking(Asked);

impl Asking {
    /// An error says since when another thread is.
    fn begin(asked: &Asked) -> Result<Self, BootTime> {
        let mut since = asked.lock();
        match *since {
            Some(since) => Err(since),
            None => {
                *since = Some(BootTime::now());
                Ok(Asking(asked.clone()))
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

struct Thread {
    settings: Gssapi,
    /// The server's service and host.
    target: String,
    stage: Stage,
}

enum Stage {
    Begin,
    /// The context of both sides is not whole yet.
    Context(ClientCtx),
    /// The server's offer comes next.
    Offer(ClientCtx),
    /// The choice is sent.
    Chosen,
}

impl Thread {
    fn run(
        mut self,
        asking: Asking,
        tokens: &Receiver<Vec<u8>>,
        steps: &Sender<SaslStep>,
        wake: &impl Fn(),
    ) {
        let (mut asking, mut token) = (Some(asking), Vec::new());
        loop {
            let step = self.step(&token);
            drop(asking.take());
            let goes_on = matches!(step, SaslStep::Send(_));
            if steps.send(step).is_err() {
                return; // the connection was given up
            }
            wake();
            if !goes_on {
                return;
            }
            let Ok(next) = tokens.recv() else { return };
            token = next;
            asking = Asking::begin(&self.settings.asked).ok();
        }
    }

    fn step(&mut self, token: &[u8]) -> SaslStep {
        let result = match std::mem::replace(&mut self.stage, Stage::Chosen) {
            Stage::Begin => self.begin(),
            Stage::Context(_) | Stage::Offer(_) if token.is_empty() => Err(format!(
                "{NO_SASL}, or it lets clients go on whose login has failed (zookeeper.allowSaslFailedClients; then its log says why)"
            )),
            Stage::Context(_) if token.starts_with(b"realm=") => {
                Err("the server speaks DIGEST-MD5 and not Kerberos".to_owned())
            }
            Stage::Context(context) => self.establish(context, Some(token)),
            Stage::Offer(context) => choose_no_layer(context, token).map(SaslStep::Send),
            Stage::Chosen if token.is_empty() => Ok(SaslStep::Done),
            Stage::Chosen => Err("the server sent a token behind the end of the login".to_owned()),
        };
        result.unwrap_or_else(|reason| SaslStep::Failed(format!("SASL GSSAPI: {reason}")))
    }

    fn begin(&mut self) -> Result<SaslStep, String> {
        let explain = |what: &str| {
            let what = what.to_owned();
            move |e: Error| format!("{what}: {}", explained(&e))
        };
        let mechanism = OidSet::singleton(GSS_MECH_KRB5).map_err(explain("Kerberos"))?;
        let client = self.settings.client();
        let name = client.map(|name| Name::new(name.as_bytes(), Some(GSS_NT_USER_NAME)));
        let name = name.transpose().map_err(explain("the own principal"))?;
        let own = Cred::acquire(name.as_ref(), None, CredUsage::Initiate, Some(&mechanism))
            .map_err(explain("no ticket"))?;
        let server = Name::new(self.target.as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE))
            .map_err(explain(&self.target))?;
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG;
        let context = ClientCtx::new(Some(own), server, flags, Some(GSS_MECH_KRB5));
        self.establish(context, None)
    }

    fn establish(
        &mut self,
        mut context: ClientCtx,
        token: Option<&[u8]>,
    ) -> Result<SaslStep, String> {
        let made = context
            .step(token, None)
            .map_err(|e| format!("a login to {}: {}", self.target, explained(&e)))?;
        let made = made.map_or_else(Vec::new, |made| made.to_vec());
        self.stage =
            if context.is_complete() { Stage::Offer(context) } else { Stage::Context(context) };
        Ok(SaslStep::Send(made))
    }
}

/// Answers the server's offer: no security layer, and no other identity than the own.
fn choose_no_layer(mut context: ClientCtx, offer: &[u8]) -> Result<Vec<u8>, String> {
    /// The bit of an offer that stands for no security layer, and the choice of it.
    const NO_LAYER: u8 = 1;
    let offer = context
        .unwrap(offer)
        .map_err(|e| format!("the server's offer is not signed by it: {}", explained(&e)))?;
    if offer.first().is_none_or(|layers| layers & NO_LAYER == 0) {
        return Err("the server wants each message signed or sealed (sasl qop), which ZooKeeper's protocol has no place for".into());
    }
    let choice = context
        .wrap(false, &[NO_LAYER, 0, 0, 0])
        .map_err(|e| format!("the choice of a layer: {}", explained(&e)))?;
    Ok(choice.to_vec())
}

/// The library's own words, and what to do. They must be asked for on the thread that has the
/// error.
fn explained(e: &Error) -> String {
    /// Where the codes of `krb5` begin in a minor status. A code of the protocol (RFC 4120, 7.5.9)
    /// stands there plus its number.
    const KRB5: u32 = 0x96c7_3a00;
    let code = e.minor.checked_sub(KRB5);
    let advice = match code {
        Some(0x06) => "the KDC does not know the own principal; check its name and realm",
        Some(0x07) => {
            "the KDC does not know the server's principal; check the host's name in the connect string, or state it (Gssapi::server_host)"
        }
        Some(0x18 | 0x1f) => "the keytab has an old key; make it anew",
        Some(0x20) => {
            "get a new ticket (kinit), or name a keytab (KRB5_CLIENT_KTNAME), with which the library gets tickets itself"
        }
        Some(0x21 | 0x25 | 0x94) => "set the clocks of this host, the KDC and the server",
        Some(0x8d) => {
            "get a ticket (kinit; KRB5CCNAME names its cache), or name a keytab (KRB5_CLIENT_KTNAME)"
        }
        Some(0x9c) => "check that the KDC runs, and its address in krb5.conf",
        _ => "see krb5.conf, klist, and KRB5_TRACE=/dev/stderr",
    };
    format!("{e}; {advice}")
}
