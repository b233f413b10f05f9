//! The folders of locks on a server that has no containers. ZooKeeper deletes a container itself
//! when its last child is gone. Without containers the clients have to do that.
//!
//! The folders are persistent nodes then, as Curator made them before there were containers. The
//! session that made a folder deletes it when it is empty (Curator: `Reaper`). The server refuses
//! to delete a node that has children, so no client loses its place in a queue. A client that finds
//! the folder gone makes it again, as with a container.
//!
//! The library deletes no other folder. An operator may have made a lock's folder, with an ACL and
//! data, and the next client would make it again without them. So each folder is looked at before
//! it is deleted: it must be the very node that this session made, and nobody may have given it
//! data or another ACL since. Between the look and the delete somebody may still give it another
//! ACL, or delete it and make another. That is mostly one round trip. But a delete whose answer was
//! lost may be done later, as `machine/removal.rs` says, and then hits an empty folder
//! without written data that somebody has made meanwhile. If somebody has written data to it, the
//! server refuses the delete.

use std::collections::BTreeMap;
use std::time::Duration;

use super::generation::CallError;
use crate::clock::BootTime;
use crate::world::{HashSet, Mutex};
use zk_wire::code::err;
use zk_wire::record::Stat;

/// How often empty parents are looked for. ZooKeeper looks for empty containers as often
/// (`znode.container.checkIntervalMs`).
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// A server that does not know `createContainer` may close the connection at it. When it was closed
/// so often in a row, before an answer came, this is taken for the reason.
const LOST_CONNECTIONS: u32 = 2;

/// At most so many folders are remembered as seen.
const MOST_SEEN: usize = 1 << 10;

/// What a session knows of its server's containers, in all its generations.
#[derive(Default)]
pub(crate) struct Parents(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many connections in a row were lost before they answered a create of a container.
    lost: u32,
    /// The last of these connections: its generation, and its epoch there.
    lost_on: Option<(u64, u64)>,
    are_persistent: bool,
    /// The persistent parents that this session has made and has not seen gone: full paths, and
    /// the transaction that made each.
    made: BTreeMap<String, i64>,
    /// `None` while there are no such parents.
    next_look: Option<BootTime>,
    /// Folders in which this session has made another one. They may be gone by now.
    seen: HashSet<String>,
}

impl Parents {
    /// Whether parents are made as persistent nodes.
    pub(crate) fn are_persistent(&self) -> bool {
        self.0.lock().are_persistent
    }

    /// Takes the outcome of a create of a container that was sent on this connection (its
    /// generation, and its epoch there). True: the server refuses containers, and the caller is to
    /// make a persistent node.
    pub(crate) fn is_refusal(
        &self,
        connection: (u64, u64),
        created: &Result<i64, CallError>,
    ) -> bool {
        let mut state = self.0.lock();
        let were_persistent = state.are_persistent;
        let is_refusal = match created {
            Err(CallError::ConnectionLoss) => {
                // Several threads may lose their creates with one connection.
                if state.lost_on.replace(connection) != Some(connection) {
                    state.lost += 1;
                }
                state.are_persistent |= state.lost >= LOST_CONNECTIONS;
                // The caller comes again on the next connection.
                false
            }
            Err(CallError::Other(name)) => {
                let refusals = [err::UNIMPLEMENTED, err::BAD_ARGUMENTS].map(err::name);
                let is_refusal = refusals.contains(name);
                state.are_persistent |= is_refusal;
                is_refusal
            }
            // The request was not answered, for another reason.
            Err(CallError::Expired | CallError::Deadline | CallError::Cancelled) => false,
            _ => {
                state.lost = 0;
                false
            }
        };
        if state.are_persistent && !were_persistent {
            drop(state);
            warn!(
                "the server has no containers: missing parents are made as persistent nodes, which this session deletes when they are empty"
            );
        }
        is_refusal
    }

    /// Whether this folder exists, as far as is known.
    pub(crate) fn stands(&self, dir: &str) -> bool {
        self.0.lock().seen.contains(dir)
    }

    /// This folder exists.
    pub(crate) fn saw(&self, dir: &str) {
        let mut state = self.0.lock();
        if state.seen.len() >= MOST_SEEN {
            state.seen = HashSet::default();
        }
        state.seen.insert(dir.to_owned());
    }

    /// A persistent parent was made, by the transaction `czxid`.
    pub(crate) fn made(&self, path: &str, czxid: i64, now: BootTime) {
        let mut state = self.0.lock();
        state.made.insert(path.to_owned(), czxid);
        state.next_look.get_or_insert(now + LOOK_INTERVAL);
    }

    /// This node exists no more.
    pub(crate) fn gone(&self, path: &str) {
        self.0.lock().forget(path);
    }

    /// Whether this folder, which was just looked at, is still as this session made it. If not, it
    /// is forgotten.
    pub(crate) fn is_ours(&self, path: &str, stat: &Stat) -> bool {
        let mut state = self.0.lock();
        let is_unchanged = (stat.version, stat.aversion, stat.data_length) == (0, 0, 0);
        let is_ours = is_unchanged && state.made.get(path) == Some(&stat.czxid);
        if !is_ours {
            state.forget(path);
        }
        is_ours
    }

    /// The persistent parents to delete if they are empty, if it is time.
    pub(crate) fn due(&self, now: BootTime) -> Vec<String> {
        let mut state = self.0.lock();
        match state.next_look {
            Some(time) if time <= now => {
                state.next_look = Some(now + LOOK_INTERVAL);
                state.children_first()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn next_look(&self) -> Option<BootTime> {
        self.0.lock().next_look
    }

    /// All persistent parents, each before its own parent.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().children_first()
    }
}

impl State {
    fn children_first(&self) -> Vec<String> {
        // A path sorts behind those that it begins with.
        self.made.keys().rev().cloned().collect()
    }

    fn forget(&mut self, path: &str) {
        self.made.remove(path);
        if self.made.is_empty() {
            self.next_look = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zk_wire::code::op;

    fn outcome(code: i32) -> Result<i64, CallError> {
        if code == err::OK { Ok(7) } else { Err(CallError::of(op::CREATE_CONTAINER, code)) }
    }

    #[test]
    fn a_server_that_says_no_has_no_containers() {
        for code in [err::UNIMPLEMENTED, err::BAD_ARGUMENTS] {
            let parents = Parents::default();
            assert!(
                parents.is_refusal((1, 1), &outcome(code)) && parents.are_persistent(),
                "{code}"
            );
        }
        for code in [err::OK, err::NODE_EXISTS, err::NO_NODE, err::NO_AUTH, err::MARSHALLING_ERROR]
        {
            let parents = Parents::default();
            assert!(
                !parents.is_refusal((1, 1), &outcome(code)) && !parents.are_persistent(),
                "{code}"
            );
        }
    }

    #[test]
    fn connections_that_are_lost_twice_in_a_row_mean_no_containers() {
        let parents = Parents::default();
        let lost = |connection| {
            assert!(!parents.is_refusal(connection, &outcome(err::CONNECTION_LOSS)));
            parents.are_persistent()
        };
        assert!(!lost((1, 1)));
        assert!(!parents.is_refusal((1, 2), &outcome(err::NODE_EXISTS)), "it knows them");
        assert!(!lost((1, 2)));
        assert!(!lost((1, 2)), "another thread has lost its create with the same connection");
        // The session has ended with the connection, and another has begun.
        assert!(!parents.is_refusal((1, 3), &Err(CallError::Expired)));
        assert!(lost((2, 1)));
    }

    #[test]
    fn so_many_folders_are_remembered_and_no_more() {
        let parents = Parents::default();
        let seen = |parents: &Parents| parents.0.lock().seen.len();
        parents.saw("/a");
        parents.saw("/b");
        assert!(parents.stands("/a") && parents.stands("/b") && !parents.stands("/c"));
        for n in seen(&parents)..MOST_SEEN {
            parents.saw(&format!("/locks/{n}"));
        }
        assert_eq!(seen(&parents), MOST_SEEN);
        parents.saw("/one/more");
        assert!(parents.stands("/one/more") && seen(&parents) == 1);
    }

    #[test]
    fn only_the_node_that_this_session_made_is_ours_and_only_while_nobody_changes_it() {
        let made = Stat { czxid: 7, mzxid: 7, pzxid: 7, ..Stat::default() };
        let parents = Parents::default();
        assert!(!parents.is_ours("/l", &made), "another client made it");
        for other in [
            Stat { czxid: 8, ..made },
            Stat { version: 1, ..made },
            Stat { aversion: 1, ..made },
            Stat { data_length: 1, ..made },
        ] {
            parents.made("/l", 7, BootTime::now());
            assert!(parents.is_ours("/l", &made) && !parents.is_ours("/l", &other), "{other:?}");
            assert!(parents.all().is_empty() && parents.next_look().is_none(), "it is given up");
        }
    }

    #[test]
    fn parents_are_looked_at_now_and_then_children_first_until_they_are_gone() {
        let parents = Parents::default();
        let now = BootTime::now();
        assert_eq!((parents.due(now + LOOK_INTERVAL), parents.next_look()), (vec![], None));
        for path in ["/app", "/app/locks", "/app/locks/a", "/app-b"] {
            parents.made(path, 5, now);
        }
        assert_eq!(parents.next_look(), Some(now + LOOK_INTERVAL));
        assert!(parents.due(now).is_empty());
        let first = parents.due(now + LOOK_INTERVAL);
        let place = |path: &str| first.iter().position(|other| other == path);
        assert_eq!((first.len(), place("/app/locks/a") < place("/app/locks")), (4, true));
        assert!(place("/app/locks") < place("/app"));
        assert_eq!(parents.next_look(), Some(now + LOOK_INTERVAL + LOOK_INTERVAL));
        first.iter().skip(1).for_each(|path| parents.gone(path));
        assert_eq!(parents.due(now + LOOK_INTERVAL * 2), first[..1]);
        parents.gone(&first[0]);
        assert_eq!((parents.all(), parents.next_look()), (vec![], None));
    }
}
