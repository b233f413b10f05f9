//! One attempt at the lock's node, under one nonce. Dropped before it is granted, what it may have made is removed for sure.

use std::sync::Arc;

use crate::limit::Limit;
use crate::queue::{Going, Holding};
use crate::session::acl::Acl;
use crate::session::generation::{CallError, Generation, Node};
use crate::session::hold::{Hold, OnLoss};
use crate::session::lease::Refused;
use crate::session::nonce;

pub(super) struct Bid {
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

impl Bid {
    pub(super) fn new(generation: Arc<Generation>, path: String) -> Self {
        Bid { generation, path, nonce: nonce::new(), may_exist: false }
    }

    /// Whether somebody's node in our way can be one that this bid made.
    pub(super) fn may_exist(&self) -> bool {
        self.may_exist
    }

    pub(super) fn create(&mut self, data: &[u8], acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        let before = std::mem::replace(&mut self.may_exist, true);
        let data = nonce::sign(&self.nonce, data);
        let made = self.generation.create_fixed(&self.path, &self.nonce, &data, acl, before, limit);
        match made {
            Ok(()) | Err(CallError::ConnectionLoss | CallError::Other(_)) => {}
            // It is removed when the answer comes, that is seen to; before, nothing can be said of it.
            Err(CallError::Deadline | CallError::Cancelled) => self.may_exist = false,
            // Refused, or never sent.
            Err(_) => self.may_exist = before,
        }
        made
    }

    /// Whether this is the node that this bid made.
    pub(super) fn made(&self, node: &Node) -> bool {
        nonce::split(&node.data).0 == Some(self.nonce.as_str()) && self.is_of_our_session(node)
    }

    pub(super) fn is_of_our_session(&self, node: &Node) -> bool {
        self.generation.session_id() == Some(node.stat.owner)
    }

    /// Makes it a hold, if the lease is fresh.
    pub(super) fn grant(&mut self, sight: &Sight, on_loss: OnLoss) -> Result<(Holding, Arc<Hold>), Refused> {
        let hold = Hold::fixed(self.path.clone(), sight.czxid, sight.epoch, on_loss);
        self.generation.grant(&hold)?;
        self.may_exist = false;
        let nonce = self.nonce.clone();
        Ok((Holding::new(&self.generation, hold.clone(), Going::Signed { nonce }), hold))
    }
}

impl Drop for Bid {
    fn drop(&mut self) {
        if self.may_exist {
            let (path, nonce) = (std::mem::take(&mut self.path), std::mem::take(&mut self.nonce));
            self.generation.remove(path, nonce, None, None);
        }
    }
}
