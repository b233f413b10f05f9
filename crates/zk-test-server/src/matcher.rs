//! Selects requests: for a fault, or for a call that counts or finds requests.

use super::request::{Op, Request, RequestSummary};

/// Selects requests. Made from an [`Op`], and narrowed:
///
/// ```
/// use zk_test_server::{Matcher, Op};
///
/// let matcher: Matcher = Op::Create.into(); // any create
/// let matcher = Op::Create.on("/locks/orders/"); // creates below that node
/// let matcher = Op::Create.on("/locks").skip(1); // but let the first one pass
/// let matcher = Matcher::any().session(0x1234); // all requests of that session
/// ```
#[derive(Clone, Debug)]
pub struct Matcher {
    op: Option<Op>,
    path: Option<String>,
    session: Option<i64>,
    skip: usize,
}

impl Matcher {
    /// Every request, connects and heartbeats included.
    pub fn any() -> Matcher {
        Matcher { op: None, path: None, session: None, skip: 0 }
    }

    /// Only requests whose path contains `part`. A request without a path does not match.
    #[must_use]
    pub fn path_contains(mut self, part: impl Into<String>) -> Matcher {
        self.path = Some(part.into());
        self
    }

    /// Only requests of this session. A connect request belongs to the session that it wants back.
    #[must_use]
    pub fn session(mut self, id: i64) -> Matcher {
        self.session = Some(id);
        self
    }

    /// Lets `n` matching requests pass first. In a count: does not count the first `n`.
    #[must_use]
    pub fn skip(mut self, n: usize) -> Matcher {
        self.skip = n;
        self
    }

    pub(super) fn skips(&self) -> usize {
        self.skip
    }

    pub(super) fn takes(&self, request: &RequestSummary<'_>) -> bool {
        self.fits(request.op, request.path, request.session)
    }

    pub(super) fn takes_logged(&self, request: &Request) -> bool {
        self.fits(request.op, request.path.as_deref(), request.session)
    }

    fn fits(&self, op: Op, path: Option<&str>, session: i64) -> bool {
        self.op.is_none_or(|wanted| wanted == op)
            && self.session.is_none_or(|wanted| wanted == session)
            && self
                .path
                .as_ref()
                .is_none_or(|part| path.is_some_and(|path| path.contains(part.as_str())))
    }
}

impl From<Op> for Matcher {
    fn from(op: Op) -> Matcher {
        Matcher { op: Some(op), ..Matcher::any() }
    }
}

impl Op {
    /// Requests of this kind whose path contains `part`, anywhere: `"/a"` is in `"/a/b"`, in
    /// `"/ab"` and in `"/x/a"`.
    pub fn on(self, part: impl Into<String>) -> Matcher {
        Matcher::from(self).path_contains(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, path: Option<&str>, session: i64) -> RequestSummary<'_> {
        RequestSummary { op, opcode: 0, path, session, xid: 1, watch: false }
    }

    #[test]
    fn every_condition_counts() {
        let create = request(Op::Create, Some("/locks/a"), 5);
        assert!(Matcher::any().takes(&create));
        assert!(Matcher::from(Op::Create).takes(&create));
        assert!(!Matcher::from(Op::Delete).takes(&create));
        assert!(Op::Create.on("/locks").session(5).takes(&create));
        assert!(!Op::Create.on("/locks").session(6).takes(&create));
        assert!(!Op::Create.on("/other").takes(&create));
        assert!(!Op::Ping.on("/").takes(&request(Op::Ping, None, 5)));
        assert!(Op::Create.on("/locks").takes_logged(&create.logged(true)));
    }
}
