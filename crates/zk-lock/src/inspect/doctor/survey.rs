//! What stands below a path: the locks in use, semaphores that nobody uses, and the ACL of each
//! folder. It only reads.

use std::ops::ControlFlow;
use std::time::Instant;

use zk_mutex::ZkSession;
use zk_mutex::zk_session::AclEntry;

use super::nodes::OWN;
use crate::exit::{DENIED, Failure};
use crate::nodes::queue::{LockKind, Queue, SEMAPHORE, Standing};
use crate::nodes::tree::{self, At};
use crate::zk;

#[derive(Default)]
pub struct Survey {
    /// The paths with locks in use.
    pub places: Vec<Standing>,
    pub unused: Vec<Unused>,
    pub folders: Vec<Folder>,
    /// So many nodes this client may not read. It neither judges nor counts what is below them.
    pub hidden: usize,
    /// The time was over before all was seen.
    pub is_cut: bool,
}

/// A semaphore that nobody uses.
pub struct Unused {
    pub path: String,
    pub permits: u32,
    /// When its number was written: milliseconds since 1970.
    pub since: i64,
}

/// A node that is no contender's.
pub struct Folder {
    pub path: String,
    pub acl: Vec<AclEntry>,
    /// Contenders stand in it.
    pub is_used: bool,
}

impl Survey {
    /// Reads all below this path, and the path itself, until this moment at the latest.
    pub fn read(session: &ZkSession, path: &str, end: Instant) -> Result<Survey, Failure> {
        let mut survey = Survey::default();
        tree::walk(session, path, |path, found| {
            if Instant::now() >= end {
                survey.is_cut = true;
                return Ok(ControlFlow::Break(()));
            }
            let visited = match found {
                At::Standing(standing) => survey.visit(session, path, standing),
                At::Nothing => Ok(()),
                At::Hidden(why) => Err(Failure::new(DENIED, "denied", why)),
            };
            match visited {
                Err(e) if e.kind == "denied" => survey.hidden += 1,
                visited => visited?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(survey)
    }

    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.places.iter().flat_map(Standing::in_use)
    }

    fn visit(
        &mut self,
        session: &ZkSession,
        path: &str,
        standing: Standing,
    ) -> Result<(), Failure> {
        if path.rsplit('/').next().is_some_and(|name| name.starts_with(OWN)) {
            return Ok(());
        }
        self.folder(session, path, standing.in_use().next().is_some())?;
        for queue in &standing.queues {
            if queue.kind == LockKind::Semaphore {
                for part in SEMAPHORE.map(|part| zk::join(path, part)) {
                    let is_used = queue.contenders.iter().any(|one| one.path.starts_with(&part));
                    self.folder(session, &part, is_used)?;
                }
                if let Some(permits) = queue.permits.filter(|_| queue.contenders.is_empty()) {
                    self.unused(session, path, permits)?;
                }
            }
        }
        if standing.in_use().next().is_some() {
            self.places.push(standing);
        }
        Ok(())
    }

    /// A node with a number that never had a child is nobody's semaphore: many programs count.
    fn unused(&mut self, session: &ZkSession, path: &str, permits: u32) -> Result<(), Failure> {
        if let Some((_, stat)) = zk::data(session, path)? {
            if stat.cversion > 0 {
                self.unused.push(Unused { path: path.to_owned(), permits, since: stat.mtime });
            }
        }
        Ok(())
    }

    fn folder(&mut self, session: &ZkSession, path: &str, is_used: bool) -> Result<(), Failure> {
        if let Some(acl) = zk::acl(session, path)? {
            self.folders.push(Folder { path: path.to_owned(), acl, is_used });
        }
        Ok(())
    }
}
