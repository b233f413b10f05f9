//! What is wrong with the locks below a path, and with the folders in which they stand.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zk_mutex::Permissions;
use zk_mutex::zk_session::AclEntry;

use super::report::{Findings, Level};
use super::survey::{Folder, Survey};
use crate::nodes::names::Client;
use crate::nodes::queue::Standing;
use crate::time::show;

pub fn judge(survey: &Survey, findings: &mut Findings) {
    clients(&survey.places, findings);
    kinds(&survey.places, findings);
    stuck(&survey.places, findings);
    unused(survey, findings);
}

/// Libraries that do not exclude each other.
fn clients(places: &[Standing], findings: &mut Findings) {
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    for standing in places {
        let path = &standing.path;
        let has =
            |clients: &[Client]| standing.contenders().any(|one| clients.contains(&one.client));
        let has_kazoos_names = has(&[Client::Kazoo, Client::KazooOrZkMutex]);
        let has_curators_names = standing.contenders().any(|one| one.name.starts_with("_c_"));
        if has_kazoos_names && has(&[Client::Curator]) {
            faults.push(format!(
                "kazoo and Curator contend for {path}, and do not exclude each other"
            ));
        } else if has_kazoos_names && has_curators_names {
            warnings.push(format!(
                "kazoo contends for {path} with clients whose names it may not know"
            ));
        }
    }
    let advice = "give kazoo's Lock extra_lock_patterns=[\"-lock-\"], and Curator's clients \
                  another path";
    findings.places("clients", Level::Fault, &faults, advice);
    findings.places("clients", Level::Warning, &warnings, advice);
}

/// Kinds of locks that do not exclude each other.
fn kinds(places: &[Standing], findings: &mut Findings) {
    let mut texts = Vec::new();
    for standing in places {
        let is_alone =
            standing.in_use().all(|one| standing.in_use().all(|other| one.kind == other.kind));
        if !is_alone {
            let kinds: Vec<String> =
                standing.in_use().map(|queue| queue.kind.with_article()).collect();
            texts.push(format!(
                "{} is {} at once, and these do not exclude each other",
                standing.path,
                kinds.join(" and ")
            ));
        }
    }
    let advice = "give each kind of lock a path of its own; `zk-lock show` has who uses it as what";
    findings.places("kinds", Level::Fault, &texts, advice);
}

fn stuck(places: &[Standing], findings: &mut Findings) {
    let holders = places.iter().flat_map(Standing::holders);
    let texts: Vec<String> = holders
        .filter(|holder| holder.stat.owner == 0)
        .map(|holder| format!("{} outlives all sessions: {}", holder.path, holder.describe()))
        .collect();
    let advice = "another client made it so; if its work is over, delete it with `zk-lock break`";
    findings.places("clients", Level::Note, &texts, advice);
}

/// The node of a semaphore with a number stays while nobody uses it.
fn unused(survey: &Survey, findings: &mut Findings) {
    let age = |since: i64| {
        let since = UNIX_EPOCH + Duration::from_millis(u64::try_from(since).unwrap_or(0));
        show(SystemTime::now().duration_since(since).unwrap_or_default())
    };
    let texts: Vec<String> = survey
        .unused
        .iter()
        .map(|one| {
            format!(
                "nobody uses the semaphore {} (permits: {}, written {} ago)",
                one.path,
                one.permits,
                age(one.since)
            )
        })
        .collect();
    let advice = "its number stays until somebody deletes it: `zk-lock forget` does so, if no \
                  program will use it";
    findings.places("semaphores", Level::Note, &texts, advice);
}

/// Folders whose ACL does not let this client delete, by its identities (`None` if they are not
/// known). The folder that was written to is not judged again.
pub fn folders(
    survey: &Survey,
    identities: Option<&[AclEntry]>,
    written: &str,
    findings: &mut Findings,
) {
    let is_super = |one: &AclEntry| one.scheme == "digest" && one.id.starts_with("super:");
    if identities.is_some_and(|all| all.iter().any(is_super)) {
        return;
    }
    let (mut faults, mut notes) = (Vec::new(), Vec::new());
    for Folder { path, acl, is_used } in survey.folders.iter().filter(|one| one.path != written) {
        let may = |permission: Permissions| {
            let gives = |entry: &&AclEntry| entry.permissions | permission == entry.permissions;
            acl.iter().filter(gives).any(|entry| may_be_ours(entry, identities))
        };
        match (may(Permissions::CREATE), may(Permissions::DELETE)) {
            (_, true) => {}
            (true, false) => faults.push(format!(
                "the ACL of {path} lets this client make nodes there, and delete none"
            )),
            (false, false) if *is_used => notes.push(format!(
                "the ACL of {path} lets this client neither take the lock there nor free it"
            )),
            (false, false) => {}
        }
    }
    let advice = "add DELETE to its ACL, or give credentials that it names (--auth, --sasl): without it a \
                  lock is released only by the end of the session";
    findings.places("folders", Level::Fault, &faults, advice);
    let advice = "if that is not meant, give credentials that it names with --auth or --sasl";
    findings.places("folders", Level::Note, &notes, advice);
}

/// Whether an entry of an ACL holds for this client, as far as that can be known: a server tells
/// `digest` identities of others without their passwords, and of some schemes nothing at all.
fn may_be_ours(entry: &AclEntry, identities: Option<&[AclEntry]>) -> bool {
    let user = |id: &str| id.split(':').next().unwrap_or_default().to_owned();
    match (entry.scheme.as_str(), identities) {
        ("digest", Some(ours)) => {
            ours.iter().any(|one| one.scheme == "digest" && user(&one.id) == user(&entry.id))
        }
        (scheme @ ("x509" | "sasl"), Some(ours)) => {
            ours.iter().any(|one| one.scheme == scheme && one.id == entry.id)
        }
        _ => true,
    }
}
