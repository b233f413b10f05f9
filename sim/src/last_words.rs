//! The leader hears the last of a client that goes on believing in its lease.
//!
//! A lease must end before the leader can expire the session. A fault at a random time rarely shows
//! whether it does: the leader has most often heard the client later than the client can prove, and
//! it expires sessions only at the end of a tick of its own. Here the leader hears as little as it
//! can of a holder that proves as much as it can: one of the four streams between the client, its
//! server and the leader is held for a while, and the process maybe stopped meanwhile. When the
//! stream goes on, the client gets its answers, and a few reads later it says nothing any more.
//! What its server says to the leader may be lost from about then on. All this begins at a time
//! from which the leader's sweep comes soon after the session's timeout. Clocks err as far as they
//! may: that of the process is slow, and that of the leader is fast.
//!
//! A session may be new, or have a new connection, whose handshake alone the lease counts from. The
//! servers may grant it a shorter timeout than before, and later the longer one again.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_sim_runtime::net::{self, Flow};
use zk_sim_runtime::{Death, Rng, Step, Touch, after, at_step, kill, resume, set_drift, stop};

use crate::faults::{Mix, flow_for};
use crate::scenario::World;
use crate::servers::Servers;
use crate::{between, client_host};

/// A client, its server and the leader. All times but the first are counted from the begin, which
/// is the first write of the client on its new connection, if it gets one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastWords {
    /// The process.
    pub process: usize,
    /// This long before the end of a tick of the leader, a session's timeout later, it begins.
    before_tick: Duration,
    /// The process's clock is too slow and the leader's too fast by so many millionths.
    clocks: Option<i32>,
    /// What becomes of the client's connection first.
    before: Before,
    /// The stream that is held, from when on, and for how long.
    held: Option<(Stream, Duration, Duration)>,
    /// When the process stops, and for how long.
    stops: Option<(Duration, Duration)>,
    /// From then on the client's server is not heard by the others.
    unheard: Option<Duration>,
    /// From then on the process is silent as soon as it has read so many times, or, if the servers
    /// grant a shorter timeout, has written so many times.
    silent: Option<(Duration, u32)>,
    /// How long that lasts.
    pub rest: Duration,
    /// The servers grant no longer timeout than this for so long, from before the begin on.
    pub shorter: Option<(Duration, Duration)>,
}

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Before {
    /// It stays.
    Stays,
    /// It is cut, and the session gets another one.
    Cut,
    /// The process ends, and another one in its place has a new session.
    Anew,
}

/// A stream of messages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Stream {
    /// From the client to its server.
    Asks,
    /// From the server to the client.
    Answers,
    /// From the other servers to the client's.
    Hears,
}

impl LastWords {
    /// With random times. A packet takes `packet` at most.
    pub fn random(rng: &mut Rng, mix: &Mix, packet: Duration, may_shorten: bool) -> LastWords {
        let timeout = mix.session_timeout;
        let part = |rng: &mut Rng, least: f64, most: f64| {
            timeout.mul_f64(least + (most - least) * rng.f64())
        };
        let packets = |rng: &mut Rng, most: u32| (packet * most).mul_f64(rng.f64());
        let way = rng.u32(..7);
        let before = match (way, rng.u32(..4)) {
            (0 | 1, 0..3) | (2.., 0) => Before::Cut,
            (0 | 1, _) | (2, _) => Before::Anew,
            _ => Before::Stays,
        };
        let held = match way {
            0 | 1 => None,
            2 => Some((Stream::Answers, part(rng, 0.03, 0.16))),
            3 | 4 => Some((Stream::Hears, part(rng, 0.12, 0.36))),
            _ if rng.bool() => Some((Stream::Asks, part(rng, 0.05, 0.45))),
            _ => Some((Stream::Answers, part(rng, 0.05, 0.45))),
        };
        let (held, goes_on) = match held {
            None => (None, Duration::ZERO),
            Some((stream, lasts)) => (Some((stream, Duration::ZERO, lasts)), lasts),
        };
        let stops = (way > 4 && rng.u32(..3) > 0).then(|| {
            let at = part(rng, 0.0, 0.17).min(goes_on);
            (at, goes_on - at + packets(rng, 6))
        });
        let silent = match way {
            0 | 1 if rng.bool() => Duration::ZERO,
            0 | 1 => between(rng, packet / 4, timeout / 4),
            2 => goes_on + between(rng, packet * 2, timeout / 6),
            _ => goes_on + packets(rng, 8),
        };
        let unheard = (rng.u32(..4) > 0).then(|| match way {
            3 | 4 => goes_on.mul_f64(0.5 + 0.5 * rng.f64()),
            _ => (silent + packets(rng, 16)).saturating_sub(packet * 4),
        });
        let ticks = (timeout.as_nanos() / mix.tick.as_nanos().max(1)) as u32;
        let shorter = (may_shorten && ticks > 2 && way < 2 && rng.bool())
            .then(|| (mix.tick * rng.u32(2..ticks.min(9)), part(rng, 0.2, 1.5)));
        // Now and then nothing more happens, and the session goes on.
        let is_silent = shorter.is_none() || rng.bool();
        LastWords {
            process: 0,
            before_tick: timeout.mul_f64(0.12 * rng.f64()),
            clocks: (mix.has_drift && rng.bool()).then_some(mix.most_drift),
            before,
            held,
            stops,
            unheard: unheard.filter(|_| shorter.is_none()),
            silent: is_silent.then(|| (silent, rng.u32(1..=6))),
            rest: timeout + mix.tick * 2 + timeout / 4,
            shorter,
        }
    }

    /// How long it lasts in all.
    pub fn lasts(&self) -> Duration {
        let ends = |pair: &(Duration, Duration)| pair.0 + pair.1;
        let held = self.held.map_or(Duration::ZERO, |(_, from, lasts)| from + lasts);
        let stops = self.stops.as_ref().map_or(Duration::ZERO, ends);
        let silent = self.silent.map_or(Duration::ZERO, |(at, _)| at + self.rest);
        let unheard = self.unheard.map_or(Duration::ZERO, |at| at + self.rest);
        let shorter = self.shorter.map_or(Duration::ZERO, |(_, lasts)| lasts);
        held.max(stops).max(silent).max(unheard).max(shorter)
    }

    /// Begins as soon as the leader's clock stands right, if there is a leader.
    pub(crate) fn begin(&self, world: &World) {
        let servers = world.servers();
        let Some(leader) = servers.leader() else { return };
        if let Some(ppm) = self.clocks {
            set_drift(world.process(self.process), -i64::from(ppm));
            servers.set_drift(leader, ppm);
        }
        let (mix, (_, until)) = (world.mix(), servers.tick_of(leader));
        let timeout = self.shorter.map_or(mix.session_timeout, |(most, _)| most);
        let tick = mix.tick.as_nanos().max(1);
        // The end of the leader's tick at which a session expires that it hears now, less that
        // one's timeout, is so far away.
        let slack = (until.as_nanos() + tick - timeout.as_nanos() % tick) % tick;
        let slack = Duration::from_nanos(u64::try_from(slack).unwrap_or_default());
        let wait = match slack.checked_sub(self.before_tick) {
            Some(wait) => wait,
            None => (slack + mix.tick).saturating_sub(self.before_tick),
        };
        let (this, world) = (self.clone(), world.clone());
        after(wait, move || this.connects(&world));
    }

    fn connects(self, world: &World) {
        if world.is_calm() {
            return;
        }
        world.observer().has_trouble(None, self.lasts());
        world.observer().disturbs(None);
        let servers = world.servers().clone();
        if let Some((most, lasts)) = self.shorter {
            let (min, max) = world.limits();
            for member in 0..servers.count() {
                servers.set_session_limits(member, min, most);
                let servers = servers.clone();
                after(lasts, move || servers.set_session_limits(member, min, max));
            }
        }
        match self.before {
            Before::Stays => return self.goes_on(world),
            Before::Cut => {
                let id = world.process(self.process);
                let is_its = |connection: &net::Connection| connection.process == id;
                let all = net::connections().into_iter().filter(is_its);
                all.for_each(|connection| net::cut(connection.id));
            }
            Before::Anew => {
                kill(world.process(self.process), Death::Killed);
                world.start_process(self.process);
            }
        }
        let step = Step { touch: Touch::Write, is_own: Some(true), nth: 1, then: 0 };
        let (id, world) = (world.process(self.process), world.clone());
        at_step(id, step, move |_| self.goes_on(&world));
    }

    fn goes_on(self, world: &World) {
        let id = world.process(self.process);
        let Some(member) = world.member_of(id).filter(|_| !world.is_calm()) else { return };
        world.observer().has_trouble(None, self.lasts());
        world.observer().disturbs(None);
        let servers = world.servers();
        let (client, server) = (client_host(self.process), servers.host(member));
        let others = (0..servers.count()).filter(|other| *other != member);
        let others: Vec<IpAddr> = others.map(|other| servers.host(other)).collect();
        if let Some((stream, from, lasts)) = self.held {
            let ways = match stream {
                Stream::Asks => vec![(client, server)],
                Stream::Answers => vec![(server, client)],
                Stream::Hears => others.iter().map(|other| (*other, server)).collect(),
            };
            after(from, move || {
                for (from, to) in ways {
                    flow_for(from, to, Some(Flow::Frozen), lasts);
                }
            });
        }
        if let Some((at, lasts)) = self.stops {
            after(at, move || {
                stop(id);
                after(lasts, move || resume(id));
            });
        }
        if let Some(at) = self.unheard {
            after(at, move || {
                for other in others {
                    flow_for(server, other, Some(Flow::Hole), self.rest);
                }
            });
        }
        if let Some((at, nth)) = self.silent {
            let (world, rest) = (world.clone(), self.rest);
            // A client cannot know of a shorter timeout before it has read of it: it writes then.
            let touch = if self.shorter.is_some() { Touch::Write } else { Touch::Read };
            let step = Step { touch, is_own: Some(true), nth, then: 0 };
            after(at, move || {
                at_step(id, step, move |_| {
                    if !world.is_calm() {
                        world.observer().has_trouble(Some(id), rest);
                        stop(id);
                        after(rest, move || resume(id));
                    }
                });
            });
        }
    }
}

impl Servers {
    /// The length of this member's current tick, by its own clock, that has passed, and what is
    /// left of it.
    fn tick_of(&self, member: usize) -> (Duration, Duration) {
        let (clock, tick) = self.clock_and_tick(member);
        let tick = tick.as_nanos().max(1);
        let passed = clock.as_nanos() % tick;
        let nanos = |n: u128| Duration::from_nanos(u64::try_from(n).unwrap_or_default());
        (nanos(passed), nanos(tick - passed))
    }
}
