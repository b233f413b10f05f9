//! Clients hand their sessions over to a follower while its leader stalls, and what they ask the
//! follower then comes to the leader late.
//!
//! A client gives a handshake up after a sixth of its timeout and dials again, maybe the same
//! follower. So the follower can have asked the leader twice whether the session lives. The answer
//! to the first question completes the second connection. If the follower's messages to the leader
//! are held meanwhile, the requests of that connection stand behind the second question. The
//! client gives this connection up, too, and moves the session to another server. Then the messages
//! arrive. The second question moves the session back, and the requests are done.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_sim_runtime::net::{self, Flow};
use zk_sim_runtime::{Rng, after};

use crate::faults::{Mix, flow_for};
use crate::servers::Servers;

/// A leader that stalls, clients that connect anew, and a follower that the leader hears late.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LateHandshakes {
    /// Chooses the follower.
    number: usize,
    /// For how long the leader stalls.
    pub stalls: Duration,
    /// After this time the follower's messages are held.
    pub freezes_after: Duration,
    /// For how long they are held.
    pub frozen: Duration,
    /// The other servers refuse connections until then.
    is_alone: bool,
}

impl LateHandshakes {
    /// With random times. The leader goes on while the messages are held.
    pub fn random(rng: &mut Rng, mix: &Mix) -> LateHandshakes {
        let timeout = mix.session_timeout;
        let stalls = timeout.mul_f64(0.2 + 0.7 * rng.f64());
        let freezes_after = stalls.mul_f64(rng.f64());
        let frozen = stalls - freezes_after + timeout.mul_f64(0.1 + rng.f64());
        let (number, is_alone) = (rng.usize(..1_000), rng.bool());
        LateHandshakes { number, stalls, freezes_after, frozen, is_alone }
    }

    /// Begins now, if there is a leader.
    pub(crate) fn begin(&self, servers: &Servers) {
        let Some(leader) = servers.leader() else { return };
        let followers = Vec::from_iter((0..servers.count()).filter(|member| *member != leader));
        let follower = followers[self.number % followers.len()];
        let others = move |count| (0..count).filter(move |other| *other != follower);
        servers.stall(leader, self.stalls);
        net::connections().into_iter().for_each(|connection| net::cut(connection.id));
        if self.is_alone {
            others(servers.count()).for_each(|other| net::refuse(servers.address(other)));
        }
        let (servers, is_alone, frozen) = (servers.clone(), self.is_alone, self.frozen);
        after(self.freezes_after, move || {
            for other in others(servers.count()) {
                let (from, to) = (servers.host(follower), servers.host(other));
                flow_for(from, to, Some(Flow::Frozen), frozen);
                if is_alone {
                    servers.listen(other);
                }
            }
        });
    }
}
