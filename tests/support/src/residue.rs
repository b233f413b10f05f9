//! The residue of a scenario: threads, sockets and processes, read from /proc.
use crate::own::LOGS;
use std::{collections::BTreeMap, fs, net::Ipv4Addr, process};

/// Threads and sockets of this process, and other processes of its group, each with a description.
pub struct Residue {
    items: BTreeMap<(Kind, u64), String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Thread,
    Socket,
    Process,
}

/// The thread that the `async-io` crate, below the `zookeeper-client` crate, keeps for the life of
/// a process.
const FOREIGN: &str = "async-io";

impl Residue {
    pub fn now() -> Residue {
        let threads = numbers("/proc/self/task").map(|tid| {
            let name =
                fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
            ((Kind::Thread, tid), name.trim().to_owned())
        });
        let threads = threads.filter(|(_, name)| name != FOREIGN && name != LOGS);
        let sockets = numbers("/proc/self/fd").filter_map(|fd| {
            let link = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
            Some(((Kind::Socket, inode), String::new()))
        });
        let processes = group(process::id()).into_iter().filter(|pid| *pid != process::id());
        let processes = processes.map(|pid| ((Kind::Process, u64::from(pid)), command_line(pid)));
        Residue { items: threads.chain(sockets).chain(processes).collect() }
    }

    /// The descriptions of all things that are here now and were not here then.
    pub fn since(&self) -> Vec<String> {
        let now = Residue::now();
        let new = now.items.iter().filter(|(key, _)| !self.items.contains_key(key));
        new.map(|((kind, id), about)| match kind {
            Kind::Socket => format!("Socket {}", endpoints(*id)),
            kind => format!("{kind:?} {id} {about}"),
        })
        .collect()
    }
}

/// The processes of a process group, zombies too.
pub fn group(leader: u32) -> Vec<u32> {
    let member = |pid: &u64| {
        stat(*pid)
            .is_some_and(|fields| fields.get(2).is_some_and(|group| *group == leader.to_string()))
    };
    numbers("/proc").filter(member).filter_map(|pid| u32::try_from(pid).ok()).collect()
}

/// The state letter of a process (R, S, T, Z ..), None if there is none.
pub fn state(pid: u32) -> Option<char> {
    stat(u64::from(pid))?.first()?.chars().next()
}

/// The fields of /proc/pid/stat behind the name: state, parent, group ..
fn stat(pid: u64) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(line.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

fn command_line(pid: u32) -> String {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.replace('\0', " ").chars().take(200).collect()
}

fn numbers(dir: &str) -> impl Iterator<Item = u64> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok())
}

/// `local -> remote (state)` of a socket, where /proc/net says.
fn endpoints(inode: u64) -> String {
    for table in ["tcp", "tcp6"] {
        let rows = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        for row in rows.lines() {
            let fields: Vec<&str> = row.split_whitespace().collect();
            if fields.get(9).is_some_and(|field| *field == inode.to_string()) {
                return format!(
                    "{} -> {} (state {})",
                    address(fields[1]),
                    address(fields[2]),
                    fields[3]
                );
            }
        }
    }
    format!("{inode} (not TCP, or not connected)")
}

/// `0100007F:0885` as 127.0.0.1:2181; left as it is where it is not IPv4.
fn address(field: &str) -> String {
    let parse = || {
        let (host, port) = field.split_once(':').filter(|(host, _)| host.len() == 8)?;
        let host = u32::from_str_radix(host, 16).ok()?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(format!("{}:{port}", Ipv4Addr::from(host.to_ne_bytes())))
    };
    parse().unwrap_or_else(|| field.to_owned())
}
