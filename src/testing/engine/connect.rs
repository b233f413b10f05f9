//! How a connection gets its session (`ZooKeeperServer.processConnectRequest`).

use super::conn::State;
use super::session::PASSWORD;
use super::{ConnId, Engine};
use crate::wire::Malformed;
use crate::wire::code::op;
use crate::wire::record::{ConnectReply, ConnectRequest};
use std::time::Duration;

impl Engine {
    pub(crate) fn connect(&mut self, conn: ConnId, frame: &[u8], tag: u64) -> Result<(), Malformed> {
        let (request, knows_read_only) = ConnectRequest::read(frame)?;
        let ConnectRequest { last_zxid, timeout_ms, session_id, password } = request;
        if last_zxid > self.last_zxid {
            // It has seen what this server has forgotten: no session of its may begin here.
            info!(
                "test server: refused a client that has seen zxid {last_zxid:#x}, ours is {:#x}",
                self.last_zxid
            );
            self.close(conn);
            return Ok(());
        }
        let wanted = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let timeout = wanted.max(self.settings.min_session).min(self.settings.max_session);
        let now = self.now;
        let Some(client) = self.conns.get_mut(&conn) else { return Ok(()) };
        (client.timeout, client.old_client) = (timeout, !knows_read_only);
        if session_id == 0 {
            client.state = State::Connecting;
            let session = self.sessions.create(timeout, conn, now);
            client.session = session;
            self.submit(Some(conn), session, 0, op::CREATE_SESSION, tag, &timeout_ms.to_be_bytes());
            return Ok(());
        }
        client.session = session_id;
        // Whoever held the session is cut off first, even for a wrong password.
        if let Some(old) = self.sessions.get_mut(session_id).and_then(|session| session.conn.replace(conn)) {
            self.close(old);
        }
        let known = self.sessions.get(session_id).is_some_and(|session| session.password == password);
        if known && self.sessions.touch(session_id, timeout, now) {
            self.welcome(conn, tag);
            return Ok(());
        }
        info!("test server: there is no session {session_id:#x} with that password");
        let reply = ConnectReply { timeout_ms: 0, session_id: 0, password: vec![0; PASSWORD] };
        let bytes = if knows_read_only { reply.frame() } else { reply.old_frame() };
        self.send(conn, tag, bytes);
        self.close(conn);
        Ok(())
    }
}
