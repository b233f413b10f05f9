//! Replaces the library's queue at the server: no contender is ever ahead.

pub mod held_node;
pub mod name;
pub mod request;
pub mod revoke_signal;
pub mod tally;

use std::time::Duration;

pub(crate) use self::held_node::{EndBy, HeldNode, HoldBounds, NewNode, OnLoss, Release};
pub(crate) use self::request::{Callbacks, Request};
use crate::error::Result;
use crate::session::ZkSession;
use zk_session::Core;
use zk_session::generation::Removal;
use zk_session::lease::node::NodeWatch;

/// Those settings of a lock that matter inside one process.
pub struct Settings {
    pub session: ZkSession,
    pub path: String,
    pub hand_over: Duration,
    pub keep: Duration,
}

impl Settings {
    pub fn core(&self) -> &Core {
        self.session.core()
    }
}

pub struct Queue(String);

/// No contender waits at the server, so no place is left.
pub struct Place;

impl Queue {
    pub fn new(dir: &str) -> Self {
        Queue(dir.to_owned())
    }

    pub fn dir(&self) -> &str {
        &self.0
    }

    pub fn acquire(
        &self,
        request: &Request<'_>,
        _kind: name::Kind,
        callbacks: &Callbacks<'_>,
        _place: &mut Option<Box<Place>>,
    ) -> Result<Option<HeldNode>> {
        let core = request.core();
        loop {
            let generation = core.current();
            let number = core.new_node();
            let (path, czxid) = (format!("{}/{number}", self.0), number as i64);
            let node = NewNode {
                path: &path,
                is_fixed: false,
                czxid,
                watch: NodeWatch::Unset,
                data: &[],
                removal: Removal { path: path.clone() },
            };
            if let Ok(held_node) = HeldNode::grant(&generation, node, callbacks.on_loss) {
                return Ok(Some(held_node));
            }
            core.next(&generation);
        }
    }
}
