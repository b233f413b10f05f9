//! The dialer: chooses the server to dial next, and the time. The event loop asks it whenever there
//! is no connection.
//!
//! In each round every address of every host is tried once, in random order. Host names are looked
//! up again in each round. Between rounds there are pauses that grow, with jitter.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::clock::BootTime;
use crate::connect_string::Host;
use crate::retry::RetryPolicy;
use crate::world::{self, HashMap, shuffle};

/// A connection that ended sooner than this counts as a failed round. So a server that cuts every
/// client at once is not dialled in a loop.
const STABLE_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Dialer {
    hosts: Vec<Host>,
    policy: RetryPolicy,
    targets: VecDeque<Target>,
    /// The last known addresses of each host name: the resolver may fail in the same outage as the
    /// servers.
    known_addresses: HashMap<String, Vec<SocketAddr>>,
    is_resolving: bool,
    is_in_round: bool,
    next_round: BootTime,
    failures: u32,
    /// The host whose connection ended last. It is dialled after the others.
    failed_host: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) addr: SocketAddr,
}

pub(super) enum DialStep {
    Connect(Target),
    /// Look these names up on a thread of their own, since the resolver blocks; then call
    /// `resolved`.
    Resolve(Vec<Host>),
    Wait(Option<BootTime>),
}

/// The result of a lookup: for each host its addresses, or the error.
pub(super) type Resolved = Vec<(String, Result<Vec<SocketAddr>, String>)>;

impl Dialer {
    pub(super) fn new(hosts: Vec<Host>, policy: RetryPolicy, now: BootTime) -> Self {
        Dialer {
            hosts,
            policy,
            targets: VecDeque::new(),
            known_addresses: HashMap::default(),
            is_resolving: false,
            is_in_round: false,
            next_round: now,
            failures: 0,
            failed_host: None,
        }
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter()
    }

    /// The next step. `cap` bounds the pauses while a live session waits to be resumed.
    pub(super) fn next(&mut self, now: BootTime, cap: Option<Duration>) -> DialStep {
        loop {
            if let Some(target) = self.targets.pop_front() {
                return DialStep::Connect(target);
            }
            if self.is_resolving && !self.has_addresses() {
                return DialStep::Wait(None);
            }
            if self.is_in_round {
                self.is_in_round = false;
                self.failed_round(now, cap);
            }
            if now < self.next_round {
                return DialStep::Wait(Some(self.next_round));
            }
            self.is_in_round = true;
            let mut hosts = self.hosts.clone();
            shuffle(&mut hosts);
            let mut names = Vec::new();
            for host in hosts {
                match host.name.parse::<IpAddr>() {
                    Ok(ip) => self.targets.push_back(Target {
                        host: host.to_string(),
                        addr: SocketAddr::new(ip, host.port),
                    }),
                    Err(_) => {
                        let label = host.to_string();
                        self.add_targets(
                            &label,
                            &self.known_addresses.get(&label).cloned().unwrap_or_default(),
                        );
                        names.push(host);
                    }
                }
            }
            self.put_failed_host_last();
            if !names.is_empty() && !self.is_resolving {
                self.is_resolving = true;
                return DialStep::Resolve(names);
            }
        }
    }

    /// Takes the result of a lookup. New addresses are tried at once.
    pub(super) fn resolved(&mut self, found: Resolved) {
        self.is_resolving = false;
        for (host, addrs) in found {
            let Ok(addrs) = addrs else { continue };
            let known = self.known_addresses.get(&host).map_or(&[][..], Vec::as_slice);
            let new: Vec<_> = addrs.iter().filter(|addr| !known.contains(addr)).copied().collect();
            self.add_targets(&host, &new);
            self.known_addresses.insert(host, addrs);
        }
        self.put_failed_host_last();
    }

    fn add_targets(&mut self, host: &str, addrs: &[SocketAddr]) {
        self.targets.extend(addrs.iter().map(|addr| Target { host: host.to_owned(), addr: *addr }));
    }

    /// Whether there is an address to dial without the resolver.
    fn has_addresses(&self) -> bool {
        self.hosts.iter().any(|h| {
            h.name.parse::<IpAddr>().is_ok() || self.known_addresses.contains_key(&h.to_string())
        })
    }

    fn put_failed_host_last(&mut self) {
        let (bad, mut good): (Vec<_>, Vec<_>) =
            self.targets.drain(..).partition(|t| Some(&t.host) == self.failed_host.as_ref());
        good.extend(bad);
        self.targets = good.into();
    }

    /// The connection to `host`, which had carried the session, has ended after `lasted`.
    pub(super) fn connection_lost(
        &mut self,
        host: String,
        lasted: Duration,
        now: BootTime,
        cap: Option<Duration>,
    ) {
        self.failed_host = Some(host);
        self.targets.clear();
        self.is_in_round = false;
        if lasted >= STABLE_AFTER {
            self.failures = 0;
            self.next_round = now;
        } else {
            self.failed_round(now, cap);
        }
    }

    fn failed_round(&mut self, now: BootTime, cap: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        let pause = self.policy.pause(self.failures);
        self.next_round = now + cap.map_or(pause, |cap| pause.min(cap));
    }

    /// Skips the pause before the next round: a closing session has little time left.
    pub(super) fn skip_pause(&mut self, now: BootTime) {
        self.failures = 0;
        self.next_round = now;
    }
}

/// Looks these names up. It blocks.
pub(super) fn resolve(hosts: Vec<Host>) -> Resolved {
    let look_up = |host: &Host| {
        let addrs = world::resolve(&host.name, host.port)
            .map_err(|e| format!("the name could not be resolved: {e}"))?;
        if addrs.is_empty() { Err("the name has no address".to_owned()) } else { Ok(addrs) }
    };
    hosts.iter().map(|host| (host.to_string(), look_up(host))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialer(hosts: &[&str]) -> (Dialer, BootTime) {
        let hosts = hosts.iter().map(|h| Host { name: (*h).to_owned(), port: 2181 }).collect();
        let now = BootTime::now();
        (Dialer::new(hosts, RetryPolicy::default(), now), now)
    }

    fn connects(d: &mut Dialer, now: BootTime) -> Vec<String> {
        let mut seen = Vec::new();
        while let DialStep::Connect(t) = d.next(now, None) {
            seen.push(t.host);
        }
        seen
    }

    #[test]
    fn every_host_is_tried_once_a_round_and_rounds_pause() {
        let (mut d, now) = dialer(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let mut round = connects(&mut d, now);
        round.sort();
        assert_eq!(round, ["10.0.0.1:2181", "10.0.0.2:2181", "10.0.0.3:2181"]);
        let DialStep::Wait(Some(next)) = d.next(now, None) else { panic!("no pause") };
        assert!(next.since(now) >= Duration::from_millis(50));
        assert_eq!(connects(&mut d, next).len(), 3);
    }

    #[test]
    fn the_host_that_failed_comes_last() {
        let (mut d, now) = dialer(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        d.connection_lost("10.0.0.2:2181".into(), Duration::from_secs(9), now, None);
        assert_eq!(connects(&mut d, now).last().map(String::as_str), Some("10.0.0.2:2181"));
    }

    #[test]
    fn a_server_that_cuts_at_once_is_not_dialled_in_a_loop() {
        let (mut d, now) = dialer(&["10.0.0.1"]);
        d.connection_lost("10.0.0.1:2181".into(), Duration::from_millis(3), now, None);
        assert!(matches!(d.next(now, None), DialStep::Wait(Some(t)) if t > now));
    }

    #[test]
    fn names_are_resolved_each_round_and_every_address_is_tried() {
        let (mut d, now) = dialer(&["zk.example"]);
        assert!(matches!(d.next(now, None), DialStep::Resolve(names) if names.len() == 1));
        assert!(matches!(d.next(now, None), DialStep::Wait(None)));
        let addrs = vec!["10.0.0.1:2181".parse().unwrap(), "10.0.0.2:2181".parse().unwrap()];
        d.resolved(vec![("zk.example:2181".into(), Ok(addrs))]);
        assert_eq!(connects(&mut d, now).len(), 2);
        let DialStep::Wait(Some(next)) = d.next(now, None) else { panic!("no pause") };
        assert!(matches!(d.next(next, None), DialStep::Resolve(_)));
        let new = vec!["10.0.0.2:2181".parse().unwrap(), "10.0.0.3:2181".parse().unwrap()];
        assert_eq!(connects(&mut d, next).len(), 2);
        d.resolved(vec![("zk.example:2181".into(), Ok(new))]);
        assert_eq!(connects(&mut d, next).len(), 1);
    }

    #[test]
    fn a_resolver_that_hangs_does_not_stop_the_dialling_of_what_is_known() {
        let (mut d, mut now) = dialer(&["zk.example", "10.0.0.9"]);
        let mut dialled = 0;
        for round in 0..3 {
            if round == 0 {
                assert!(matches!(d.next(now, None), DialStep::Resolve(_)));
            }
            dialled += connects(&mut d, now).len();
            let DialStep::Wait(Some(next)) = d.next(now, None) else { panic!("no pause") };
            now = next;
        }
        assert_eq!(dialled, 3);
    }
}
