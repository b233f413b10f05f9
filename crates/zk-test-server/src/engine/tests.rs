//! Tests that need requests to overlap exactly, or an exact clock. So they run without a network.

use super::*;
use zk_wire::record::{Reader, ReplyHeader, Writer};

const CONN: ConnId = 1;

/// An engine with one client.
struct Scene {
    engine: Engine,
    session: i64,
}

impl Scene {
    fn new() -> Scene {
        let settings = Settings {
            brand: Brand::default(),
            tick: Duration::from_millis(100),
            min_session: Duration::from_millis(200),
            max_session: Duration::from_secs(10),
            reap_interval: Duration::from_secs(60),
            super_digest: None,
            sasl: Sasl::default(),
        };
        let mut scene = Scene {
            engine: Engine::new(
                settings,
                Identity { server: 0, epoch: 1_700_000_000_000, secret: 7 },
            ),
            session: 0,
        };
        scene.session = scene.attach(CONN, 1000);
        scene
    }

    fn attach(&mut self, conn: ConnId, timeout_ms: i32) -> i64 {
        self.engine.accept(conn, ([127, 0, 0, 1], 9).into());
        let connect =
            Writer::bare().i32(0).i64(0).i32(timeout_ms).i64(0).i32(-1).bool(false).frame();
        self.engine.prepare(conn, &connect[4..], 0).unwrap();
        self.engine.apply();
        self.engine.take_outputs();
        self.engine.front.conns[&conn].session
    }

    fn send(&mut self, xid: i32, op: i32, body: impl FnOnce(Writer) -> Writer) {
        let frame = body(Writer::request(xid, op)).frame();
        self.engine.prepare(CONN, &frame[4..], 0).unwrap();
    }

    fn send_create(&mut self, xid: i32, path: &str, flags: i32) {
        self.send(xid, op::CREATE, |w| create(w, path, flags));
    }

    /// The error code and the body of each answer.
    fn answers(&mut self) -> Vec<(i32, Vec<u8>)> {
        self.engine.apply();
        let replies = self.engine.take_outputs().into_iter().filter_map(|output| match output {
            Output::Reply { bytes, .. } => Some(bytes),
            Output::Event { .. } | Output::Close { .. } => None,
        });
        replies
            .map(|bytes| {
                let (header, body) = ReplyHeader::read(&bytes[4..]).unwrap();
                (header.err, body.to_vec())
            })
            .collect()
    }

    fn paths(&mut self) -> Vec<String> {
        let path = |(code, body): (i32, Vec<u8>)| {
            assert_eq!(code, err::OK);
            Reader::new(&body).string().unwrap().to_owned()
        };
        self.answers().into_iter().map(path).collect()
    }
}

fn create(w: Writer, path: &str, flags: i32) -> Writer {
    w.buffer(path.as_bytes()).i32(-1).i32(1).i32(31).buffer(b"world").buffer(b"anyone").i32(flags)
}

#[test]
fn the_counter_sticks_at_its_end_one_by_one_and_wraps_when_creates_overlap() {
    let mut scene = Scene::new();
    scene.send_create(1, "/q", 0);
    scene.answers();
    assert!(scene.engine.set_sequence("/q", i32::MAX - 1));
    let mut serial = Vec::new();
    for (xid, name) in ["/q/a-", "/q/b-", "/q/c-"].into_iter().enumerate() {
        scene.send_create(xid as i32, name, 2);
        serial.extend(scene.paths());
    }
    assert_eq!(serial, ["/q/a-2147483646", "/q/b-2147483647", "/q/c-2147483647"]);

    scene.send_create(4, "/q/d-", 2);
    scene.send_create(5, "/q/e-", 2);
    scene.send_create(6, "/q/f-", 2);
    assert_eq!(scene.paths(), ["/q/d-2147483647", "/q/e--2147483648", "/q/f--2147483647"]);
    // The node with the wrapped number was not kept.
    scene.send_create(7, "/q/g-", 2);
    assert_eq!(scene.paths(), ["/q/g-2147483647"]);
}

#[test]
fn overlapping_requests_see_the_outstanding_changes() {
    let mut scene = Scene::new();
    scene.send_create(1, "/a", 0);
    scene.send_create(2, "/a/b", 0);
    scene.send(3, op::DELETE, |w| w.buffer(b"/a").i32(-1));
    scene.send(4, op::DELETE, |w| w.buffer(b"/a/b").i32(-1));
    scene.send(5, op::DELETE, |w| w.buffer(b"/a").i32(-1));
    scene.send_create(6, "/a/c", 0);
    let codes: Vec<i32> = scene.answers().into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [err::OK, err::OK, err::NOT_EMPTY, err::OK, err::OK, err::NO_NODE]);
}

#[test]
fn a_failed_multi_leaves_the_numbers_of_overlapping_creates_as_they_were() {
    let mut scene = Scene::new();
    scene.send_create(1, "/q", 0);
    scene.send_create(2, "/q/n-", 2);
    scene.send(3, op::MULTI, |w| {
        let w = create(w.i32(op::CREATE).bool(false).i32(-1), "/q/n-", 2);
        let w = w.i32(op::DELETE).bool(false).i32(-1).buffer(b"/missing").i32(-1);
        w.i32(-1).bool(true).i32(-1)
    });
    scene.send_create(4, "/q/n-", 2);
    let answers = scene.answers();
    let path = |at: usize| Reader::new(&answers[at].1).string().unwrap();
    assert_eq!(path(1), "/q/n-0000000000");
    assert_eq!(path(3), "/q/n-0000000001");
}

#[test]
fn a_silent_session_ends_with_its_tick_and_takes_its_ephemeral_nodes_along() {
    let mut scene = Scene::new();
    scene.send_create(1, "/e", 1);
    scene.answers();
    let due = scene.engine.next_tick().unwrap();
    assert_eq!(due, Duration::from_millis(1100));
    scene.engine.set_now(due - Duration::from_millis(1));
    scene.engine.tick();
    assert!(scene.engine.front.store.tree.get("/e").is_some());
    scene.engine.set_now(due);
    scene.engine.tick();
    assert!(scene.engine.front.store.tree.get("/e").is_none());
    assert!(!scene.engine.order.sessions.is_alive(scene.session));
    assert!(matches!(scene.engine.take_outputs()[..], [Output::Close { conn: CONN }]));
}

#[test]
fn containers_are_reaped_once_they_were_used_and_are_empty() {
    let mut scene = Scene::new();
    for (xid, path) in [(1, "/used"), (2, "/new")] {
        scene.send(xid, op::CREATE_CONTAINER, |w| create(w, path, 4));
    }
    scene.send_create(3, "/used/child", 0);
    scene.answers();
    let reap = |scene: &mut Scene, at| {
        scene.send(9, op::PING, |w| w);
        scene.answers();
        scene.engine.set_now(Duration::from_secs(at));
        scene.engine.order.sessions.touch(
            scene.session,
            Duration::from_secs(100),
            Duration::from_secs(at),
        );
        scene.engine.tick();
    };
    reap(&mut scene, 60);
    assert!(scene.engine.front.store.tree.get("/used").is_some());
    scene.send(4, op::DELETE, |w| w.buffer(b"/used/child").i32(-1));
    scene.answers();
    reap(&mut scene, 120);
    assert!(scene.engine.front.store.tree.get("/used").is_none());
    assert!(scene.engine.front.store.tree.get("/new").is_some());
}

#[test]
fn a_watch_of_a_connection_that_has_gone_before_its_request_was_done_is_not_kept() {
    let mut scene = Scene::new();
    scene.send(1, op::EXISTS, |w| w.buffer(b"/a").bool(true));
    scene.send_create(2, "/b", 0);
    scene.engine.hang_up(CONN);
    scene.engine.apply();
    assert_eq!(scene.engine.watch_count(), 0);
    assert!(scene.engine.front.store.tree.get("/b").is_some());
}

#[test]
fn a_closed_connection_is_not_opened_again_by_its_earlier_requests() {
    let mut scene = Scene::new();
    scene.send(1, op::CREATE_SESSION, |w| w.i32(1000));
    scene.send(2, 4242, |w| w); // no server knows this operation
    scene.engine.apply();
    assert_eq!(scene.engine.front.conns[&CONN].state, State::Ended);
}

#[test]
fn a_wiped_server_gives_no_session_id_twice() {
    let mut scene = Scene::new();
    scene.engine.wipe();
    assert_ne!(scene.attach(CONN + 1, 1000), scene.session);
}

#[test]
fn time_may_run_to_its_end() {
    let mut scene = Scene::new();
    scene.send(1, op::CREATE_CONTAINER, |w| create(w, "/c", 4));
    scene.answers();
    scene.engine.set_now(Duration::MAX);
    scene.engine.tick();
    scene.session = scene.attach(CONN + 1, 1000);
    assert!(scene.engine.next_tick().is_some());
}

#[test]
fn checks_that_find_nothing_are_skipped_and_keep_the_step() {
    let mut scene = Scene::new();
    // A container that was never used stays for ever. This node is deleted at the first check after
    // its hour.
    scene.send(1, op::CREATE_CONTAINER, |w| create(w, "/c", 4));
    scene.send(2, op::CREATE_TTL, |w| create(w, "/t", 5).i64(3_600_000));
    scene.answers();
    scene.engine.expire(scene.session);
    assert_eq!(scene.engine.next_due(), Some(Duration::from_secs(3660)));
    scene.engine.set_now(Duration::from_secs(90));
    scene.engine.tick();
    assert_eq!(scene.engine.next_tick(), Some(Duration::from_secs(120)));
    scene.engine.set_now(Duration::from_secs(3660));
    scene.engine.tick();
    assert!(scene.engine.front.store.tree.get("/t").is_none());
    assert_eq!(scene.engine.next_due(), None);
}

#[test]
fn identities_without_end_are_refused() {
    let mut scene = Scene::new();
    let mut codes = Vec::new();
    for n in 0..acl::MOST_IDENTITIES {
        scene.send(-4, op::AUTH, |w| {
            w.i32(0).buffer(b"digest").buffer(format!("u{n}:p").as_bytes())
        });
        codes.extend(scene.answers().into_iter().map(|(code, _)| code));
    }
    assert_eq!(codes.pop(), Some(err::AUTH_FAILED));
    assert!(codes.iter().all(|code| *code == err::OK));
}

#[test]
fn garbage_is_answered_or_refused_and_never_a_panic() {
    let mut scene = Scene::new();
    fastrand::seed(7);
    for round in 0..20_000 {
        let known = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 101, 103, 104,
            105, 106, 107,
        ];
        let op = known[fastrand::usize(..known.len())];
        let mut bytes: Vec<u8> = (0..fastrand::usize(..40)).map(|_| fastrand::u8(..)).collect();
        // Many small numbers make some of the frames well-formed.
        bytes.iter_mut().filter(|_| fastrand::u8(..) < 200).for_each(|byte| *byte %= 3);
        let mut frame = Writer::request(round, op).frame();
        frame.extend(&bytes);
        scene.engine.prepare(CONN, &frame[4..], 0).unwrap();
        assert!(!scene.answers().is_empty());
    }
}
