//! Looks: each reads a node, or lists its children, with a watch, again and again until its owner
//! ends it.
//!
//! A watch at the server fires once, and ends with its connection. So the look is sent again when
//! an event of its node comes, and on each new connection. Its answers show everything that
//! matters: the owner compares each answer with the one before. An event alone proves nothing,
//! because another request of this session, or of a client that shares it, may have set the watch
//! that has fired.
//!
//! The requests of one look never overlap, so its answers come in the order in which the server has
//! done them. If an event comes while a request is under way, the request is sent once more behind
//! its answer: that event may have used up the very watch that the request sets.
//!
//! The look of a folder ([`LookKind::Folder`]) is sent once, and ends at the first event of the
//! folder or with its connection.

use super::background::{REFUSED_PAUSES, TOO_LONG_PAUSES};
use super::removal::is_passing;
use super::*;
use crate::machine::codec::{Operation, Reply};
use crate::world::HashMap;
use zk_wire::code::event;

/// What of a node is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watched {
    /// The node itself: whether it exists, and its data.
    Node,
    /// The list of its children: whether the node exists, and which children it has. A change of
    /// the data of a child is no change of the list.
    Children,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookKind {
    /// For as long as the owner wants, on each connection.
    Lasting(Watched),
    /// One listing, and the first change after it.
    Folder,
}

/// So many looks are under way at most: a server has to answer each of them within T/6, and
/// callers' requests stand behind them.
const AT_ONCE: usize = 8;

#[derive(Default)]
pub(super) struct Looks {
    all: BTreeMap<u64, Look>,
    /// The numbers of the looks at each path.
    by_path: HashMap<String, Vec<u64>>,
    /// The looks to send, by the time before which each is not sent.
    due: BTreeSet<(BootTime, u64)>,
}

struct Look {
    path: String,
    kind: LookKind,
    progress: Progress,
    /// An event of the node has come since the request was sent.
    is_stale: bool,
    /// The last listing has found no node, so a look at the node itself comes next: a listing sets
    /// no watch then.
    is_absent: bool,
    /// How often in a row the node was absent for the listing and there for the look behind it.
    flips: u32,
    /// How many connections in a row have ended while the look was under way. Its answer may be the
    /// reason: it may take longer than a connection waits for one.
    cuts: u32,
    /// The last answer was too long. Its watch is set all the same, and events come; but each look
    /// would cost as much again.
    is_too_long: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It is sent at this time.
    Due(BootTime),
    Sent,
    /// Its answer has come, and its watch is set.
    Armed,
}

impl Look {
    fn operation(&self) -> Operation<'_> {
        let path = &self.path;
        match self.kind {
            LookKind::Lasting(Watched::Children) if !self.is_absent => {
                Operation::WatchChildren { path }
            }
            LookKind::Lasting(_) => Operation::WatchNode { path },
            LookKind::Folder => Operation::GetChildren { path, watch: true },
        }
    }

    /// Whether an event of this kind may say that the answer to the look has changed.
    fn is_stirred_by(&self, kind: i32) -> bool {
        matches!(
            (kind, self.kind),
            (event::DELETED, _)
                | (event::CREATED, LookKind::Lasting(_))
                | (event::DATA_CHANGED, LookKind::Lasting(Watched::Node))
                | (
                    event::CHILDREN_CHANGED,
                    LookKind::Lasting(Watched::Children) | LookKind::Folder
                )
        )
    }
}

impl Looks {
    fn add(&mut self, number: u64, path: String, kind: LookKind, now: BootTime) {
        self.by_path.entry(path.clone()).or_default().push(number);
        let progress = Progress::Due(now);
        let look = Look {
            path,
            kind,
            progress,
            is_stale: false,
            is_absent: false,
            flips: 0,
            cuts: 0,
            is_too_long: false,
        };
        self.all.insert(number, look);
        self.due.insert((now, number));
    }

    fn remove(&mut self, number: u64) {
        let Some(look) = self.all.remove(&number) else { return };
        if let Progress::Due(at) = look.progress {
            self.due.remove(&(at, number));
        }
        if let Some(numbers) = self.by_path.get_mut(&look.path) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_path.remove(&look.path);
            }
        }
    }

    /// The look is sent at `at`; if it is due before that, nothing changes.
    fn send_at(&mut self, number: u64, at: BootTime) {
        let Some(look) = self.all.get_mut(&number) else { return };
        match look.progress {
            Progress::Due(before) if before <= at => return,
            Progress::Due(before) => drop(self.due.remove(&(before, number))),
            Progress::Sent | Progress::Armed => {}
        }
        (look.progress, look.is_stale) = (Progress::Due(at), false);
        self.due.insert((at, number));
    }

    /// Takes the next look to send, if one is due.
    fn take_due(&mut self, now: BootTime) -> Option<u64> {
        let next = *self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&next);
        Some(next.1)
    }

    /// The connection is gone, and all watches with it: each look is sent again on the next one. A
    /// refused look as well, since the next server may be another one. A look that was under way
    /// when several connections in a row ended waits, longer each time; `pause` is the first wait.
    pub(super) fn cut(&mut self, pause: Duration, now: BootTime) {
        let numbers: Vec<u64> = self.all.keys().copied().collect();
        for number in numbers {
            let Some(look) = self.all.get_mut(&number) else { continue };
            look.is_absent = false;
            let mut at = now;
            if look.progress == Progress::Sent {
                look.cuts = look.cuts.saturating_add(1);
                if let Some(doubled) = look.cuts.checked_sub(2) {
                    let times = 1_u32.checked_shl(doubled).unwrap_or(u32::MAX);
                    at = now + pause * times.min(TOO_LONG_PAUSES);
                }
            }
            self.send_at(number, at);
        }
    }

    /// Ends the looks at folders that began on an earlier connection; gives their numbers.
    fn take_folders(&mut self) -> Vec<u64> {
        let folders = self.all.iter().filter(|(_, look)| look.kind == LookKind::Folder);
        let folders: Vec<u64> = folders.map(|(number, _)| *number).collect();
        folders.iter().for_each(|number| self.remove(*number));
        folders
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many looks there are; and how many paths they have, or are to be sent.
    #[cfg(any(feature = "test", zk_sim))]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.all.len(), self.by_path.len().max(self.due.len()))
    }
}

impl Machine {
    /// From now on the owner gets [`Output::Looked`] with the number that this gives: first how
    /// the node is, and then again when that may have changed. `None` if the session is lost.
    pub(crate) fn watch_node(&mut self, path: &str, what: Watched, now: BootTime) -> Option<u64> {
        self.look(path, LookKind::Lasting(what), now)
    }

    /// Lists the children of a node with a watch. The owner gets [`Output::FolderListed`] with the
    /// number that this gives: the listing, and then the first change, or the end of the connection
    /// with which the watch ends. `None` if the session is lost.
    pub(crate) fn watch_folder(&mut self, dir: &str, now: BootTime) -> Option<u64> {
        self.look(dir, LookKind::Folder, now)
    }

    fn look(&mut self, path: &str, kind: LookKind, now: BootTime) -> Option<u64> {
        if self.is_ending() {
            return None;
        }
        self.resume_after_silence(self.timeout() / 3, now);
        let number = self.new_number();
        self.looks.add(number, path.to_owned(), kind, now);
        self.send_looks(now);
        Some(number)
    }

    /// Ends a look. Nothing is sent: the watch at the server fires once at most, and an event that
    /// nobody wants does no harm.
    pub(crate) fn end_look(&mut self, number: u64) {
        self.looks.remove(number);
    }

    /// When the next look is to be sent. `None` also if enough are under way: then the next answer
    /// sends it.
    pub(super) fn next_look(&self) -> Option<BootTime> {
        let (at, _) = self.looks.due.first()?;
        (self.looks_under_way() < AT_ONCE).then_some(*at)
    }

    fn looks_under_way(&self) -> usize {
        let is_look = |sent: &&Outstanding| matches!(sent.sent_for, SentFor::Look(_));
        self.outstanding.iter().filter(is_look).count()
    }

    /// Sends the looks that are due, as many as may be under way.
    pub(super) fn send_looks(&mut self, now: BootTime) {
        if !self.is_up() || self.is_ending() || self.looks.due.is_empty() {
            return;
        }
        for _ in self.looks_under_way()..AT_ONCE {
            let Some(number) = self.looks.take_due(now) else { return };
            let xid = self.new_xid();
            let Some(look) = self.looks.all.get_mut(&number) else { continue };
            (look.progress, look.is_stale) = (Progress::Sent, false);
            let operation = look.operation();
            self.to_server = operation.encode(xid, std::mem::take(&mut self.to_server));
            let op = operation.code();
            self.sent(xid, op, SentFor::Look(number), now);
        }
    }

    /// An event of this node has come.
    pub(super) fn stir_looks(&mut self, kind: i32, path: &str, now: BootTime) {
        let numbers = self.looks.by_path.get(path).cloned().unwrap_or_default();
        for number in numbers {
            let Some(look) = self.looks.all.get_mut(&number) else { continue };
            if !look.is_stirred_by(kind) {
                continue;
            }
            look.is_absent = false;
            match (look.kind, look.progress) {
                (LookKind::Folder, _) => {
                    self.looks.remove(number);
                    self.outputs.push_back(Output::FolderListed(number, None));
                }
                (_, Progress::Sent) => look.is_stale = true,
                (_, Progress::Due(_)) if look.is_too_long => {}
                (_, Progress::Armed | Progress::Due(_)) => self.looks.send_at(number, now),
            }
        }
        self.send_looks(now);
    }

    /// Another connection carries the session. Looks at folders end here; the others are due.
    pub(super) fn looks_attached(&mut self) {
        if self.epoch == 1 {
            return; // there was no connection before, on which a watch could have been set
        }
        for number in self.looks.take_folders() {
            self.outputs.push_back(Output::FolderListed(number, None));
        }
    }

    /// Takes the answer to the request of a look. The answer to an ended look is dropped.
    pub(super) fn look_answered(
        &mut self,
        (number, op): (u64, i32),
        code: i32,
        body: &[u8],
        now: BootTime,
    ) -> Result<(), Malformed> {
        let pause = self.timeout() / 8;
        let pending = self.pending_deletes();
        let Some(look) = self.looks.all.get_mut(&number) else { return Ok(()) };
        // If the answer is malformed, the connection is given up, and the look stays for the next.
        let reply = if code == err::OK { Some(codec::decode(op, body)?) } else { None };
        let is_stale = look.is_stale;
        (look.progress, look.cuts) = (Progress::Armed, 0);
        look.is_too_long = code == err::TOO_LONG;
        if look.kind == LookKind::Folder {
            let listed = match reply {
                Some(Reply::Children(children)) => Some((children, pending)),
                _ => {
                    self.looks.remove(number);
                    None
                }
            };
            self.outputs.push_back(Output::FolderListed(number, listed));
            return Ok(());
        }
        let lists = op == op::GET_CHILDREN2;
        let is_of_children = look.kind == LookKind::Lasting(Watched::Children);
        let mut next = is_stale.then_some(now);
        match (code, reply) {
            // The node was made behind the listing that did not find it. If that happens over and
            // over, the answers contradict each other.
            (_, Some(Reply::Stat(_))) if is_of_children => {
                look.is_absent = false;
                look.flips += 1;
                next = Some(if look.flips > 1 { now + pause } else { now });
            }
            (_, Some(Reply::Stat(stat) | Reply::Listed(stat))) => {
                look.flips = 0;
                self.outputs.push_back(Output::Looked(number, Ok(Some(stat))));
            }
            (err::NO_NODE, _) if lists => {
                look.is_absent = true;
                next = Some(now);
            }
            (err::NO_NODE, _) => {
                look.flips = 0;
                self.outputs.push_back(Output::Looked(number, Ok(None)));
            }
            (code, _) if is_passing(code) => next = Some(now + pause),
            // Somebody must change something before another try can succeed.
            (code, _) => {
                self.outputs.push_back(Output::Looked(number, Err(code)));
                let times = if code == err::TOO_LONG { TOO_LONG_PAUSES } else { REFUSED_PAUSES };
                next = Some(now + pause * times);
            }
        }
        if let Some(at) = next {
            self.looks.send_at(number, at);
        }
        Ok(())
    }
}
