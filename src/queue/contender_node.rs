//! One contender's node. Dropped before it is granted or kept, it is deleted for sure.

use std::sync::Arc;

use super::held_node::HeldNode;
use super::rule::RENEW_PARENT_ABOVE;
use crate::session::generation::{Generation, Listed, Removal};
use crate::session::lease::Refused;
use crate::session::leased_node::{LeasedNode, OnLoss};
use zk_wire::path;

pub(crate) struct ContenderNode {
    pub(crate) generation: Arc<Generation>,
    /// The node's full path.
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) sequence: i64,
    /// The zxid that made the node; for a downgrade's read, that of the write before it.
    pub(crate) czxid: i64,
    /// The listing that came with the node, as long as nobody has looked at it.
    pub(crate) listed: Option<Listed>,
    /// The connection that a watch on the node stands on; 0 is none.
    pub(crate) armed_on: u64,
    /// The data that the read said which armed it.
    pub(crate) data: Vec<u8>,
    /// It is deleted even if the session ends first, until it is kept.
    pub(crate) outlives_session: bool,
    /// Somebody else sees to the node from now on.
    is_granted: bool,
}

impl ContenderNode {
    /// `path` and `czxid`: of the node, as the answer to its create says.
    pub(crate) fn new(
        generation: Arc<Generation>,
        (path, czxid): (String, i64),
        id: String,
        sequence: i64,
    ) -> Self {
        ContenderNode {
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

    pub(crate) fn name(&self) -> &str {
        path::name(&self.path)
    }

    /// Leaves the node where it is; gives its path.
    pub(crate) fn keep(mut self) -> String {
        self.is_granted = true;
        std::mem::take(&mut self.path)
    }

    /// Makes it a hold, if the lease is fresh.
    pub(crate) fn grant(&mut self, on_loss: OnLoss) -> Result<HeldNode, Refused> {
        let hold = LeasedNode::new(self.path.clone(), self.czxid, self.armed_on, on_loss);
        self.generation.grant(&hold)?;
        hold.note_data(&self.data);
        self.is_granted = true;
        let mut removal = Removal::named(self.path.clone(), self.id.clone());
        removal.renew_parent = self.sequence > RENEW_PARENT_ABOVE || self.sequence < 0;
        Ok(HeldNode::new(&self.generation, hold, removal))
    }
}

impl Drop for ContenderNode {
    fn drop(&mut self) {
        if !self.is_granted {
            let mut removal =
                Removal::named(std::mem::take(&mut self.path), std::mem::take(&mut self.id));
            removal.outlives_session = self.outlives_session;
            self.generation.remove(removal);
        }
    }
}
