//! One contender's node, made by a request for a lock. If it is dropped before it is granted, it is
//! deleted, whatever happens to the connection.

use std::sync::Arc;

use super::held_node::HeldNode;
use crate::session::generation::{Generation, Listed, Removal};
use crate::session::lease::Refused;
use crate::session::leased_node::{LeasedNode, OnLoss};
use zk_wire::path;

pub(crate) struct ContenderNode {
    pub(crate) generation: Arc<Generation>,
    /// The node's full path.
    pub(crate) path: String,
    pub(crate) id: String,
    /// The zxid of the create; in a downgrade's read node, that of the write which it follows.
    pub(crate) czxid: i64,
    /// The listing that came with the node, until it is used.
    pub(crate) listed: Option<Listed>,
    /// The connection on which a watch on the node is set; 0 is none.
    pub(crate) armed_on: u64,
    /// The node's data, as the read said that set the watch.
    pub(crate) data: Vec<u8>,
    /// The node is held: its drop here must not delete it.
    is_granted: bool,
}

impl ContenderNode {
    /// `path` and `czxid` are those that the answer to the create says.
    pub(crate) fn new(
        generation: Arc<Generation>,
        (path, czxid): (String, i64),
        id: String,
    ) -> Self {
        ContenderNode {
            generation,
            path,
            id,
            czxid,
            listed: None,
            armed_on: 0,
            data: Vec::new(),
            is_granted: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        path::name(&self.path)
    }

    /// Makes the node a held one, if the lease is fresh.
    pub(crate) fn grant(&mut self, on_loss: OnLoss) -> Result<HeldNode, Refused> {
        let leased = LeasedNode::new(self.path.clone(), self.czxid, self.armed_on, on_loss);
        self.generation.grant(&leased)?;
        leased.note_data(&self.data);
        self.is_granted = true;
        let removal = Removal::named(self.path.clone(), self.id.clone());
        Ok(HeldNode::new(&self.generation, leased, removal))
    }
}

impl Drop for ContenderNode {
    fn drop(&mut self) {
        if !self.is_granted {
            let (path, id) = (std::mem::take(&mut self.path), std::mem::take(&mut self.id));
            self.generation.remove(Removal::named(path, id));
        }
    }
}
