//! The addresses of the servers: what the resolver has answered for each name, and which addresses
//! have failed. A [`Core`](crate::core::Core) keeps this over all its sessions at the servers.
//!
//! A server is a socket address. The newest answer for a name replaces the one before. If a look-up
//! fails, for another reason than that there is no such name, the last addresses stay: the resolver
//! may fail in the same outage as the servers.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Owner;
use crate::clock::BootTime;
use crate::connect_string::Host;
use crate::error::HostFailure;
use crate::world::HashMap;

/// If the resolver has not answered for this long, or has failed, its last answer counts: nothing
/// better can be known.
pub(super) const LOOK_UP_LIMIT: Duration = Duration::from_secs(5);

/// A server that starts again has its address in the resolver's answers after this time at most.
pub(super) const RETURNS_WITHIN: Duration = Duration::from_secs(60);

/// One address of one host of the connect string. It is shown as `zk1:2181 (10.0.0.1:2181)`, or as
/// the address alone if the connect string has no name for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// The host as the connect string has it, with its port.
    pub(super) host: String,
    pub(super) addr: SocketAddr,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host == self.addr.to_string() {
            true => f.write_str(&self.host),
            false => write!(f, "{} ({})", self.host, self.addr),
        }
    }
}

pub(crate) struct Addresses {
    names: Vec<Name>,
    failed: HashMap<SocketAddr, Failed>,
    /// The owner of the event loop that dials now. It is woken when a look-up has ended.
    dials: Option<Weak<dyn Owner>>,
}

struct Name {
    host: Host,
    addrs: Vec<SocketAddr>,
    /// The connect string has an address here, and no name.
    is_address: bool,
    is_asked: bool,
    /// When the last look-up began.
    asked: Option<BootTime>,
    /// When the look-up began that has given `addrs`.
    answered: Option<BootTime>,
    /// When the last look-up began whose answer dropped an address.
    shrunk: Option<BootTime>,
    /// Why the last look-up has given no address.
    error: Option<String>,
}

/// The last failure of an address that has carried no session since.
struct Failed {
    at: BootTime,
    reason: String,
    /// It had carried the session until then.
    has_served: bool,
}

impl Addresses {
    pub(crate) fn new(hosts: &[Host]) -> Self {
        let name = |host: &Host| {
            let ip: Option<IpAddr> = host.name.parse().ok();
            Name {
                host: host.clone(),
                addrs: ip.map(|ip| SocketAddr::new(ip, host.port)).into_iter().collect(),
                is_address: ip.is_some(),
                is_asked: false,
                asked: None,
                answered: None,
                shrunk: None,
                error: None,
            }
        };
        let names = hosts.iter().map(name).collect();
        Addresses { names, failed: HashMap::default(), dials: None }
    }

    /// This event loop dials from now on.
    pub(super) fn dials(&mut self, owner: Weak<dyn Owner>) {
        self.dials = Some(owner);
    }

    /// A name that is to be looked up now: it was not asked for since `down_since`, or not for
    /// `every`. It counts as asked for.
    pub(super) fn next_look_up(
        &mut self,
        down_since: BootTime,
        every: Duration,
        now: BootTime,
    ) -> Option<Host> {
        let is_due = |name: &&mut Name| name.due(down_since, every).is_some_and(|due| due <= now);
        let name = self.names.iter_mut().find(is_due)?;
        (name.is_asked, name.asked) = (true, Some(now));
        Some(name.host.clone())
    }

    /// When [`next_look_up`](Self::next_look_up) or [`is_current`](Self::is_current) will answer
    /// otherwise.
    pub(super) fn next_change(
        &self,
        down_since: BootTime,
        every: Duration,
        now: BootTime,
    ) -> Option<BootTime> {
        let due = self.names.iter().filter_map(|name| name.due(down_since, every));
        let has_names = self.names.iter().any(|name| !name.is_address);
        let limit = has_names.then_some(down_since + LOOK_UP_LIMIT).filter(|limit| *limit > now);
        due.chain(limit).min()
    }

    /// Takes the answer of a look-up. Gives the owner of the event loop that must hear of it.
    pub(super) fn answered(
        &mut self,
        host: &Host,
        answer: io::Result<Vec<SocketAddr>>,
    ) -> Option<Arc<dyn Owner>> {
        if let Some(name) = self.names.iter_mut().find(|name| name.host == *host) {
            name.is_asked = false;
            let is_none = |e: &io::Error| e.kind() == ErrorKind::NotFound;
            name.error = match answer {
                Ok(addrs) if !addrs.is_empty() => {
                    name.take(addrs);
                    None
                }
                Err(e) if !is_none(&e) => Some(format!("its name could not be looked up: {e}")),
                none => {
                    name.take(Vec::new());
                    let why = none.err().map_or_else(|| "no address".into(), |e| e.to_string());
                    Some(format!("its name has no address: {why}"))
                }
            };
            let listed: Vec<SocketAddr> = self.all().map(|target| target.addr).collect();
            self.failed.retain(|addr, _| listed.contains(addr));
        }
        self.dials.as_ref().and_then(Weak::upgrade)
    }

    fn all(&self) -> impl Iterator<Item = Target> {
        self.names.iter().flat_map(|name| {
            let host = name.host.to_string();
            name.addrs.iter().map(move |addr| Target { host: host.clone(), addr: *addr })
        })
    }

    /// All addresses: those that have not failed come first, and the newest failure comes last.
    pub(super) fn in_order(&self, shuffle: impl FnOnce(&mut [Target])) -> Vec<Target> {
        let mut all: Vec<Target> = self.all().collect();
        shuffle(&mut all);
        all.sort_by_key(|target| self.failed_at(target.addr));
        all
    }

    pub(super) fn failed_at(&self, addr: SocketAddr) -> Option<BootTime> {
        self.failed.get(&addr).map(|failed| failed.at)
    }

    pub(super) fn has(&self, target: &Target) -> bool {
        self.all().any(|listed| listed == *target)
    }

    pub(super) fn len(&self) -> usize {
        self.names.iter().map(|name| name.addrs.len()).sum()
    }

    /// Whether this is an address of today: the resolver was asked after `since` and has answered, or
    /// it has not answered for long and nothing better can be known. An address of before may belong
    /// to another ensemble now.
    pub(super) fn is_current(&self, target: &Target, since: BootTime, now: BootTime) -> bool {
        self.names.iter().any(|name| {
            name.addrs.contains(&target.addr)
                && name.host.to_string() == target.host
                && name.is_current(since, now)
        })
    }

    /// Whether each server has this property: every address of every name. If the addresses of a
    /// name are not known, or are those of before an outage, this is not known either. Nor is it
    /// for a while after an answer that lacks an address of before: a server that starts again may
    /// have none for a moment.
    pub(super) fn all_are(
        &self,
        down_since: BootTime,
        now: BootTime,
        is: impl Fn(&SocketAddr) -> bool,
    ) -> bool {
        let is_known = |name: &Name| {
            !name.addrs.is_empty()
                && name.is_current(down_since, now)
                && name.shrunk.is_none_or(|shrunk| now >= shrunk + RETURNS_WITHIN)
        };
        self.names.iter().all(is_known) && self.all().all(|target| is(&target.addr))
    }

    pub(super) fn failed(&mut self, addr: SocketAddr, reason: String, now: BootTime) {
        self.failed.insert(addr, Failed { at: now, reason, has_served: false });
    }

    /// This address has not failed.
    pub(super) fn forget(&mut self, addr: SocketAddr) {
        self.failed.remove(&addr);
    }

    /// The failure of this address was that of a connection that carried the session for long.
    pub(super) fn has_served(&mut self, addr: SocketAddr) {
        if let Some(failed) = self.failed.get_mut(&addr) {
            failed.has_served = true;
        }
    }

    /// This address carries the session. The one that did before has not failed in the next outage:
    /// its server may only have restarted. Otherwise addresses that have never served would come
    /// first after a restart of all servers, one by one.
    pub(super) fn serves(&mut self, addr: SocketAddr) {
        self.failed.retain(|failed_at, failed| *failed_at != addr && !failed.has_served);
        // What an earlier outage was about explains no later one.
        self.failed.values_mut().for_each(|failed| failed.reason.clear());
    }

    /// Why each server gave no session, as far as it is known. `unknown` says why nothing is.
    pub(crate) fn failures(&self, unknown: Option<&str>) -> Vec<HostFailure> {
        let mut all = Vec::new();
        for name in &self.names {
            let host = name.host.to_string();
            for addr in &name.addrs {
                let reason = self.failed.get(addr).map(|failed| failed.reason.as_str());
                let reason = reason.filter(|reason| !reason.is_empty()).or(unknown);
                let target = Target { host: host.clone(), addr: *addr };
                all.push(HostFailure {
                    host: target.to_string(),
                    reason: reason.unwrap_or("no answer yet").to_owned(),
                });
            }
            let looks_up = name.addrs.is_empty().then_some("its name is still being looked up");
            let unknown = looks_up.and_then(|looks_up| unknown.or(Some(looks_up)));
            if let Some(reason) = name.error.as_deref().or(unknown) {
                all.push(HostFailure { host, reason: reason.to_owned() });
            }
        }
        all
    }
}

impl Name {
    /// When it is to be looked up again.
    fn due(&self, down_since: BootTime, every: Duration) -> Option<BootTime> {
        if self.is_address || self.is_asked {
            return None;
        }
        let again = self.asked.filter(|asked| *asked >= down_since).map(|asked| asked + every);
        Some(again.unwrap_or(down_since))
    }

    /// Whether the resolver was asked after `since` and has answered, or has not answered for long.
    fn is_current(&self, since: BootTime, now: BootTime) -> bool {
        self.is_address
            || self.answered.is_some_and(|asked| asked >= since)
            || now >= since + LOOK_UP_LIMIT
    }

    /// Takes the resolver's newest answer.
    fn take(&mut self, addrs: Vec<SocketAddr>) {
        if self.addrs.iter().any(|old| !addrs.contains(old)) {
            self.shrunk = self.asked;
        }
        (self.addrs, self.answered) = (addrs, self.asked);
    }
}
