//! Replaces the library's queue at the server: no contender is ever ahead.

use std::time::Duration;

pub mod call;
pub mod held_node;
pub mod held_state;
pub mod name;

pub(crate) use self::held_node::{HeldNode, NewNode, Release};
pub(crate) use self::held_state::{HoldBounds, OnLoss};
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::Core;
use crate::session::generation::Removal;
use crate::session::leased_node::NodeWatch;
use crate::wait::{Mode, UserCall};

pub struct Queue(String);

pub struct QueueRequest<'a> {
    pub call: &'a UserCall,
    pub core: &'a Core,
    pub kind: name::Kind,
    pub mode: Mode,
    pub limit: Limit<'a>,
    pub on_overdue: Option<&'a dyn Fn(&Error)>,
    pub warn_after: Duration,
    pub data: &'a [u8],
    pub on_id: &'a dyn Fn(&str),
    pub on_blocked: &'a dyn Fn(bool),
    pub on_loss: &'a dyn Fn() -> OnLoss,
}

impl Queue {
    pub fn new(dir: &str) -> Self {
        Queue(dir.to_owned())
    }

    pub fn dir(&self) -> &str {
        &self.0
    }

    pub fn acquire(&self, request: &QueueRequest<'_>) -> Result<Option<HeldNode>> {
        loop {
            let generation = request.core.current();
            let path = format!("{}/{}", self.0, request.core.new_node());
            let node = NewNode {
                path: &path,
                is_fixed: false,
                czxid: 0,
                watch: NodeWatch::Unset,
                data: &[],
                removal: Removal { path: path.clone() },
            };
            if let Ok(held_node) = HeldNode::grant(&generation, node, (request.on_loss)()) {
                return Ok(Some(held_node));
            }
            request.core.next(&generation);
        }
    }
}
