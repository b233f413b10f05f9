//! The meaning of a node's name: the kind of the contender, and the client library that made it.

use serde_json::Value;

/// Curator's `Revoker` writes this into a node, and zk-mutex too.
pub const REVOKE: &[u8] = b"__REVOKE__";

/// The kind of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    Read,
    Write,
    /// In an election.
    Candidate,
    /// Of a semaphore.
    Permit,
    /// A lock that is one node, without a queue.
    Exclusive,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Candidate => "candidate",
            Kind::Permit => "permit",
            Kind::Exclusive => "exclusive",
        }
    }
}

/// The library that made a node, as far as its name and its data show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    ZkMutex,
    /// Curator, or a client that writes its names (Rust's zookeeper-client).
    Curator,
    Kazoo,
    /// A node with kazoo's name and with host and process id: zk-mutex writes both with its kazoo
    /// layout, and kazoo does so if its user gives such an identifier.
    KazooOrZkMutex,
    GoZookeeper,
    Unknown,
}

impl Client {
    pub fn name(self) -> &'static str {
        match self {
            Client::ZkMutex => "zk-mutex",
            Client::Curator => "Curator",
            Client::Kazoo => "kazoo",
            Client::KazooOrZkMutex => "kazoo or zk-mutex",
            Client::GoZookeeper => "go-zookeeper",
            Client::Unknown => "unknown",
        }
    }
}

/// A contender's name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub kind: Kind,
    pub sequence: i64,
    id: Id,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    /// `_c_` and a UUID with dashes.
    Curator,
    /// `_c_` and 32 hex digits.
    Go,
    /// 32 hex digits before kazoo's mark.
    Kazoo,
    /// Something else before kazoo's mark.
    KazooLike,
    Other,
}

/// The marks before the number. Curator: `InterProcessMutex`, `InterProcessReadWriteLock`,
/// `LeaderLatch`, `InterProcessSemaphoreV2`. kazoo: `recipe/lock.py`.
const MARKS: [(&str, Kind, bool); 7] = [
    ("lock-", Kind::Mutex, false),
    ("__READ__", Kind::Read, false),
    ("__WRIT__", Kind::Write, false),
    ("latch-", Kind::Candidate, false),
    ("lease-", Kind::Permit, false),
    ("__lock__", Kind::Mutex, true),
    ("__rlock__", Kind::Read, true),
];

/// `None` for a node that is no contender.
pub fn parse(name: &str) -> Option<Name> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (head, number) = name.split_at(name.len() - digits);
    // ZooKeeper writes ten digits; a number past the end of its counter is negative.
    let (head, sign) = match head.strip_suffix('-') {
        Some(less) if split(head).is_none() => (less, -1),
        _ => (head, 1),
    };
    if !(9..=19).contains(&digits) {
        return None;
    }
    let (head, kind, is_kazoo) = split(head)?;
    let sequence = number.parse::<i64>().ok()? * sign;
    Some(Name { kind, sequence, id: id(head, is_kazoo) })
}

fn split(name: &str) -> Option<(&str, Kind, bool)> {
    MARKS.iter().find_map(|&(mark, kind, is_kazoo)| {
        let head = name.strip_suffix(mark)?;
        (is_kazoo || head.is_empty() || head.ends_with('-')).then_some((head, kind, is_kazoo))
    })
}

/// As kazoo names its nodes, and go-zookeeper too.
pub fn is_hex(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn id(head: &str, is_kazoo: bool) -> Id {
    if is_kazoo {
        return if is_hex(head) { Id::Kazoo } else { Id::KazooLike };
    }
    match head.strip_suffix('-').and_then(|head| head.strip_prefix("_c_")) {
        Some(id) if is_hex(id) => Id::Go,
        Some(id) if is_uuid(id) => Id::Curator,
        _ => Id::Other,
    }
}

pub fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

impl Name {
    /// Whether kazoo waits for a node of this name, and Curator does not.
    pub fn is_kazoos(self) -> bool {
        matches!(self.id, Id::Kazoo | Id::KazooLike)
    }

    /// The library that made a node of this name and with this data. zk-mutex writes the names of
    /// Curator or of kazoo, and its data is host and process id.
    pub fn client(&self, data: &[u8]) -> Client {
        match self.id {
            Id::Curator if host_and_pid(data).is_some() => Client::ZkMutex,
            Id::Kazoo if host_and_pid(data).is_some() => Client::KazooOrZkMutex,
            // The request to let go has replaced the data, which differs between the libraries.
            Id::Curator | Id::Kazoo if data == REVOKE => Client::Unknown,
            Id::Curator => Client::Curator,
            Id::Kazoo => Client::Kazoo,
            Id::Go => Client::GoZookeeper,
            Id::KazooLike | Id::Other => Client::Unknown,
        }
    }
}

/// `host:4711`, as zk-mutex writes it.
pub fn host_and_pid(data: &[u8]) -> Option<(&str, u32)> {
    let (host, pid) = std::str::from_utf8(data).ok()?.rsplit_once(':')?;
    let is_host =
        !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c));
    pid.parse().ok().filter(|_| is_host).map(|pid| (host, pid))
}

/// The host of a contender, as far as its data has it: zk-mutex writes the host's name, and Curator
/// its address.
pub fn host(data: &[u8]) -> Value {
    match host_and_pid(data) {
        Some((host, _)) => host.into(),
        None => std::str::from_utf8(data)
            .ok()
            .filter(|text| text.parse::<std::net::IpAddr>().is_ok())
            .map_or(Value::Null, Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
    const HEX: &str = "514e5a831836450cb1a56c741e990fd8";

    #[track_caller]
    fn assert_reads(name: &str, data: &str, kind: Kind, sequence: i64, client: Client) {
        let read = parse(name).expect("a contender");
        let seen = (read.kind, read.sequence, read.client(data.as_bytes()));
        assert_eq!(seen, (kind, sequence, client), "{name}");
    }

    #[test]
    fn every_library_is_known_by_its_names() {
        use {Client::*, Kind::*};
        assert_reads(&format!("_c_{UUID}-lock-0000000031"), "h7:4711", Mutex, 31, ZkMutex);
        assert_reads(&format!("_c_{UUID}-lock-0000000031"), "10.0.0.7", Mutex, 31, Curator);
        assert_reads(&format!("_c_{UUID}-__READ__0000000007"), "10.0.0.7", Read, 7, Curator);
        assert_reads(&format!("_c_{UUID}-__WRIT__0000000008"), "", Write, 8, Curator);
        assert_reads(&format!("_c_{UUID}-latch-0000000009"), "h7:1", Candidate, 9, ZkMutex);
        assert_reads(&format!("_c_{UUID}-lease-0000000009"), "", Permit, 9, Curator);
        assert_reads(&format!("_c_{HEX}-lock-0000000031"), "", Mutex, 31, GoZookeeper);
        assert_reads(&format!("{HEX}__lock__0000000032"), "", Mutex, 32, Kazoo);
        assert_reads(&format!("{HEX}__rlock__0000000033"), "job-7", Read, 33, Kazoo);
        assert_reads(&format!("{HEX}__lock__0000000032"), "h7:4711", Mutex, 32, KazooOrZkMutex);
        assert_reads("lock-0000000001", "", Mutex, 1, Unknown);
        assert_reads(&format!("_c_{UUID}-lock--000000005"), "", Mutex, -5, Curator);
        assert_reads(&format!("_c_{UUID}-lock-12345678901"), "", Mutex, 12_345_678_901, Curator);
    }

    #[test]
    fn other_nodes_are_no_contenders() {
        for name in
            ["locks", "leases", "lock-1", "block-0000000001", "", "0000000001", "-", "-lock-"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn only_a_host_and_a_number_are_a_host_and_a_process() {
        assert_eq!(host_and_pid(b"h-7.example:4711"), Some(("h-7.example", 4711)));
        for data in ["h7", "h7:", ":12", "h 7:12", "__REVOKE__", "::1", "{\"a\":1}"] {
            assert_eq!(host_and_pid(data.as_bytes()), None, "{data}");
        }
        assert_eq!(host(b"10.0.0.7"), "10.0.0.7");
        assert_eq!(host(b"whatever"), Value::Null);
    }
}
