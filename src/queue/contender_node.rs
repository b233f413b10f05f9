//! One contender's node, made by a request for a lock. If it is dropped before it is granted, it is
//! deleted, whatever happens to the connection.

use std::sync::Arc;

use super::held_node::{HeldNode, NewNode};
use super::held_state::OnLoss;
use super::name::NodeKey;
use zk_session::generation::{Generation, Listed, Removal};
use zk_session::lease::Refused;
use zk_session::lease::node::NodeWatch;
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
    /// The watch on the node: set on some connection, or none.
    pub(crate) watch: NodeWatch,
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
            watch: NodeWatch::Unset,
            data: Vec::new(),
            is_granted: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        path::name(&self.path)
    }

    /// Makes the node a held one, if the lease is fresh.
    pub(crate) fn grant(
        &mut self,
        on_loss: &dyn Fn(NodeKey) -> OnLoss,
    ) -> Result<HeldNode, Refused> {
        let node = NewNode {
            path: &self.path,
            is_fixed: false,
            czxid: self.czxid,
            watch: self.watch,
            data: &self.data,
            removal: Removal::named(self.path.clone(), self.id.clone()),
        };
        let held_node = HeldNode::grant(&self.generation, node, on_loss)?;
        self.is_granted = true;
        Ok(held_node)
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
