//! Another client of the same protocol: the `zookeeper-client` crate, with its operations, watches
//! and lock. (kazoo and Curator have their checks in `tests/clients`.) Its lock is not tested over
//! cut connections: if a cut hits one of its writes, it gives up with an io error and may leave its
//! node behind, on either server.
use crate::support::{
    Proxy, Shared, scenarios,
    scene::{self, SOON, full_path, queue},
    until,
};
use std::{cell::Cell, collections::BTreeSet, future::Future, rc::Rc, time::Duration};
use tokio::{
    runtime,
    task::{JoinHandle, LocalSet, spawn_local},
    time::{sleep, timeout},
};
use zookeeper_client::{
    Acls, AddWatchMode, AuthUser, Client, CreateMode, CreateOptions, Error, EventType, LockClient,
    LockOptions, LockPrefix, MultiReadResult, MultiWriteError, MultiWriteResult, SessionState,
    WatchedEvent,
};

/// A session timeout that does not matter.
const LONG: Duration = Duration::from_secs(15);
const LOCK: &str = "/locks/orders";

/// Runs a scenario on this thread.
fn run(scenario: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, scenario);
}

/// Waits for a result that has to come at once.
#[track_caller]
fn soon<T>(what: &'static str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        match timeout(SOON, future).await {
            Ok(value) => value,
            Err(_) => panic!("{caller}: not within {SOON:?}: {what}"),
        }
    }
}

async fn connect(address: &str) -> Client {
    let connecting = Client::connector().with_session_timeout(LONG).connect(address);
    soon("a session", connecting).await.expect("a session")
}

fn mode(mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(Acls::anyone_all())
}

/// Closes the session, and returns when the server has closed it.
async fn close(client: Client) {
    let mut states = client.state_watcher();
    drop(client);
    soon("the session's end", async { while states.changed().await != SessionState::Closed {} })
        .await;
}

fn event(kind: EventType, path: &str) -> WatchedEvent {
    WatchedEvent::new(kind, path)
}

// ---- operations ----

fn does_all_operations() {
    let address = Shared::chroot();
    run(async {
        let zk = connect(&address).await;
        assert!(zk.session_id().0 != 0);
        assert_eq!(zk.session_timeout(), LONG);
        let (stat, _) = zk.create("/a", b"data", &mode(CreateMode::Persistent)).await.unwrap();
        assert_eq!((stat.version, stat.data_length, stat.ephemeral_owner), (0, 4, 0));
        assert_eq!(zk.get_data("/a").await.unwrap(), (b"data".to_vec(), stat));
        assert_eq!(zk.check_stat("/a").await.unwrap(), Some(stat));
        assert_eq!(zk.check_stat("/none").await.unwrap(), None);
        let (mine, _) = zk.create("/mine", b"", &mode(CreateMode::Ephemeral)).await.unwrap();
        assert_eq!(mine.ephemeral_owner, zk.session_id().0);
        let (_, number) =
            zk.create("/a/s-", b"", &mode(CreateMode::PersistentSequential)).await.unwrap();
        assert_eq!((number.into_i64(), number.to_string().as_str()), (0, "0000000000"));
        let (_, number) =
            zk.create("/a/e-", b"", &mode(CreateMode::EphemeralSequential)).await.unwrap();
        assert_eq!(number.into_i64(), 1);
        zk.create("/container", b"", &mode(CreateMode::Container)).await.unwrap();
        let hour = mode(CreateMode::Persistent).with_ttl(Duration::from_secs(3600));
        zk.create("/ttl", b"", &hour).await.unwrap();
        zk.mkdir("/x/y/z", &mode(CreateMode::Persistent)).await.unwrap();

        let set = zk.set_data("/a", b"12345", Some(0)).await.unwrap();
        assert_eq!((set.version, set.data_length, set.czxid), (1, 5, stat.czxid));
        assert!(set.mzxid > stat.mzxid);
        let mut children = zk.list_children("/a").await.unwrap();
        children.sort();
        assert_eq!(children, ["e-0000000001", "s-0000000000"]);
        let (_, parent) = zk.get_children("/a").await.unwrap();
        assert_eq!((parent.num_children, parent.cversion), (2, 2));
        assert_eq!(zk.count_descendants_number("/x").await.unwrap(), 2);
        let ephemerals: BTreeSet<String> =
            zk.list_ephemerals("/").await.unwrap().into_iter().collect();
        assert_eq!(ephemerals, ["/a/e-0000000001", "/mine"].map(str::to_owned).into());
        zk.sync("/a").await.unwrap();

        assert_eq!(
            zk.create("/a", b"", &mode(CreateMode::Persistent)).await.unwrap_err(),
            Error::NodeExists
        );
        assert_eq!(
            zk.create("/n/x", b"", &mode(CreateMode::Persistent)).await.unwrap_err(),
            Error::NoNode
        );
        let below_ephemeral = zk.create("/mine/x", b"", &mode(CreateMode::Persistent)).await;
        assert_eq!(below_ephemeral.unwrap_err(), Error::NoChildrenForEphemerals);
        assert_eq!(zk.set_data("/a", b"", Some(0)).await.unwrap_err(), Error::BadVersion);
        assert_eq!(zk.delete("/a", None).await.unwrap_err(), Error::NotEmpty);
        assert_eq!(zk.delete("/none", None).await.unwrap_err(), Error::NoNode);
        zk.delete("/mine", Some(0)).await.unwrap();
        close(zk).await;
    });
}

fn does_several_operations_at_once() {
    let address = Shared::chroot();
    run(async {
        let zk = connect(&address).await;
        zk.create("/a", b"1", &mode(CreateMode::Persistent)).await.unwrap();
        let mut writer = zk.new_multi_writer();
        writer.add_check_version("/a", 0).unwrap();
        writer.add_create("/b", b"2", &mode(CreateMode::Persistent)).unwrap();
        writer.add_create("/b/s-", b"", &mode(CreateMode::EphemeralSequential)).unwrap();
        writer.add_set_data("/a", b"3", Some(0)).unwrap();
        let done = writer.commit().await.unwrap();
        assert_eq!(done[0], MultiWriteResult::Check);
        assert!(
            matches!(&done[2], MultiWriteResult::Create { path, .. } if path == "/b/s-0000000000")
        );
        let stat = zk.check_stat("/a").await.unwrap().unwrap();
        assert!(matches!(&done[3], MultiWriteResult::SetData { stat: set } if *set == stat));

        let mut writer = zk.new_multi_writer();
        writer.add_set_data("/a", b"never", None).unwrap();
        writer.add_delete("/b", None).unwrap();
        writer.add_delete("/none", None).unwrap();
        let failed = writer.commit().await.unwrap_err();
        assert_eq!(failed, MultiWriteError::OperationFailed { index: 1, source: Error::NotEmpty });

        let mut reader = zk.new_multi_reader();
        reader.add_get_data("/a").unwrap();
        reader.add_get_children("/none").unwrap();
        reader.add_get_children("/b").unwrap();
        let read = reader.commit().await.unwrap();
        assert!(
            matches!(&read[0], MultiReadResult::Data { data, stat: s } if data == b"3" && *s == stat)
        );
        assert!(matches!(&read[1], MultiReadResult::Error { err: Error::NoNode }));
        assert!(
            matches!(&read[2], MultiReadResult::Children { children } if *children == ["s-0000000000"])
        );
        close(zk).await;
    });
}

fn keeps_strangers_out() {
    let address = Shared::chroot();
    run(async {
        let (owner, stranger) = (connect(&address).await, connect(&address).await);
        owner.auth("digest", b"anna:secret").await.unwrap();
        let users: Vec<AuthUser> = owner.list_auth_users().await.unwrap();
        assert!(
            users.iter().any(|who| who.scheme() == "digest" && who.user() == "anna"),
            "{users:?}"
        );
        let private = CreateMode::Persistent.with_acls(Acls::creator_all());
        owner.create("/private", b"", &private).await.unwrap();
        assert_eq!(stranger.get_data("/private").await.unwrap_err(), Error::NoAuth);
        assert_eq!(stranger.set_data("/private", b"", None).await.unwrap_err(), Error::NoAuth);
        let (acls, _) = owner.get_acl("/private").await.unwrap();
        assert_eq!((acls.len(), acls[0].scheme()), (1, "digest"));
        assert_eq!(stranger.create("/x", b"", &private).await.unwrap_err(), Error::InvalidAcl);
        let set = owner.set_acl("/private", &Acls::anyone_read(), Some(0)).await.unwrap();
        assert_eq!(set.aversion, 1);
        stranger.get_data("/private").await.unwrap();
        assert_eq!(stranger.set_data("/private", b"", None).await.unwrap_err(), Error::NoAuth);
        close(owner).await;
        close(stranger).await;
    });
}

fn works_below_a_chroot() {
    let address = Shared::chroot();
    run(async {
        let zk = connect(&address).await;
        zk.mkdir("/root", &mode(CreateMode::Persistent)).await.unwrap();
        let inside = zk.clone().chroot(full_path(&address, "/root")).unwrap();
        let (_, _, watcher) = inside.get_and_watch_children("/").await.unwrap();
        inside.create("/a", b"x", &mode(CreateMode::Persistent)).await.unwrap();
        assert_eq!(
            soon("an event", watcher.changed()).await,
            event(EventType::NodeChildrenChanged, "/")
        );
        assert_eq!(zk.get_data("/root/a").await.unwrap().0, b"x");
        let twice = connect(&format!("{address}/root")).await;
        assert_eq!(twice.get_data("/a").await.unwrap().0, b"x");
        drop(inside);
        close(zk).await;
        close(twice).await;
    });
}

// ---- watches ----

fn gets_an_event_of_each_change() {
    let address = Shared::chroot();
    run(async {
        let (zk, other) = (connect(&address).await, connect(&address).await);
        let options = mode(CreateMode::Persistent);
        // Each watch has a client of its own: for several modes on one path, a server keeps the
        // last one for all (ZOOKEEPER-4466).
        let (here, below) = (connect(&address).await, connect(&address).await);
        let mut one = here.watch("/a", AddWatchMode::Persistent).await.unwrap();
        let mut all = below.watch("/a", AddWatchMode::PersistentRecursive).await.unwrap();
        let (_, created) = zk.check_and_watch_stat("/a").await.unwrap();
        other.create("/a", b"1", &options).await.unwrap();
        assert_eq!(soon("an event", created.changed()).await, event(EventType::NodeCreated, "/a"));
        let (_, _, changed) = zk.get_and_watch_data("/a").await.unwrap();
        let (_, _, children) = zk.get_and_watch_children("/a").await.unwrap();
        other.set_data("/a", b"2", None).await.unwrap();
        assert_eq!(
            soon("an event", changed.changed()).await,
            event(EventType::NodeDataChanged, "/a")
        );
        other.create("/a/b", b"", &options).await.unwrap();
        assert_eq!(
            soon("an event", children.changed()).await,
            event(EventType::NodeChildrenChanged, "/a")
        );
        other.delete("/a/b", None).await.unwrap();
        let (_, deleted) = zk.check_and_watch_stat("/a").await.unwrap();
        other.delete("/a", None).await.unwrap();
        assert_eq!(soon("an event", deleted.changed()).await, event(EventType::NodeDeleted, "/a"));

        use EventType::{NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted};
        for kind in
            [NodeCreated, NodeDataChanged, NodeChildrenChanged, NodeChildrenChanged, NodeDeleted]
        {
            assert_eq!(soon("an event", one.changed()).await, event(kind, "/a"), "persistent");
        }
        for (kind, path) in [
            (NodeCreated, "/a"),
            (NodeDataChanged, "/a"),
            (NodeCreated, "/a/b"),
            (NodeDeleted, "/a/b"),
            (NodeDeleted, "/a"),
        ] {
            assert_eq!(soon("an event", all.changed()).await, event(kind, path), "recursive");
        }
        for client in [zk, other, here, below] {
            close(client).await;
        }
        let end = WatchedEvent::new_session(SessionState::Closed);
        assert_eq!(soon("its client's end", all.changed()).await, end);
    });
}

fn proxied(address: &str) -> (Proxy, String) {
    let (server, chroot) = address.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap());
    let through = format!("{}/{chroot}", proxy.connect_string());
    (proxy, through)
}

fn gets_the_events_that_it_missed_without_a_connection() {
    let address = Shared::chroot();
    let (proxy, through) = proxied(&address);
    run(async {
        let (zk, other) = (connect(&through).await, connect(&address).await);
        let options = mode(CreateMode::Persistent);
        for path in ["/changed", "/deleted", "/parent", "/quiet"] {
            other.create(path, b"", &options).await.unwrap();
        }
        zk.create("/mine", b"", &mode(CreateMode::Ephemeral)).await.unwrap();
        let (_, _, changed) = zk.get_and_watch_data("/changed").await.unwrap();
        let (_, deleted) = zk.check_and_watch_stat("/deleted").await.unwrap();
        let (_, created) = zk.check_and_watch_stat("/created").await.unwrap();
        let (_, _, parent) = zk.get_and_watch_children("/parent").await.unwrap();
        let (_, _, quiet) = zk.get_and_watch_data("/quiet").await.unwrap();
        let mut states = zk.state_watcher();
        proxy.refuse(true);
        proxy.cut();
        assert_eq!(soon("the loss", states.changed()).await, SessionState::Disconnected);
        other.set_data("/changed", b"1", None).await.unwrap();
        other.delete("/deleted", None).await.unwrap();
        other.create("/created", b"", &options).await.unwrap();
        other.create("/parent/child", b"", &options).await.unwrap();
        proxy.refuse(false);
        assert_eq!(soon("the reconnect", states.changed()).await, SessionState::SyncConnected);
        assert_eq!(
            soon("an event", changed.changed()).await.event_type,
            EventType::NodeDataChanged
        );
        assert_eq!(soon("an event", deleted.changed()).await.event_type, EventType::NodeDeleted);
        assert_eq!(soon("an event", created.changed()).await.event_type, EventType::NodeCreated);
        assert_eq!(
            soon("an event", parent.changed()).await.event_type,
            EventType::NodeChildrenChanged
        );
        let stat = other.check_stat("/mine").await.unwrap().expect("the ephemeral is kept");
        assert_eq!(stat.ephemeral_owner, zk.session_id().0);
        other.set_data("/quiet", b"1", None).await.unwrap();
        assert_eq!(
            soon("an event", quiet.changed()).await,
            event(EventType::NodeDataChanged, "/quiet")
        );
        close(zk).await;
        close(other).await;
    });
}

// ---- sessions ----

fn a_session_ends_with_its_client_or_by_expiry() {
    let address = Shared::chroot();
    let (proxy, through) = proxied(&address);
    run(async {
        let (closes, expires, other) =
            (connect(&address).await, connect(&through).await, connect(&address).await);
        closes.create("/closes", b"", &mode(CreateMode::Ephemeral)).await.unwrap();
        expires.create("/expires", b"", &mode(CreateMode::Ephemeral)).await.unwrap();
        let (_, gone) = other.check_and_watch_stat("/closes").await.unwrap();
        close(closes).await;
        assert_eq!(soon("its end", gone.changed()).await, event(EventType::NodeDeleted, "/closes"));

        let (_, gone) = other.check_and_watch_stat("/expires").await.unwrap();
        let mut states = expires.state_watcher();
        let server = address.split_once('/').unwrap().0;
        scene::expire(&proxy, server);
        soon("the expiry", async { while states.changed().await != SessionState::Expired {} })
            .await;
        assert_eq!(
            soon("its end", gone.changed()).await,
            event(EventType::NodeDeleted, "/expires")
        );
        assert_eq!(expires.get_data("/").await.unwrap_err(), Error::SessionExpired);
        close(other).await;
    });
}

fn a_session_is_taken_over_by_another_connection() {
    let address = Shared::chroot();
    run(async {
        let connector = Client::connector().with_session_timeout(LONG).with_detached();
        let first = connector.connect(&address).await.unwrap();
        first.create("/mine", b"", &mode(CreateMode::Ephemeral)).await.unwrap();
        let mut states = first.state_watcher();
        let session = first.into_session();
        soon("the end", async { while states.changed().await != SessionState::Closed {} }).await;
        let second = Client::connector()
            .with_session(session.clone())
            .connect(&address)
            .await
            .expect("the session");
        assert_eq!(second.session_id(), session.id());
        assert_eq!(second.list_ephemerals("/").await.unwrap(), ["/mine"]);
        close(second).await;
        let late = Client::connector().with_session(session).connect(&address).await;
        assert_eq!(late.expect_err("a closed session"), Error::SessionExpired);
    });
}

// ---- the lock ----

async fn lock<'a>(zk: &'a Client, data: &[u8]) -> LockClient<'a> {
    let options = LockOptions::new(Acls::anyone_all());
    let options = options.with_ancestor_options(mode(CreateMode::Persistent)).unwrap();
    let prefix = LockPrefix::new_curator(LOCK, "lock-").unwrap();
    soon("the lock", zk.lock(prefix, data, options)).await.expect("the lock")
}

/// Waits until the queue has so many nodes.
async fn until_queue(address: &str, count: usize) {
    soon("the queue", async {
        while queue(address, LOCK).len() != count {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// The section that a lock protects; panics if two tasks are in it at once.
#[derive(Default)]
struct Section {
    inside: Cell<bool>,
    counter: Cell<usize>,
}

impl Section {
    async fn pass(&self) {
        assert!(!self.inside.replace(true), "another task is in the section");
        let counter = self.counter.get();
        sleep(Duration::from_millis(1)).await; // time for other tasks to enter
        self.counter.set(counter + 1);
        self.inside.set(false);
    }
}

async fn joined<T>(tasks: Vec<JoinHandle<T>>) {
    for task in tasks {
        soon("a task's end", task).await.expect("the task has ended");
    }
}

fn the_lock_counts_exactly() {
    let address = Shared::chroot();
    run(async {
        let section = Rc::new(Section::default());
        let clients = [connect(&address).await, connect(&address).await];
        let pass_often = |i: usize| {
            let (zk, section) = (clients[i % 2].clone(), Rc::clone(&section));
            spawn_local(async move {
                for _ in 0..20 {
                    let _guard = lock(&zk, b"").await;
                    section.pass().await;
                }
            })
        };
        joined((0..6).map(pass_often).collect()).await;
        assert_eq!(section.counter.get(), 120);
        until_queue(&address, 0).await; // the node is deleted in the background
        for client in clients {
            close(client).await;
        }
    });
}

fn the_lock_goes_to_the_next_in_line() {
    let address = Shared::chroot();
    run(async {
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let holder = connect(&address).await;
        let held = lock(&holder, b"holder").await;
        let name = held.lock_path().strip_prefix(LOCK).unwrap();
        assert!(name.starts_with("/_c_") && name.ends_with("-lock-0000000000"), "{name}");
        let mut line = Vec::new();
        for i in 0..4 {
            let (zk, order) = (connect(&address).await, Rc::clone(&order));
            line.push(spawn_local(async move {
                {
                    let _guard = lock(&zk, b"").await;
                    order.borrow_mut().push(i);
                }
                close(zk).await;
            }));
            until_queue(&address, i + 2).await;
        }
        assert!(order.borrow().is_empty(), "a waiter got the lock while it was held");
        // A write that works only while the lock is held.
        held.create("/guarded", b"", &mode(CreateMode::Persistent)).await.unwrap();
        let own = held.lock_path().to_owned();
        holder.delete(&own, None).await.unwrap(); // the lock is lost with its node
        let late = held.set_data("/guarded", b"late", None).await;
        assert_eq!(late.unwrap_err(), Error::RuntimeInconsistent);
        joined(line).await;
        assert_eq!(*order.borrow(), [0, 1, 2, 3]);
        drop(held);
        close(holder).await;
    });
}

fn the_lock_passes_on_when_its_holder_is_gone() {
    let address = Shared::chroot();
    let (proxy, through) = proxied(&address);
    run(async {
        let (closes, expires, last) =
            (connect(&address).await, connect(&through).await, connect(&address).await);
        let held = lock(&closes, b"").await;
        let second = {
            let zk = expires.clone();
            spawn_local(async move { lock(&zk, b"").await.into_owned() })
        };
        until_queue(&address, 2).await;
        let third = {
            let zk = last.clone();
            spawn_local(async move { lock(&zk, b"").await.into_owned() })
        };
        until_queue(&address, 3).await;
        std::mem::forget(held); // only the end of the session deletes its node
        close(closes).await;
        let second = soon("the second's turn", second).await.unwrap();
        assert!(!third.is_finished(), "the third got the lock while it was held");
        scene::expire(&proxy, address.split_once('/').unwrap().0);
        let third = soon("the third's turn", third).await.unwrap();
        assert_eq!(queue(&address, LOCK).len(), 1);
        drop((second, third, expires));
        until_queue(&address, 0).await;
        close(last).await;
    });
    until("the proxy has no connection", SOON, || (proxy.connections() == 0).then_some(()));
}

scenarios![
    does_all_operations,
    does_several_operations_at_once,
    keeps_strangers_out,
    works_below_a_chroot,
    gets_an_event_of_each_change,
    gets_the_events_that_it_missed_without_a_connection,
    a_session_ends_with_its_client_or_by_expiry,
    a_session_is_taken_over_by_another_connection,
    the_lock_counts_exactly,
    the_lock_goes_to_the_next_in_line,
    the_lock_passes_on_when_its_holder_is_gone,
];
