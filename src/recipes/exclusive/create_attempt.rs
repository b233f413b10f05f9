//! One attempt at the lock's node, under one nonce. Dropped before it is granted, what it may have
//! made is removed for sure.

use std::sync::Arc;

use crate::limit::Limit;
use crate::queue::HeldNode;
use crate::session::acl::Acl;
use crate::session::generation::{CallError, CreateMode, Generation, Node, Operation, Removal};
use crate::session::lease::Refused;
use crate::session::leased_node::{LeasedNode, OnLoss};
use crate::session::nonce;

pub(super) struct CreateAttempt {
    pub(super) generation: Arc<Generation>,
    /// The node's full path.
    path: String,
    nonce: String,
    /// A create under this nonce was acknowledged, or nobody knows.
    may_exist: bool,
}

/// Our node, as a read has shown it that left a watch on it.
pub(super) struct Sight {
    pub(super) czxid: i64,
    /// The connection that the watch stands on.
    pub(super) epoch: u64,
}

impl CreateAttempt {
    pub(super) fn new(generation: Arc<Generation>, path: String) -> Self {
        CreateAttempt { generation, path, nonce: nonce::new(), may_exist: false }
    }

    /// Whether somebody's node in our way can be one that this create_attempt made.
    pub(super) fn may_exist(&self) -> bool {
        self.may_exist
    }

    /// If this fails otherwise than by a refusal, the node may exist: another create or the drop
    /// settles that. Not if the caller's own time is up before the answer: then the connection
    /// removes the node whatever the answer says, if this create or one before it may have made it.
    pub(super) fn create(
        &mut self,
        data: &[u8],
        acl: &Acl,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        let before = std::mem::replace(&mut self.may_exist, true);
        let data = nonce::sign(&self.nonce, data);
        let mut removal = Removal::signed(self.path.clone(), self.nonce.clone(), None);
        removal.may_exist = before;
        let create =
            Operation::Create { path: &self.path, data: &data, acl, mode: CreateMode::Ephemeral };
        let flight = self.generation.flight(&[(create, Some(removal))], limit);
        let made = flight.and_then(|mut answers| answers.take(0)).map(drop);
        match made {
            Ok(()) | Err(CallError::ConnectionLoss | CallError::Other(_)) => {}
            // It is removed when the answer comes, that is seen to; before, nothing can be said of
            // it.
            Err(CallError::Deadline | CallError::Cancelled) => self.may_exist = false,
            // Refused, or never sent.
            Err(_) => self.may_exist = before,
        }
        made
    }

    /// Whether this is the node that this create_attempt made.
    pub(super) fn made(&self, node: &Node) -> bool {
        nonce::split(&node.data).0 == Some(self.nonce.as_str()) && self.is_of_our_session(node)
    }

    pub(super) fn is_of_our_session(&self, node: &Node) -> bool {
        self.generation.session_id() == Some(node.stat.owner)
    }

    /// Makes it a hold, if the lease is fresh.
    pub(super) fn grant(&mut self, sight: &Sight, on_loss: OnLoss) -> Result<HeldNode, Refused> {
        let hold = LeasedNode::fixed(self.path.clone(), sight.czxid, sight.epoch, on_loss);
        self.generation.grant(&hold)?;
        self.may_exist = false;
        let removal = Removal::signed(self.path.clone(), self.nonce.clone(), Some(sight.czxid));
        Ok(HeldNode::new(&self.generation, hold, removal))
    }
}

impl Drop for CreateAttempt {
    fn drop(&mut self) {
        if self.may_exist {
            let (path, nonce) = (std::mem::take(&mut self.path), std::mem::take(&mut self.nonce));
            self.generation.remove(Removal::signed(path, nonce, None));
        }
    }
}
