//! Leadership: one hold, which its candidate begins and ends, and everybody may look at.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::guard::{Held, Hold};
use crate::queue::{HeldNode, Release};

/// One term of leadership, to look at.
///
/// What can be asked of it is at [`Held`]: [`is_held`](Held::is_held) and [`check`](Held::check)
/// say whether it lasts, [`lost`](Held::lost) becomes ready when it ends, in whatever way,
/// [`fencing_token`](Held::fencing_token) is for the store that the leader writes to,
/// [`valid_for`](Held::valid_for) how long it lasts if nothing more is heard of ZooKeeper.
///
/// It is a view: any thread may have one, clones look at the same term, and dropping it ends
/// nothing. The term ends when its candidate leaves or its runner's work returns
/// ([`LossReason::Resigned`](crate::LossReason::Resigned)), or when it is lost, as any lock is;
/// after that it never lasts again, though the same candidate may be elected anew.
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

/// The right to end a term, which ends with it.
#[must_use = "the term ends with it"]
pub(super) struct HeldTerm(Arc<Term>);

struct Term {
    node: HeldNode,
    path: String,
}

impl HeldTerm {
    pub(super) fn new(node: HeldNode, path: String) -> Self {
        HeldTerm(Arc::new(Term { node, path }))
    }

    pub(super) fn node(&self) -> &HeldNode {
        &self.0.node
    }

    pub(super) fn view(&self) -> Leadership {
        Leadership(Arc::new(Held::view(self.0.clone())))
    }
}

impl Drop for HeldTerm {
    fn drop(&mut self) {
        self.0.node.resign();
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
    fn release(&self, _: bool) -> Release {
        Release::of_guard_only(&self.node, false)
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
        f.debug_tuple("Leadership").field(&*self.0).finish()
    }
}
