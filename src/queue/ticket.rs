//! One contender's node. Dropped before it is granted or kept, it is deleted for sure.

use std::sync::Arc;

use super::holding::{Going, Holding};
use super::rule::RENEW_PARENT_ABOVE;
use crate::session::generation::{Created, Generation, Listed};
use crate::session::hold::{Hold, OnLoss};
use crate::session::lease::Refused;

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
    outlives_session: bool,
    is_granted: bool,
}

impl Ticket {
    pub(super) fn new(generation: Arc<Generation>, created: Created, id: String, sequence: i64) -> Self {
        let Created { path, czxid } = created;
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

    /// Of a node that outlives its session: until it is kept it is deleted even if the session ends.
    pub(super) fn lasting(mut self) -> Self {
        self.outlives_session = true;
        self
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
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
        let renew_parent = self.sequence > RENEW_PARENT_ABOVE || self.sequence < 0;
        Ok(Holding::new(&self.generation, hold, Going::Named { id: self.id.clone(), renew_parent }))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_granted {
            let (path, id) = (std::mem::take(&mut self.path), std::mem::take(&mut self.id));
            self.generation.delete(path, id, false, self.outlives_session, None);
        }
    }
}
