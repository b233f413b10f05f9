//! Readers and writers: which of them hold the lock together, in which order they get it, and which
//! nodes they have at the server.
use crate::support::{
    OpKind, Raw, Shared, at_best,
    contend::{proxied, session, spawn_waiting, until_queue},
    raw::EPHEMERAL_SEQUENTIAL,
    scenarios,
    scene::{SOON, full_path, queue, until_empty},
    until,
};
use std::{
    sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{Error, Layout, OptionalExt, Wait, ZkMutex, ZkRwLock};

const LOCK: &str = "/locks/config";
const UUID: &str = "6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42";

/// Readers add one, and a writer subtracts a thousand: a writer is never inside together with
/// others.
#[derive(Default)]
pub struct Room {
    pub inside: AtomicI32,
    most_readers: AtomicI32,
    pub reads: AtomicUsize,
    pub writes: AtomicUsize,
}

impl Room {
    pub fn read(&self) {
        let readers = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(readers > 0, "a reader is inside with a writer");
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
    }

    pub fn write(&self) {
        assert_eq!(
            self.inside.fetch_sub(1000, Ordering::SeqCst),
            0,
            "a writer is inside with others"
        );
        thread::yield_now();
        assert_eq!(
            self.inside.fetch_add(1000, Ordering::SeqCst),
            -1000,
            "another holder entered while a writer was inside"
        );
        self.writes.fetch_add(1, Ordering::SeqCst);
    }
}

fn readers_share_and_a_writer_is_alone() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let room = Room::default();
    thread::scope(|scope| {
        for thread in 0..8 {
            let lock = ZkRwLock::new(&sessions[thread % 2], LOCK).unwrap();
            let room = &room;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                for _ in 0..100 {
                    match random.u8(..10) {
                        0..3 => {
                            let _guard = lock.write().unwrap();
                            room.write();
                        }
                        3 => {
                            let writing = lock.write().unwrap();
                            room.write();
                            let reading = lock.read().unwrap();
                            drop(writing);
                            room.read();
                            drop(reading);
                        }
                        _ => {
                            let _guard = lock.read().unwrap();
                            room.read();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(room.inside.load(Ordering::SeqCst), 0);
    assert!(room.reads.load(Ordering::SeqCst) + room.writes.load(Ordering::SeqCst) >= 800);
    until_empty(&at, LOCK);
}

fn readers_are_inside_together() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let locks: Vec<_> =
        sessions.iter().map(|session| ZkRwLock::new(session, LOCK).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.read().unwrap()).collect();
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(until_queue(&at, LOCK, 3).len(), 3);
    let tokens: Vec<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert!(
        locks[0].try_write().optional().is_err_and(|e| matches!(e, Error::WouldDeadlock { .. }))
    );
    thread::scope(|scope| {
        let other = scope.spawn(|| locks[0].try_write().optional().unwrap().is_none());
        assert!(other.join().unwrap(), "others read");
    });
    drop(guards);
    until_empty(&at, LOCK);
    assert!(locks[0].try_write().optional().unwrap().is_some());
}

fn holders_are_the_readers_and_contenders_are_all() {
    let at = Shared::chroot();
    let reading = session(&at);
    // Each reader has a node of its own.
    let readers = ZkRwLock::builder(&reading, LOCK).hand_over(Duration::ZERO).build().unwrap();
    let writing: Vec<_> = (0..8).map(|_| session(&at)).collect();
    let (readers, at) = (&readers, at.as_str());
    thread::scope(|scope| {
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (inside, done) = (&inside, &done);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(move || {
                    let _guard = readers.read().unwrap();
                    inside.fetch_add(1, Ordering::SeqCst);
                    until("all have listed the queue", SOON * 3, || {
                        (done.load(Ordering::SeqCst) > 0).then_some(())
                    });
                });
            }
            until("all read", SOON, || (inside.load(Ordering::SeqCst) == 20).then_some(()));
            let cancel = zk_mutex::CancelToken::new();
            let waiting: Vec<_> = writing
                .iter()
                .map(|session| {
                    let cancel = cancel.clone();
                    scope.spawn(move || {
                        let lock = ZkRwLock::new(session, LOCK).unwrap();
                        assert!(matches!(
                            lock.write_with(Wait::forever().cancelled_by(&cancel)).optional(),
                            Err(Error::Cancelled { .. })
                        ));
                    })
                })
                .collect();
            until_queue(at, LOCK, 28);
            let all = readers.contenders().unwrap();
            assert_eq!(
                (all.len(), all.iter().filter(|contender| contender.reads).count()),
                (28, 20)
            );
            assert!(all.is_sorted_by_key(|contender| contender.path.rsplit('_').next()));
            assert_eq!(
                readers.holders().unwrap(),
                all[..20],
                "all readers that hold, and no waiter"
            );
            cancel.cancel();
            waiting.into_iter().for_each(|thread| thread.join().unwrap());
            done.store(1, Ordering::SeqCst);
        });
        let _ = scope;
    });
    until_empty(at, LOCK);
}

fn upgrading_is_refused_at_once() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = ZkRwLock::new(&session, LOCK).unwrap();
    let reading = lock.read().unwrap();
    let again = lock.read().unwrap();
    assert_eq!(reading.hold_count(), 2);
    for refused in [
        lock.write().map(drop),
        lock.try_write().optional().map(drop),
        lock.write_timeout(SOON).optional().map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, Error::WouldDeadlock { path, .. } if path == LOCK), "{error}");
        assert!(error.to_string().contains("drop its read guards"), "{error}");
    }
    drop((reading, again));
    until_empty(&at, LOCK);
    assert!(lock.write().unwrap().is_held());
}

fn a_downgrade_keeps_a_queued_writer_out() {
    downgrade_before_a_queued_writer(Layout::Curator);
}

/// kazoo's write lock has a mutex's name, but may leave a read behind.
fn a_downgrade_keeps_a_queued_writer_out_in_kazoos_layout() {
    downgrade_before_a_queued_writer(Layout::Kazoo);
}

fn downgrade_before_a_queued_writer(layout: Layout) {
    let read_mark = if layout == Layout::Kazoo { "__rlock__" } else { "__READ__" };
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session(&at), session(&through));
    let make = |session| ZkRwLock::builder(session, LOCK).layout(layout).build().unwrap();
    let (lock, other) = (make(&ours), make(&theirs));
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        let writing = lock.write().unwrap();
        let again = lock.write().unwrap();
        let token = writing.fencing_token();
        let writer = spawn_waiting(scope, || {
            let guard = other.write().unwrap();
            written.fetch_add(1, Ordering::SeqCst);
            guard.fencing_token()
        });
        let before = until_queue(&at, LOCK, 2);
        let reading = lock.read().unwrap();
        let names = queue(&at, LOCK);
        let read = names
            .iter()
            .find(|name| name.contains(read_mark))
            .expect("there is a read node beside the write");
        assert_eq!(
            read[read.len() - 10..],
            before[0][before[0].len() - 10..],
            "the read node has the write's number"
        );
        drop(writing);
        assert_eq!(queue(&at, LOCK).len(), 3, "the read is nested: the write is still held");
        // A waiter is woken by the end of the write. It has to see the read node then, and to wait
        // for it.
        let watched = proxy.on_reply(OpKind::GetData.on(read), SOON);
        drop(again);
        until("the write node is gone", SOON, || (queue(&at, LOCK).len() == 2).then_some(()));
        watched.wait();
        assert_eq!(written.load(Ordering::SeqCst), 0);
        assert!(reading.is_held() && !writer.is_finished());
        assert_eq!(reading.fencing_token(), token, "the token is below that of the waiting writer");
        reading.unlock().unwrap();
        assert!(writer.join().unwrap() > token);
    });
    until_empty(&at, LOCK);
}

fn no_other_thread_reads_under_our_write() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = ZkRwLock::builder(&session, LOCK).hand_over(SOON).build().unwrap();
    thread::scope(|scope| {
        let writing = lock.write().unwrap();
        let reading = lock.read().unwrap();
        let tried = scope.spawn(|| lock.try_read().optional().unwrap().is_none());
        assert!(tried.join().unwrap());
        let reader = spawn_waiting(scope, || drop(lock.read().unwrap()));
        drop(writing);
        reader.join().unwrap(); // now both threads read
        assert!(reading.is_held());
    });
    until_empty(&at, LOCK);
}

fn no_other_thread_writes_beside_who_ends_its_write_and_reads_on() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = ZkRwLock::builder(&session, LOCK).hand_over(SOON).build().unwrap();
    let is_reading = AtomicBool::new(true);
    let writes = || queue(&at, LOCK).into_iter().find(|name| name.contains("__WRIT__"));
    thread::scope(|scope| {
        let writing = lock.write().unwrap();
        let (reading, own) = (lock.read().unwrap(), writes());
        let writer = spawn_waiting(scope, || {
            let _writing = lock.write().unwrap();
            assert!(!is_reading.load(Ordering::SeqCst), "a writer is inside with a reader");
        });
        drop(writing);
        until("the writer waits behind the read", SOON, || {
            writes().filter(|name| Some(name) != own.as_ref())
        });
        is_reading.store(false, Ordering::SeqCst);
        drop(reading);
        writer.join().unwrap();
    });
    until_empty(&at, LOCK);
}

fn a_reader_reads_again_although_a_writer_waits() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = ZkRwLock::builder(&session, LOCK).hand_over(Duration::ZERO).build().unwrap();
    thread::scope(|scope| {
        let reading = lock.read().unwrap();
        let writer = spawn_waiting(scope, || lock.write().unwrap().fencing_token());
        until_queue(&at, LOCK, 2);
        // A new reader queues behind the writer ..
        let reader = spawn_waiting(scope, || lock.read().unwrap().fencing_token());
        // .. but a thread that already reads does not.
        let begun = Instant::now();
        let again = lock.read().unwrap();
        assert!(again.is_held() && at_best(begun) < SOON);
        assert!(!writer.is_finished() && !reader.is_finished());
        drop((reading, again));
        let (write, read) = (writer.join().unwrap(), reader.join().unwrap());
        assert!(write < read, "{write:?} before {read:?}");
    });
    until_empty(&at, LOCK);
}

fn readers_of_one_process_share_a_node_for_as_long_as_they_may() {
    let at = Shared::chroot();
    let session = session(&at);
    for (bound, nodes) in [(SOON, 1), (Duration::ZERO, 5)] {
        let lock = ZkRwLock::builder(&session, LOCK).hand_over(bound).build().unwrap();
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    let guard = lock.read().unwrap();
                    inside.fetch_add(1, Ordering::SeqCst);
                    until("all have read", SOON, || {
                        (done.load(Ordering::SeqCst) > 0).then_some(())
                    });
                    assert!(guard.is_held());
                });
            }
            until("all read", SOON, || (inside.load(Ordering::SeqCst) == 5).then_some(()));
            assert_eq!(queue(&at, LOCK).len(), nodes, "{bound:?}");
            done.store(1, Ordering::SeqCst);
        });
        until_empty(&at, LOCK);
    }
}

fn a_timeout_leaves_no_node_behind() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let lock = ZkRwLock::new(&ours, LOCK).unwrap();
    let other = ZkRwLock::new(&theirs, LOCK).unwrap();
    let short = Duration::from_millis(300);
    let writing = lock.write().unwrap();
    assert!(other.read_timeout(short).optional().unwrap().is_none());
    assert!(other.write_timeout(short).optional().unwrap().is_none());
    assert!(
        other.try_read().optional().unwrap().is_none()
            && other.try_write().optional().unwrap().is_none()
    );
    until_queue(&at, LOCK, 1);
    drop(writing);
    let reading = lock.read().unwrap();
    assert!(other.write_timeout(short).optional().unwrap().is_none());
    until_queue(&at, LOCK, 1);
    assert!(other.read_timeout(SOON).optional().unwrap().is_some());
    drop(reading);
    until_empty(&at, LOCK);
}

fn readers_wait_for_foreign_writers_only() {
    for (ahead, waits) in [("__lock__", true), ("__WRIT__", true), ("__READ__", false)] {
        let at = Shared::chroot();
        let session = session(&at);
        let lock = ZkRwLock::new(&session, LOCK).unwrap();
        drop(lock.read().unwrap()); // makes the parents
        until_empty(&at, LOCK);
        let mut raw = Raw::connect(&at).unwrap();
        let prefix = full_path(&at, &format!("{LOCK}/_c_{UUID}-{ahead}"));
        let node = raw.create(&prefix, b"", EPHEMERAL_SEQUENTIAL).unwrap();
        assert_eq!(lock.try_read().optional().unwrap().is_none(), waits, "{ahead}");
        assert!(lock.try_write().optional().unwrap().is_none(), "{ahead}");
        raw.delete(&node).unwrap();
        assert!(
            lock.read_timeout(SOON).optional().unwrap().is_some()
                && lock.write_timeout(SOON).optional().unwrap().is_some()
        );
        session.close().unwrap();
    }
}

fn two_kinds_of_lock_on_one_path_are_refused_within_a_process() {
    let at = Shared::chroot();
    let (ours, other) = (session(&at), session(&at));
    let lock = ZkRwLock::new(&ours, LOCK).unwrap();
    // The other lock uses another session, and another name for the same node.
    let (server, chroot) = at.split_once('/').unwrap();
    let rootless = session(server);
    for (session, path) in [
        (&ours, LOCK.to_owned()),
        (&other, LOCK.to_owned()),
        (&rootless, format!("/{chroot}{LOCK}")),
    ] {
        let refused = ZkMutex::new(session, &path).unwrap_err();
        assert!(
            matches!(&refused, Error::InvalidConfig { reason, .. } if reason.contains("read/write lock")),
            "{refused}"
        );
    }
    let refused = ZkRwLock::builder(&ours, LOCK).layout(Layout::Kazoo).build().unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { .. }));
    let same = ZkRwLock::new(&other, LOCK).unwrap();
    assert!(ZkMutex::new(&ours, "/locks/another").is_ok());
    drop(lock);
    assert!(ZkMutex::new(&ours, LOCK).is_err(), "the other session still has the lock");
    let guard = same.read().unwrap();
    drop(guard);
    drop(same);
    assert!(ZkMutex::new(&ours, LOCK).is_ok(), "the path is free again");
}

fn nodes_carry_the_data_that_the_lock_was_made_with() {
    let at = Shared::chroot();
    let session = session(&at);
    let mut data = b"shard 7".to_vec();
    let lock = ZkRwLock::builder(&session, LOCK).data(data.as_slice()).build().unwrap();
    data.fill(b'x');
    let writing = lock.write().unwrap();
    let beside = lock.read().unwrap();
    for contender in lock.contenders().unwrap() {
        assert_eq!(contender.data, b"shard 7", "{contender:?}");
    }
    drop((writing, beside));
    let _reading = lock.read_timeout(SOON).optional().unwrap();
    let readers = lock.contenders().unwrap();
    assert!(
        readers.iter().all(|reader| reader.data == b"shard 7") && !readers.is_empty(),
        "{readers:?}"
    );
}

fn the_kazoo_layout_has_kazoos_names() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = ZkRwLock::builder(&session, LOCK).layout(Layout::Kazoo).build().unwrap();
    let writing = lock.write().unwrap();
    assert!(writing.path().contains("__lock__"), "{}", writing.path());
    let reading = lock.read().unwrap();
    assert!(reading.path().contains("__rlock__"), "{}", reading.path());
    drop(writing);
    assert!(reading.is_held() && queue(&at, LOCK).len() <= 2);
    drop(reading);
    until_empty(&at, LOCK);
}

scenarios![
    readers_share_and_a_writer_is_alone,
    readers_are_inside_together,
    holders_are_the_readers_and_contenders_are_all,
    upgrading_is_refused_at_once,
    a_downgrade_keeps_a_queued_writer_out,
    a_downgrade_keeps_a_queued_writer_out_in_kazoos_layout,
    no_other_thread_reads_under_our_write,
    no_other_thread_writes_beside_who_ends_its_write_and_reads_on,
    a_reader_reads_again_although_a_writer_waits,
    readers_of_one_process_share_a_node_for_as_long_as_they_may,
    a_timeout_leaves_no_node_behind,
    readers_wait_for_foreign_writers_only,
    two_kinds_of_lock_on_one_path_are_refused_within_a_process,
    nodes_carry_the_data_that_the_lock_was_made_with,
    the_kazoo_layout_has_kazoos_names,
];
