//! One contender's node. Dropped before it is granted or kept, it is deleted for sure.

use std::sync::Arc;

use super::holding::Holding;
use super::rule::RENEW_PARENT_ABOVE;
use crate::session::generation::{Generation, Listed, Removal};
use crate::session::hold::{Hold, OnLoss};
use crate::session::lease::Refused;
use zk_wire::path;

pub(super) struct Ticket {
    pub(super) generation: Arc<Generation>,
    /// The node's full path.
    pub(super) path: String,
    pub(super) id: String,
    pub(super) sequence: i64,
    /// The zxid that made the node; for a downgrade's read, that of the write before it.
    pub(super) czxid: i64,
    /// The listing that came with the node, as long as nobody has looked at it.
    pub(super) listed: Option<Listed>,
    /// The connection that a watch on the node stands on; 0 is none.
    pub(super) armed_on: u64,
    /// The data that the read said which armed it.
    pub(super) data: Vec<u8>,
    /// It is deleted even if the session ends first, until it is kept.
    pub(super) outlives_session: bool,
    /// Somebody else sees to the node from now on.
    is_granted: bool,
}

impl Ticket {
    /// `path` and `czxid`: of the node, as the answer to its create says.
    pub(super) fn new(
        generation: Arc<Generation>,
        (path, czxid): (String, i64),
        id: String,
        sequence: i64,
    ) -> Self {
        Ticket {
            generation,
            path,
            id,
            sequence,
            czxid,
            listed: None,
            armed_on: 0,
            data: Vec::new(),
            outlives_session: false,
            is_granted: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        path::name(&self.path)
    }

    /// Leaves the node where it is; gives its path.
    pub(super) fn keep(mut self) -> String {
        self.is_granted = true;
        std::mem::take(&mut self.path)
    }

    /// Makes it a hold, if the lease is fresh.
    pub(super) fn grant(&mut self, on_loss: OnLoss) -> Result<Holding, Refused> {
        let hold = Hold::new(self.path.clone(), self.czxid, self.armed_on, on_loss);
        self.generation.grant(&hold)?;
        hold.told(&self.data);
        self.is_granted = true;
        let mut removal = Removal::named(self.path.clone(), self.id.clone());
        removal.renew_parent = self.sequence > RENEW_PARENT_ABOVE || self.sequence < 0;
        Ok(Holding::new(&self.generation, hold, removal))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_granted {
            let mut removal =
                Removal::named(std::mem::take(&mut self.path), std::mem::take(&mut self.id));
            removal.outlives_session = self.outlives_session;
            self.generation.remove(removal);
        }
    }
}
