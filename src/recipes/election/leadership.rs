//! `Leadership`: one term of a leader. The candidate or the runner begins and ends it; the program
//! looks at it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::queue::tally::HoldTally;
use crate::queue::{EndBy, HeldNode, Release};
use crate::recipes::guard::{Held, Hold};

/// One term of leadership, to look at.
///
/// Its methods are those of [`Held`]. [`is_held`](Held::is_held) and [`check`](Held::check) say
/// whether the term lasts. [`lost`](Held::lost) becomes ready when it ends, in whatever way.
/// [`fencing_token`](Held::fencing_token) is for the store that the leader writes to.
/// [`valid_for`](Held::valid_for) says how long the term lasts even if ZooKeeper never answers
/// again.
///
/// It is no guard, because the candidate outlives its terms: it is elected again after a loss, and
/// several threads of the program may look at one term. So this is only a view. Any thread may have
/// it, its clones show the same term, and if you drop it, the term goes on. It does not keep the
/// session open. The candidate is what to keep and to drop. The term ends when its candidate leaves
/// or is dropped, when the closure of the runner returns
/// ([`LossReason::Resigned`](crate::LossReason::Resigned)), or when it is lost, as any lock can be.
/// A term that has ended never lasts again. If the same candidate is elected again, that is another
/// term.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{ZkElection, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let candidate = ZkElection::new(&session, "/elections/billing")?.join()?;
/// let leadership = candidate.wait_leader()?;
/// let token = leadership.fencing_token();
/// while leadership.is_held() {
///     println!("a piece of work under {token}"); // the store refuses an older token
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leadership(Arc<Held>);

/// The owner of a term. The term ends when this is dropped.
#[must_use = "the term ends with it"]
pub(super) struct HeldTerm {
    term: Arc<Term>,
    tally: HoldTally,
}

struct Term {
    node: HeldNode,
    path: String,
}

impl HeldTerm {
    pub(super) fn new(node: HeldNode, path: String, tally: HoldTally) -> Self {
        HeldTerm { term: Arc::new(Term { node, path }), tally }
    }

    pub(super) fn node(&self) -> &HeldNode {
        &self.term.node
    }

    pub(super) fn view(&self) -> Leadership {
        Leadership(Arc::new(Held::view(self.term.clone())))
    }
}

impl Drop for HeldTerm {
    fn drop(&mut self) {
        if self.term.node.process().keeps(&self.term) {
            return; // the program has forked inside of the closure that leads
        }
        self.tally.end(&self.term.node, &[]);
        self.term.node.resign();
    }
}

impl Hold for Term {
    fn node(&self) -> &HeldNode {
        &self.node
    }

    fn path(&self) -> &str {
        &self.path
    }

    /// A view has nothing to release.
    fn release(&self, _: EndBy) -> Release {
        Release::of_guard_only(&self.node, EndBy::Drop)
    }
}

impl Deref for Leadership {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.0
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show("Leadership", f)
    }
}
