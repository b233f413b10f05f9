//! Answers in normal form: without the numbers in which two servers may differ.
use super::super::{
    answers::{Body, Event, Heard, Outcome, Reply},
    checks::timeless,
};
use zk_test_support::raw::{Acl, Stat};

/// Translates one server's numbers.
pub struct Normal {
    /// The last zxid before the sequence.
    pub base: i64,
    /// The sessions of the sequence, in the order in which they began.
    pub sessions: Vec<i64>,
}

impl Normal {
    pub fn heard(&self, heard: Heard) -> Heard {
        match heard {
            Heard::Reply(reply) => Heard::Reply(self.reply(reply)),
            Heard::Event(event) => Heard::Event(Event { zxid: self.zxid(event.zxid), ..event }),
            Heard::Closed => Heard::Closed,
        }
    }

    pub fn reply(&self, reply: Reply) -> Reply {
        let body = match reply.body {
            Body::Created(path, stat) => Body::Created(path, self.stat(stat)),
            Body::Stat(stat) => Body::Stat(self.stat(stat)),
            Body::Data(data, stat) => Body::Data(data, self.stat(stat)),
            Body::Acl(list, stat) => Body::Acl(sorted(list), self.stat(stat)),
            Body::Children(names, stat) => Body::Children(names, self.stat(stat)),
            Body::Results(results) => {
                Body::Results(results.into_iter().map(|result| self.outcome(result)).collect())
            }
            other @ (Body::Empty
            | Body::Path(_)
            | Body::Names(_)
            | Body::Number(_)
            | Body::Who(_)
            | Body::Token(_)
            | Body::Other(_)) => other,
        };
        Reply { zxid: self.zxid(reply.zxid), body, ..reply }
    }

    fn outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Create2(path, stat) => Outcome::Create2(path, self.stat(stat)),
            Outcome::SetData(stat) => Outcome::SetData(self.stat(stat)),
            Outcome::Data(data, stat) => Outcome::Data(data, self.stat(stat)),
            other => other,
        }
    }

    fn stat(&self, stat: Stat) -> Stat {
        // The root and the other nodes of a fresh server have no creation time.
        let stat =
            if stat.czxid == 0 { Stat { ctime: 0, mtime: 0, ..stat } } else { timeless(stat) };
        Stat {
            czxid: self.zxid(stat.czxid),
            mzxid: self.zxid(stat.mzxid),
            pzxid: self.zxid(stat.pzxid),
            ephemeral_owner: self.session(stat.ephemeral_owner),
            ..stat
        }
    }

    /// -1 and 0, which are not zxids, stay.
    pub fn zxid(&self, zxid: i64) -> i64 {
        if zxid <= 0 { zxid } else { zxid - self.base }
    }

    /// The number of a session, counted from 1.
    fn session(&self, id: i64) -> i64 {
        match self.sessions.iter().position(|session| *session == id) {
            Some(at) => at as i64 + 1,
            None => {
                assert_eq!(id, 0, "the owner is no session of this sequence");
                0
            }
        }
    }
}

/// An ACL in sorted order: the scheme `auth` stands for credentials in the order of a hash table.
fn sorted(mut list: Vec<Acl>) -> Vec<Acl> {
    list.sort_by(|a, b| (&a.scheme, &a.id, a.perms).cmp(&(&b.scheme, &b.id, b.perms)));
    list
}
