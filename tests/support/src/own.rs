//! The threads and listening ports of the scenario's own process.
use std::{collections::HashSet, fs};

/// The thread that gives the library's lines to the logger. It comes with the first line and goes
/// some time after the last one.
pub(crate) const LOGS: &str = "zkm-log";

/// The names of the threads, but for that of the log.
pub fn threads() -> Vec<String> {
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|task| name(task).trim().to_owned())
        .filter(|name| name != LOGS)
        .collect()
}

/// The ports on which the process listens, at any address.
pub fn listening() -> HashSet<u16> {
    let link = |fd: fs::DirEntry| Some(fs::read_link(fd.path()).ok()?.to_str()?.to_owned());
    let own: HashSet<String> =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(link).collect();
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/self/net/{table}")).unwrap());
    let port = |row: &str| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let socket = format!("socket:[{}]", fields.get(9)?);
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let is_ours = *fields.get(3)? == "0A" && own.contains(&socket);
        is_ours.then(|| u16::from_str_radix(port, 16).ok())?
    };
    tables.iter().flat_map(|table| table.lines().filter_map(port)).collect()
}
