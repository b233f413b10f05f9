//! Whether the operator means this chroot, or a slip in the connect string has made it.

use std::time::{Duration, Instant};

use zk_mutex::ZkSession;

use super::super::servers::chroot;
use super::report::{Findings, Level};
use super::survey::Survey;
use crate::cli::{Common, DoctorArgs};
use crate::exit::Failure;
use crate::{connect, zk};

/// How long all looks beside the chroot may take together.
const LOOKS_TAKE: Duration = Duration::from_secs(5);
/// A slip makes so many nodes at most: a path, and the parts of a semaphore.
const FEW: usize = 16;

/// The chroot does not exist.
pub fn missing(common: &Common, args: &DoctorArgs, findings: &mut Findings) -> Result<(), Failure> {
    let ours = chroot(common.connect.as_deref().unwrap_or_default());
    let beside = beside(common, args, ours)?;
    let near = beside.map_or_else(String::new, |(path, _)| format!("; is {path} meant?"));
    findings.add(
        "chroot",
        Level::Fault,
        format!("the chroot {ours} does not exist{near}"),
        "create it, or correct the connect string: clients with another chroot have other locks",
    );
    Ok(())
}

/// The chroot exists, and nothing is in it, as if a slip of somebody's fingers had made it: then
/// another node of a name much like its own may have the locks.
pub fn typed(
    common: &Common,
    args: &DoctorArgs,
    session: &ZkSession,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let ours = chroot(common.connect.as_deref().unwrap_or_default());
    if ours.is_empty() {
        return Ok(());
    }
    if !is_empty(session)? {
        return Ok(());
    }
    if let Some((path, locks @ 1..)) = beside(common, args, ours)? {
        let are = if locks == 1 { "lock is" } else { "locks are" };
        findings.add(
            "chroot",
            Level::Warning,
            format!("nothing is in the chroot {ours}, and {locks} {are} in use below {path}"),
            "if the name is a slip, correct the connect string, and delete what it has made: \
             clients with another chroot have other locks",
        );
    }
    Ok(())
}

/// Whether there are no locks, no data and few nodes.
fn is_empty(session: &ZkSession) -> Result<bool, Failure> {
    let inside = Survey::read(session, "/", Instant::now() + LOOKS_TAKE)?;
    if inside.is_cut || inside.hidden > 0 || !inside.places.is_empty() || inside.folders.len() > FEW
    {
        return Ok(false);
    }
    for folder in &inside.folders {
        let node = zk::data(session, &folder.path)?;
        let is_semaphore = inside.unused.iter().any(|one| one.path == folder.path);
        if node.is_some_and(|(data, stat)| stat.owner != 0 || !data.is_empty() && !is_semaphore) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The node that may be meant instead of this chroot, and how many locks are in use below it: where
/// one part of the path has a name much like ours, or where there is no chroot and the path of the
/// locks exists. One with locks goes before one without.
fn beside(
    common: &Common,
    args: &DoctorArgs,
    ours: &str,
) -> Result<Option<(String, usize)>, Failure> {
    let connect = common.connect.as_deref().unwrap_or_default();
    let servers = connect.trim_end_matches('/').strip_suffix(ours);
    let whole = Common { connect: servers.map(str::to_owned), ..common.clone() };
    let session = ZkSession::connect(connect::config(&whole, args.session)?)?;
    let found = search(&session, args, ours);
    let _ = session.close();
    found
}

fn search(
    session: &ZkSession,
    args: &DoctorArgs,
    ours: &str,
) -> Result<Option<(String, usize)>, Failure> {
    let mut candidates = Vec::new();
    for (start, _) in ours.match_indices('/') {
        let (parent, rest) = (&ours[..start], &ours[start + 1..]);
        let (name, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let parent = if parent.is_empty() { "/" } else { parent };
        let siblings = zk::children(session, parent)?.unwrap_or_default();
        let near = siblings.iter().filter(|other| is_near(name, other));
        candidates.extend(near.map(|other| format!("{}{below}", zk::join(parent, other))));
    }
    let path = args.path.trim_end_matches('/');
    candidates.extend((!path.is_empty()).then(|| path.to_owned()));
    let (mut best, end) = (None, Instant::now() + LOOKS_TAKE);
    for path in candidates {
        if zk::data(session, &path)?.is_none() {
            continue;
        }
        let locks = Survey::read(session, &path, end)?.queues().count();
        if best.as_ref().is_none_or(|(_, most)| locks > *most) {
            best = Some((path, locks));
        }
    }
    Ok(best)
}

/// Whether somebody may have typed one name and meant the other: they differ by one letter in each
/// three, or only by case and signs.
fn is_near(ours: &str, other: &str) -> bool {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let shorter = ours.chars().count().min(other.chars().count());
    let differs = strsim::osa_distance(ours, other);
    ours != other && (differs <= shorter.div_ceil(3) && shorter > 1 || plain(ours) == plain(other))
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn names_are_near_if_a_slip_of_the_fingers_makes_one_of_the_other() {
        for (ours, other) in [("ap", "app"), ("order", "orders"), ("App", "app"), ("a-b", "a_b")] {
            assert!(is_near(ours, other) && is_near(other, ours), "{ours} {other}");
        }
        for (ours, other) in [("app", "app"), ("a", "b"), ("app", "locks"), ("stock", "orders")] {
            assert!(!is_near(ours, other), "{ours} {other}");
        }
    }
}
