//! What is held while a command runs: locks of `run`, or the leadership of `elect`.

use std::time::{Duration, Instant};

use zk_mutex::{
    FencingToken, Held, LossReason, LostSignal, Result, RevokeSignal, ZkMultiGuard, ZkSession,
};

pub trait Hold {
    /// The paths, for messages.
    fn name(&self) -> String;

    /// Until when the command may run; `None` if the hold is lost.
    fn valid_until(&self) -> Option<Instant>;

    fn lost(&self) -> LostSignal;

    fn lost_reason(&self) -> Option<LossReason>;

    /// A signal for each node: another client asks the holder to release it.
    fn revoke_requests(&self) -> Vec<RevokeSignal>;

    /// What the command sees in its environment.
    fn variables(&self, session: &ZkSession) -> Vec<(String, String)>;

    fn release(self: Box<Self>) -> Result<()>;
}

/// Until when a hold is valid that is so for `left`; `None` if it is lost. The clock is read before
/// the lease: a pause between the two makes the result too early, never too late.
pub fn end_of(left: impl FnOnce() -> Duration) -> Option<Instant> {
    let now = Instant::now();
    let left = left();
    (!left.is_zero()).then(|| now + left)
}

/// The locks of `run`.
pub struct HeldLocks {
    pub paths: Vec<String>,
    pub guard: ZkMultiGuard,
}

impl Hold for HeldLocks {
    fn name(&self) -> String {
        self.paths.join(", ")
    }

    fn valid_until(&self) -> Option<Instant> {
        end_of(|| self.guard.valid_for())
    }

    fn lost(&self) -> LostSignal {
        self.guard.lost()
    }

    fn lost_reason(&self) -> Option<LossReason> {
        if self.guard.is_held() { None } else { self.guard.lost().reason() }
    }

    fn revoke_requests(&self) -> Vec<RevokeSignal> {
        self.guard.holds().map(Held::revoke_requested).collect()
    }

    fn variables(&self, session: &ZkSession) -> Vec<(String, String)> {
        variables(session, &self.paths, self.guard.holds())
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.guard.unlock()
    }
}

pub fn variables<'h>(
    session: &ZkSession,
    paths: &[String],
    holds: impl Iterator<Item = &'h Held>,
) -> Vec<(String, String)> {
    let (nodes, tokens): (Vec<_>, Vec<_>) =
        holds.map(|held| (held.path().to_owned(), token(held.fencing_token()))).unzip();
    let session = session.status().session_id.map_or_else(String::new, |id| format!("0x{id:x}"));
    // Several locks: one a line, which no path can contain.
    vec![
        ("ZK_LOCK_PATH".to_owned(), paths.join("\n")),
        ("ZK_LOCK_NODE".to_owned(), nodes.join("\n")),
        ("ZK_LOCK_FENCE".to_owned(), tokens.join("\n")),
        ("ZK_LOCK_SESSION".to_owned(), session),
    ]
}

/// 32 hex digits: as text they sort as the tokens do.
fn token(token: FencingToken) -> String {
    token.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
