//! The hook for a client of another kind that shares the session: its raw requests, and the news
//! that it gets. The session knows no such client. The bridge to the `zookeeper` crate
//! (`src/client`) is one, behind the feature `client`.
//!
//! Such a client needs these functions of the session, and no others:
//!
//! | function | what for |
//! | --- | --- |
//! | `Core::connected` | the generation, as soon as it is connected |
//! | `Core::failed` | the pause before the next try, if that generation was lost meanwhile |
//! | `Core::chroot` | the path below which the application's paths are |
//! | `Core::number`, `Generation::number` | which session this is, and which generation of it |
//! | `Generation::listen` | answers, watch events, reconnections and the end |
//! | `Generation::submit_raw` | sends a request |

use std::sync::Arc;

use crate::world::Mutex;

/// What a generation tells its listener, in the order in which the server has sent it.
pub enum RawNews<'a> {
    /// The answer to the raw request with this number. `err` is the server's code, or
    /// `CONNECTION_LOSS` if no answer came within the operation timeout. The body of a successful
    /// answer is checked: what the decoder of its operation reads is in it.
    Answered { number: u64, err: i32, zxid: i64, body: &'a [u8] },
    /// A watch event: its type, and the full path. The watch may be one of the library's own.
    Watch { kind: i32, path: &'a str },
    /// Another connection carries the session. All watches were set on an earlier connection, and
    /// are gone with it.
    Reconnected,
    /// The session is over, and no answer comes any more. The open requests, and all later ones,
    /// have failed with this code.
    Ended(i32),
}

/// Gets the news of a generation. The event loop's thread calls it, or a calling thread that reads
/// the socket, one at a time, and under no lock but `delivering`. It must not block.
pub(crate) type RawListener = Arc<dyn Fn(RawNews<'_>) + Send + Sync>;

/// The listener of a generation.
#[derive(Default)]
pub(super) struct RawHook(Mutex<HookState>);

#[derive(Default)]
struct HookState {
    listener: Option<RawListener>,
    /// The code with which the session has ended.
    ended: Option<i32>,
}

impl RawHook {
    pub(super) fn tell(&self, news: RawNews<'_>) {
        let listener = {
            let mut state = self.0.lock();
            if let RawNews::Ended(code) = news {
                state.ended = Some(code);
            }
            state.listener.clone()
        };
        if let Some(listener) = listener {
            listener(news);
        }
    }

    pub(super) fn listen(&self, listener: RawListener) {
        let (replaced, ended) = {
            let mut state = self.0.lock();
            (state.listener.replace(listener.clone()), state.ended)
        };
        drop(replaced); // under no lock: its drop may run any code
        if let Some(code) = ended {
            listener(RawNews::Ended(code));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;
    use crate::world::{Receiver, unbounded};
    use std::time::Duration;
    use zk_test_server::TestServer;
    use zk_wire::code::{err, event, op};
    use zk_wire::record::Writer;

    /// A listener, and what it was told.
    fn listener() -> (RawListener, Receiver<String>) {
        let (said, told) = unbounded();
        let listener = move |news: RawNews<'_>| {
            let text = match news {
                RawNews::Answered { number, err, .. } => format!("{number} answered {err}"),
                RawNews::Watch { kind, path } => format!("event {kind} of {path}"),
                RawNews::Reconnected => "reconnected".into(),
                RawNews::Ended(code) => format!("ended {code}"),
            };
            said.send(text).unwrap();
        };
        (Arc::new(listener), told)
    }

    #[test]
    fn the_end_is_told_once_whether_the_listener_comes_before_it_or_after() {
        let hook = RawHook::default();
        let ((before, told_before), (after, told_after)) = (listener(), listener());
        hook.tell(RawNews::Reconnected); // nobody listens yet
        hook.listen(before);
        hook.tell(RawNews::Ended(err::AUTH_FAILED));
        hook.listen(after);
        for told in [told_before, told_after] {
            let ended = format!("ended {}", err::AUTH_FAILED);
            assert_eq!(told.try_iter().collect::<Vec<_>>(), [ended]);
        }
    }

    #[test]
    fn a_later_listener_takes_the_place_of_the_earlier_one() {
        let hook = RawHook::default();
        let ((first, told_first), (second, told_second)) = (listener(), listener());
        hook.listen(first);
        hook.listen(second);
        assert!(told_first.try_recv().is_err_and(|e| e.is_disconnected()), "it is dropped");
        hook.tell(RawNews::Reconnected);
        assert_eq!(told_second.try_recv().as_deref(), Ok("reconnected"));
    }

    /// All that a client of another kind needs of a session.
    #[test]
    fn a_client_gets_answers_watch_events_reconnections_and_the_end() {
        let server = TestServer::start().unwrap();
        let session = Session::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let (listener, told) = listener();
        let next = || told.recv_timeout(Duration::from_secs(10)).unwrap();
        generation.listen(listener);
        let exists = Writer::bare().buffer(b"/a").bool(true).body();
        generation.submit_raw(7, op::EXISTS, &exists);
        assert_eq!(next(), format!("7 answered {}", err::NO_NODE));
        let acl = |w: Writer| w.i32(1).i32(31).buffer(b"world").buffer(b"anyone");
        let create = acl(Writer::bare().buffer(b"/a").buffer(b"")).i32(0).body();
        generation.submit_raw(9, op::CREATE, &create);
        assert_eq!(next(), format!("event {} of /a", event::CREATED));
        assert_eq!(next(), format!("9 answered {}", err::OK));
        server.cut_connections();
        assert_eq!(next(), "reconnected");
        session.close().unwrap();
        assert_eq!(next(), format!("ended {}", err::SESSION_EXPIRED));
        generation.submit_raw(10, op::EXISTS, &exists);
        assert!(told.try_recv().is_err(), "the end has answered it");
    }
}
