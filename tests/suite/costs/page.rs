//! Each row of the tables of the page on costs names the requests that are really sent.
//!
//! A row's operation runs through a proxy that holds back all replies. The requests that are sent
//! meanwhile are one flight: none of them waited for a reply to another. When all replies of the
//! flight are at the proxy, they pass together, and the next flight is counted.
use crate::support::{
    OpKind, Proxy, Request, Server,
    contend::{spawn_waiting, until_queue},
    control,
    own::threads,
    scenarios,
    scene::{SOON, session_of, until_empty},
    until,
};
use crossbeam_channel::{Sender, bounded};
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};
use zk_mutex::zk_session::CreateMode;
use zk_mutex::{
    Acl, Config, Held, OptionalExt, WaitStrategy, ZkElection, ZkExclusiveLock, ZkMultiLock,
    ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};
use zk_test_server::Op;

const PAGE: &str = include_str!("../../../src/guide/costs.md");
const LOCK: &str = "/locks/orders";
/// Such a long timeout that the session sends nothing by itself during a scenario: no heartbeat,
/// and no renewal of its lease.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// The time of an operation that does not get the lock.
const TIME: Duration = Duration::from_secs(3);
/// Long enough to see that nothing more is sent.
const A_WHILE: Duration = Duration::from_millis(30);
/// The same if a reply that is still under way would cause more requests, or if the row is already
/// known to be wrong and its requests are only shown.
const A_LONG_WHILE: Duration = Duration::from_millis(300);

// ---- the page ----

/// The requests of an operation: the flights whose replies it waits for, and the requests that are
/// answered after its return.
#[derive(Clone, Debug, Default)]
struct Sent {
    flights: Vec<Vec<String>>,
    beside: Vec<String>,
}

impl Sent {
    /// Reads the page's form: `create → getChildren`, one flight after the other; requests that are
    /// not waited for are in brackets.
    fn parse(text: &str) -> Sent {
        let names =
            |part: &str| part.split(", ").map(|name| name.trim().to_owned()).collect::<Vec<_>>();
        let (waited, beside) = match text.split_once('(') {
            Some((waited, beside)) => {
                (waited.trim_end_matches([' ', ',']), names(beside.trim_end_matches(')')))
            }
            None => (text, Vec::new()),
        };
        let flights = waited.split('→').map(str::trim).filter(|flight| !["", "–"].contains(flight));
        Sent { flights: flights.map(names).collect(), beside }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.flights.iter().flatten().chain(&self.beside)
    }

    /// The number of writes; each is a transaction of its own at the server.
    fn writes(&self) -> usize {
        let is_write = |name: &&String| {
            ["create", "delete", "set", "multi"].iter().any(|w| name.starts_with(w))
        };
        self.all().filter(is_write).count()
    }

    /// The cells of a row: the numbers of flights, requests and writes, and the requests.
    fn cells(&self) -> String {
        format!("{} | {} | {} | {self}", self.flights.len(), self.all().count(), self.writes())
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let flights: Vec<_> = self.flights.iter().map(|flight| flight.join(", ")).collect();
        parts.extend(Some(flights.join(" → ")).filter(|flights| !flights.is_empty()));
        parts.extend(
            Some(self.beside.join(", "))
                .filter(|names| !names.is_empty())
                .map(|names| format!("({names})")),
        );
        f.write_str(if parts.is_empty() { "–" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// The rows of the table below a heading, each as its cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let rest = PAGE
        .split_once(&format!("# {heading}\n"))
        .unwrap_or_else(|| panic!("the page has no {heading}"))
        .1;
    let lines =
        rest.lines().take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    lines.skip(2).map(cells).collect()
}

// ---- the counting ----

/// A server, a session whose requests are counted, another session whose requests are not, and the
/// table to check.
struct Scene {
    // Fields are dropped in this order: sessions before their servers.
    near: ZkSession,
    far: ZkSession,
    proxy: Proxy,
    server: Server,
    rows: Vec<Vec<String>>,
    /// The number of rows that were counted.
    done: usize,
    before: Before,
    wrong: Vec<String>,
}

impl Scene {
    fn of(heading: &str) -> Scene {
        let server = Server::builder().max_session(TIMEOUT).start();
        let proxy = Proxy::start(server.address());
        let near = session_of(&proxy.connect_string(), TIMEOUT);
        let far = session_of(&server.connect_string(), TIMEOUT);
        let (rows, done, before, wrong) = (table(heading), 0, Before::default(), Vec::new());
        Scene { near, far, proxy, server, rows, done, before, wrong }
    }

    /// Counts an operation that returns.
    #[track_caller]
    fn row<T>(&mut self, name: &str, operation: impl FnOnce() -> T) -> T {
        let said = self.begin(name);
        let returned = AtomicBool::new(false);
        let (value, sent) = thread::scope(|scope| {
            let counting = self.counting(End::Return);
            let returned = &returned;
            let thread =
                scope.spawn(move || counting.count(&said, || returned.load(Ordering::SeqCst)));
            let value = operation();
            returned.store(true, Ordering::SeqCst);
            (value, thread.join().expect("the count"))
        });
        self.end(name, &sent);
        value
    }

    /// Counts an operation until it waits for another contender.
    #[track_caller]
    fn waiting_row<'s, G>(
        &mut self,
        name: &str,
        scope: &'s Scope<'s, '_>,
        end: End,
        operation: impl FnOnce() -> G + Send + 's,
    ) -> Waiter<'s> {
        let said = self.begin(name);
        let waiter = Waiter::start(scope, operation);
        let sent = self.counting(end).count(&said, || waiter.is_done());
        self.end(name, &sent);
        waiter
    }

    /// Counts the requests of a waiter from the end of `start` until it returns.
    #[track_caller]
    fn woken_row(&mut self, name: &str, waiter: &Waiter<'_>, start: impl FnOnce()) {
        let said = self.begin(name);
        start();
        let sent = self.counting(End::Return).count(&said, || waiter.is_done());
        self.end(name, &sent);
    }

    fn begin(&mut self, name: &str) -> Sent {
        until("the row before is answered", SOON, || (self.proxy.unanswered() == 0).then_some(()));
        for request in self.proxy.requests() {
            self.before.is_own_watch(&request);
        }
        self.proxy.clear();
        self.proxy.hold_replies(true);
        let row = self.rows.get(self.done).filter(|row| row.len() == 5 && row[0] == name);
        row.map(|row| Sent::parse(&row[4])).unwrap_or_default()
    }

    fn counting(&self, end: End) -> Counting<'_> {
        Counting { proxy: &self.proxy, before: &self.before, end }
    }

    fn end(&mut self, name: &str, sent: &Sent) {
        self.proxy.hold_replies(false);
        let row = self.rows.get(self.done).map(|row| format!("| {} |", row.join(" | ")));
        let counted = format!("| {name} | {} |", sent.cells());
        if row.as_ref() != Some(&counted) {
            let row = row.unwrap_or_else(|| "nothing more".to_owned());
            self.wrong.push(format!("the page: {row}\ncounted:  {counted}"));
        }
        self.done += 1;
    }

    /// Waits until the deletes that no call waits for are done.
    #[track_caller]
    fn until_free(&self) {
        until_empty(&self.server.connect_string(), LOCK);
    }

    /// Waits for the watch on a held node, so that its request falls into no later row.
    #[track_caller]
    fn until_leases_watched(&self, number: usize) {
        let is_watch = |request: &&Request| {
            is_read(request) && request.path.as_deref().is_some_and(|path| path.contains("-lease-"))
        };
        until("the holder watches its nodes", SOON, || {
            (self.proxy.answered().iter().filter(is_watch).count() >= number).then_some(())
        });
    }

    fn until_watched(&self, guard: &Held) {
        let is_watch =
            |request: &Request| is_read(request) && request.path.as_deref() == Some(guard.path());
        until("the holder watches its node", SOON, || {
            self.proxy.answered().iter().any(is_watch).then_some(())
        });
    }

    /// Checks that all rows were counted and that all are true.
    #[track_caller]
    fn check(self) {
        assert!(self.wrong.is_empty(), "src/guide/costs.md is wrong:\n{}", self.wrong.join("\n"));
        assert_eq!(self.done, self.rows.len(), "the last rows were not counted: {:?}", self.rows);
    }
}

/// The end of a row.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The operation has returned.
    Return,
    /// Nothing more is sent: the operation waits for another contender and holds nothing.
    Wait,
    /// The same, but the operation holds something meanwhile.
    WaitAndHold,
}

/// The requests of one row.
#[derive(Clone, Copy)]
struct Counting<'a> {
    proxy: &'a Proxy,
    before: &'a Before,
    end: End,
}

/// The earlier requests of the counted session.
#[derive(Clone, Default)]
struct Before {
    /// The paths of contenders' creates, without a number.
    created: Vec<String>,
    /// The contenders' nodes that were read.
    read: Vec<String>,
}

impl Before {
    /// Whether the next request is the first read of a node that this session made. A holder sends
    /// such a read, with a watch, when it has held the node for 50 ms, which may be in any row.
    fn is_own_watch(&mut self, request: &Request) -> bool {
        let Some(path) = request.path.as_ref().filter(|path| path.contains("_c_")) else {
            return false;
        };
        if request.kind == OpKind::Create {
            self.created.push(path.clone());
        }
        let is_own = || self.created.iter().any(|created| path.starts_with(created));
        let is_first = is_read(request) && is_own() && !self.read.contains(path);
        if is_first {
            self.read.push(path.clone());
        }
        is_first
    }
}

impl Counting<'_> {
    /// Counts the requests flight by flight. `said` decides how long to wait, so that a busy
    /// machine gets enough time. The caller compares the result with it.
    fn count(&self, said: &Sent, returned: impl Fn() -> bool) -> Sent {
        let mut sent = Sent::default();
        let mut counted = 0;
        loop {
            let next = said.flights.get(sent.flights.len());
            let is_last = next.is_none();
            let said = next.unwrap_or(&said.beside);
            let is_as_said = || {
                let may_end = !is_last || self.end != End::Return || returned();
                may_end && more(&names(&self.requests(counted)), said).is_some()
            };
            let is_otherwise =
                || if is_last { !self.requests(counted).is_empty() } else { returned() };
            let limit = Instant::now() + SOON;
            while !is_as_said() && Instant::now() < limit {
                if is_otherwise() {
                    self.settle(A_LONG_WHILE);
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            let is_as_said = is_as_said();
            self.settle(if is_last && self.end != End::Return { A_LONG_WHILE } else { A_WHILE });
            let flight = self.requests(counted);
            counted += flight.len();
            let sent_now = names(&flight);
            if returned() || sent_now.is_empty() || is_last && is_as_said && sent_now == *said {
                sent.beside = sent_now;
                return sent;
            }
            sent.flights.push(sent_now);
            until("the flight's replies are here", SOON, || {
                (self.proxy.unanswered() == 0).then_some(())
            });
            self.proxy.pass_replies();
        }
    }

    /// Waits until nothing was sent for a while.
    fn settle(&self, a_while: Duration) {
        let mut seen = self.requests(0).len();
        loop {
            thread::sleep(a_while);
            let now = self.requests(0).len();
            if now == seen {
                return;
            }
            seen = now;
        }
    }

    /// All requests but the first `skipped` ones, heartbeats, and the watches on held nodes. While
    /// an operation waits and holds nothing, the watch on its own node belongs to it.
    fn requests(&self, skipped: usize) -> Vec<Request> {
        let mut before = self.before.clone();
        let mut requests = self.proxy.requests();
        requests.retain(|request| {
            let is_left_out = before.is_own_watch(request) && self.end != End::Wait;
            request.kind != OpKind::Ping && !is_left_out
        });
        requests.split_off(skipped)
    }
}

/// The elements of `all` beside those of `some`; None if not all of `some` are there.
fn more(all: &[String], some: &[String]) -> Option<Vec<String>> {
    let mut all = all.to_vec();
    for name in some {
        let at = all.iter().position(|other| other == name)?;
        all.remove(at);
    }
    Some(all)
}

fn is_read(request: &Request) -> bool {
    matches!(request.kind, OpKind::GetData | OpKind::Exists)
}

/// In the order of their names, because the requests of one flight come from several threads.
fn names<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Vec<String> {
    let mut names: Vec<_> = requests.into_iter().map(name).collect();
    names.sort();
    names
}

/// ZooKeeper's own name of a request.
fn name(request: &Request) -> String {
    let name = match request.opcode {
        15 => "create2",
        19 => "createContainer",
        1 => "create",
        2 => "delete",
        3 => "exists",
        4 => "getData",
        5 => "setData",
        8 | 12 => "getChildren",
        9 => "sync",
        14 => "multi",
        other => return format!("operation {other}"),
    };
    name.to_owned()
}

/// A thread that takes something and keeps it until it is released.
struct Waiter<'s> {
    has_it: Arc<AtomicBool>,
    let_go: Sender<()>,
    thread: ScopedJoinHandle<'s, ()>,
}

impl<'s> Waiter<'s> {
    fn start<G>(scope: &'s Scope<'s, '_>, take: impl FnOnce() -> G + Send + 's) -> Waiter<'s> {
        Waiter::spawned(take, |run| scope.spawn(run))
    }

    /// Returns when the thread waits.
    #[track_caller]
    fn start_waiting<G>(
        scope: &'s Scope<'s, '_>,
        take: impl FnOnce() -> G + Send + 's,
    ) -> Waiter<'s> {
        Waiter::spawned(take, |run| spawn_waiting(scope, run))
    }

    fn spawned<G>(
        take: impl FnOnce() -> G + Send + 's,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send + 's>) -> ScopedJoinHandle<'s, ()>,
    ) -> Waiter<'s> {
        let has_it = Arc::new(AtomicBool::new(false));
        let (let_go, told) = bounded(1);
        let tell = Arc::clone(&has_it);
        let thread = spawn(Box::new(move || {
            let _guard = take();
            tell.store(true, Ordering::SeqCst);
            let _ = told.recv();
        }));
        Waiter { has_it, let_go, thread }
    }

    fn is_done(&self) -> bool {
        self.has_it.load(Ordering::SeqCst)
    }

    fn let_go(self) {
        let _ = self.let_go.send(());
        self.thread.join().expect("the waiter");
    }
}

fn a_mutex_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkMutex`");
    let near = &ZkMutex::builder(&scene.near, LOCK).hand_over(TIMEOUT).build().unwrap();
    let far = &ZkMutex::new(&scene.far, LOCK).unwrap();
    // makes the folder above
    ZkMutex::new(&scene.near, "/locks/other").unwrap().lock().unwrap().unlock().unwrap();
    let guard = scene.row("`lock()`, the first one on its path", || near.lock().unwrap());
    guard.unlock().unwrap();
    let guard = scene.row("`lock()`, free", || near.lock().unwrap());
    scene.until_watched(&guard);
    scene.row("`lock()` by the thread that holds it, and its release", || {
        drop(near.lock().unwrap())
    });
    scene.row("`is_held()`, `check()`, `valid_for()`", || {
        assert!(guard.is_held() && guard.check().is_ok() && guard.valid_for() > Duration::ZERO);
    });
    scene.row("`fencing_token()`", || guard.fencing_token());
    scene.row("`unlock()`", || guard.unlock().unwrap());
    let guard = near.lock().unwrap();
    scene.until_watched(&guard);
    scene.row("drop of the guard", || drop(guard));
    thread::scope(|scope| {
        let lock_and_ask = || {
            let guard = near.lock().unwrap();
            drop(guard.lost());
            guard
        };
        let name = "`lock()`, free, and then `lost()`, or 50 ms";
        scene.waiting_row(name, scope, End::Wait, lock_and_ask).let_go();
    });
    scene.until_free();
    let guard = scene.row("`try_lock()`, free", || near.try_lock().optional().unwrap().unwrap());
    scene.until_watched(&guard);
    guard.unlock().unwrap();
    let held = far.lock().unwrap();
    scene.row("`try_lock()`, held elsewhere", || {
        assert!(near.try_lock().optional().unwrap().is_none())
    });
    let holders = scene.row("`holders()`, held elsewhere", || near.holders().unwrap());
    let session = scene.near.clone();
    scene.row("`attempt_revoke()`", || session.attempt_revoke(&holders[0].path).unwrap().unwrap());
    held.unlock().unwrap();
    let held = far.lock().unwrap();
    thread::scope(|scope| {
        let name = "`lock()`, held elsewhere, until it waits";
        let waiter = scene.waiting_row(name, scope, End::Wait, || near.lock().unwrap());
        let name = "its wake-up by the release elsewhere, if nobody else was ahead";
        scene.woken_row(name, &waiter, || held.unlock().unwrap());
        let next = Waiter::start_waiting(scope, || near.lock().unwrap());
        let name = "a hand-over to a thread of this process that waits";
        scene.woken_row(name, &next, || waiter.let_go());
        next.let_go();
    });
    scene.until_free();
    let third = session_of(&scene.server.connect_string(), TIMEOUT);
    let third = &ZkMutex::new(&third, LOCK).unwrap();
    let held = far.lock().unwrap();
    thread::scope(|scope| {
        let ahead = Waiter::start_waiting(scope, || third.lock().unwrap());
        let waiter = Waiter::start_waiting(scope, || near.lock().unwrap());
        until_queue(&scene.server.connect_string(), LOCK, 3);
        held.unlock().unwrap();
        until("the waiter ahead has it", SOON, || ahead.is_done().then_some(()));
        scene.woken_row("its wake-up, if others were ahead", &waiter, || ahead.let_go());
        waiter.let_go();
    });
    scene.until_free();
    let held = far.lock().unwrap();
    thread::scope(|scope| {
        let wait = || assert!(near.lock_timeout(TIME).optional().unwrap().is_none());
        let waiter = Waiter::start_waiting(scope, wait);
        scene.woken_row("the end of a `lock_timeout()`", &waiter, || ());
        waiter.let_go();
    });
    drop(held);
    scene.check();
}

fn a_kept_mutex_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkMutex` that is kept");
    let near = &ZkMutex::builder(&scene.near, LOCK).keep(TIMEOUT).build().unwrap();
    let far = &ZkMutex::new(&scene.far, LOCK).unwrap();
    far.lock().unwrap().unlock().unwrap(); // makes the folder
    let guard = scene.row("`lock()`, free", || near.lock().unwrap());
    scene.until_watched(&guard);
    scene.row("its release, the first one of this node", || drop(guard));
    scene.row("`lock()` while it is kept, and its release", || drop(near.lock().unwrap()));
    let held = scene.row("somebody else asks for it while it is kept", || far.lock().unwrap());
    held.unlock().unwrap();
    let guard = near.lock().unwrap();
    scene.until_watched(&guard);
    drop(guard);
    let guard = near.lock().unwrap();
    thread::scope(|scope| {
        let waiter = Waiter::start_waiting(scope, || far.lock().unwrap());
        until_queue(&scene.server.connect_string(), LOCK, 2);
        scene.row("a release while somebody else waits", || drop(guard));
        waiter.let_go();
    });
    scene.check();
}

fn a_read_write_lock_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkRwLock`");
    let near = &ZkRwLock::builder(&scene.near, LOCK).hand_over(TIMEOUT).build().unwrap();
    let far = &ZkRwLock::new(&scene.far, LOCK).unwrap();
    far.read().unwrap().unlock().unwrap(); // makes the folder
    let reading = scene.row("`read()`, free", || near.read().unwrap());
    scene.until_watched(&reading);
    thread::scope(|scope| {
        let name = "`read()` beside another thread of this process, and its release";
        let beside = || scene.row(name, || drop(near.read().unwrap()));
        scope.spawn(beside).join().unwrap();
    });
    scene.row("`unlock()` by the last reader of this process", || reading.unlock().unwrap());
    let beside = far.read().unwrap();
    let reading = scene.row("`read()` beside a reader elsewhere", || near.read().unwrap());
    scene.until_watched(&reading);
    reading.unlock().unwrap();
    thread::scope(|scope| {
        let name = "`write()`, held elsewhere, until it waits";
        let waiter = scene.waiting_row(name, scope, End::Wait, || near.write().unwrap());
        scene.woken_row("its wake-up by the release elsewhere", &waiter, || {
            beside.unlock().unwrap()
        });
        waiter.let_go();
    });
    scene.until_free();
    let writing = scene.row("`write()`, free", || near.write().unwrap());
    scene.until_watched(&writing);
    let reading = scene.row("`read()` by the thread that writes", || near.read().unwrap());
    scene.row("`unlock()` of the writer who reads on", || writing.unlock().unwrap());
    scene.until_watched(&reading);
    reading.unlock().unwrap();
    let writing = near.write().unwrap();
    scene.until_watched(&writing);
    scene.row("`unlock()` of a writer", || writing.unlock().unwrap());
    let beside = far.write().unwrap();
    thread::scope(|scope| {
        let name = "`read()`, written elsewhere, until it waits";
        let waiter = scene.waiting_row(name, scope, End::Wait, || near.read().unwrap());
        let name = "the reader's wake-up by the release elsewhere";
        scene.woken_row(name, &waiter, || beside.unlock().unwrap());
        waiter.let_go();
    });
    scene.check();
}

fn a_semaphore_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkSemaphore`");
    let near = &ZkSemaphore::new(&scene.near, LOCK, 3).unwrap();
    let far = &ZkSemaphore::new(&scene.far, LOCK, 3).unwrap();
    far.acquire().unwrap().release().unwrap(); // makes the folders
    near.permits().unwrap(); // its first use
    let permit = scene.row("`acquire()`, free", || near.acquire().unwrap());
    scene.until_watched(&permit);
    scene.row("`unlock()`", || permit.release().unwrap());
    let permits = scene.row("`acquire_many(3)`, free", || near.acquire_many(3).unwrap());
    scene.until_leases_watched(3);
    scene.row("drop of three permits", || drop(permits));
    scene.until_free();
    let permit =
        scene.row("`try_acquire()`, free", || near.try_acquire().optional().unwrap().unwrap());
    scene.until_watched(&permit);
    permit.release().unwrap();
    let held = (far.acquire().unwrap(), far.acquire_many(2).unwrap());
    scene.row("`try_acquire()`, all held elsewhere", || {
        assert!(near.try_acquire().optional().unwrap().is_none())
    });
    scene.row("`permits()`", || assert_eq!(near.permits().unwrap(), 3));
    scene.row("`holders()` of three permits", || assert_eq!(near.holders().unwrap().len(), 3));
    let name = "`contenders()`, three holders";
    scene.row(name, || assert_eq!(near.contenders().unwrap().len(), 3));
    thread::scope(|scope| {
        let name = "`acquire()`, all held elsewhere, until it waits";
        let waiter = scene.waiting_row(name, scope, End::WaitAndHold, || near.acquire().unwrap());
        scene.woken_row("its wake-up by a release elsewhere", &waiter, || drop(held.0));
        waiter.let_go();
    });
    scene.check();
}

fn a_semaphore_mutex_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkSemaphoreMutex`");
    let near = &ZkSemaphoreMutex::new(&scene.near, LOCK).unwrap();
    // makes the folders
    ZkSemaphoreMutex::new(&scene.far, LOCK).unwrap().lock().unwrap().unlock().unwrap();
    let guard = scene.row("`lock()`, free", || near.lock().unwrap());
    scene.until_watched(&guard);
    scene.row("`unlock()`", || guard.unlock().unwrap());
    scene.check();
}

fn a_multi_lock_costs_what_the_page_says() {
    const MEMBERS: [&str; 3] = ["/locks/a", "/locks/b", "/locks/c"];
    let mut scene = Scene::of("`ZkMultiLock`");
    let lock_of = |session: &ZkSession| {
        ZkMultiLock::new(MEMBERS.map(|path| ZkMutex::new(session, path).unwrap())).unwrap()
    };
    let (near, far) = (&lock_of(&scene.near), &lock_of(&scene.far));
    far.lock().unwrap().unlock().unwrap(); // makes the folders
    let guard = scene.row("`lock()` of three mutexes, free", || near.lock().unwrap());
    guard.holds().for_each(|held| scene.until_watched(held));
    scene.row("`unlock()` of three", || guard.unlock().unwrap());
    let held = ZkMutex::new(&scene.far, MEMBERS[2]).unwrap();
    let held = held.lock().unwrap();
    scene.row("`try_lock()` of three, the last one held elsewhere", || {
        assert!(near.try_lock().optional().unwrap().is_none());
    });
    drop(held);
    scene.check();
}

fn an_exclusive_lock_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkExclusiveLock`");
    let near = &ZkExclusiveLock::new(&scene.near, LOCK).unwrap();
    let far = &ZkExclusiveLock::new(&scene.far, LOCK).unwrap();
    far.lock().unwrap().unlock().unwrap(); // makes the folder
    let guard = scene.row("`lock()`, free", || near.lock().unwrap());
    scene.until_watched(&guard);
    scene.row("`unlock()`", || guard.unlock().unwrap());
    let guard = scene.row("`try_lock()`, free", || near.try_lock().optional().unwrap().unwrap());
    scene.until_watched(&guard);
    guard.unlock().unwrap();
    let held = far.lock().unwrap();
    scene.row("`try_lock()`, held elsewhere", || {
        assert!(near.try_lock().optional().unwrap().is_none())
    });
    let name = "`holders()`, held elsewhere";
    scene.row(name, || assert_eq!(near.holders().unwrap().len(), 1));
    thread::scope(|scope| {
        let name = "`lock()`, held elsewhere, until it waits";
        let waiter = scene.waiting_row(name, scope, End::Wait, || near.lock().unwrap());
        scene.woken_row("its wake-up by the release elsewhere", &waiter, || held.unlock().unwrap());
        waiter.let_go();
    });
    scene.check();
}

fn an_election_costs_what_the_page_says() {
    let mut scene = Scene::of("`ZkElection`");
    let near = &ZkElection::new(&scene.near, LOCK).unwrap();
    let far = &ZkElection::new(&scene.far, LOCK).unwrap();
    let join = |election: &ZkElection| {
        let candidate = election.join().unwrap();
        let term = candidate.wait_leader().unwrap();
        (candidate, term)
    };
    join(far).0.leave().unwrap(); // makes the folder
    let (candidate, term) = scene.row("`join()`, until it leads", || join(near));
    scene.until_watched(&term);
    scene.row("`leave()` of the leader", || candidate.leave().unwrap());
    drop(term);
    let (leader, _term) = join(far);
    scene.row("`holders()`, led elsewhere", || assert_eq!(near.holders().unwrap().len(), 1));
    thread::scope(|scope| {
        let name = "`join()` behind a leader elsewhere, until it waits";
        let waiter = scene.waiting_row(name, scope, End::Wait, || join(near));
        scene
            .woken_row("from the leader's end until it leads", &waiter, || leader.leave().unwrap());
        waiter.let_go();
    });
    scene.check();
}

/// Compares a whole table with the counts.
#[track_caller]
fn assert_table(heading: &str, counted: &[Vec<String>]) {
    let lines = |rows: &[Vec<String>]| {
        rows.iter().map(|row| format!("| {} |", row.join(" | "))).collect::<Vec<_>>().join("\n")
    };
    let said = table(heading);
    assert!(
        said == counted,
        "src/guide/costs.md is wrong: the page:\n{}\ncounted:\n{}",
        lines(&said),
        lines(counted)
    );
}

fn row(name: &str, counts: &[usize]) -> Vec<String> {
    [name.to_owned()].into_iter().chain(counts.iter().map(usize::to_string)).collect()
}

/// The requests and watch events of one release with so many waiters behind the holder, until the
/// next one holds the lock and nothing more is sent.
fn one_release(waiters: usize, strategy: WaitStrategy) -> [usize; 2] {
    let server = Server::builder().max_session(TIMEOUT).start();
    let (at, embedded) = (server.connect_string(), server.embedded_server());
    let sessions: Vec<_> = (0..waiters + 2).map(|_| session_of(&at, TIMEOUT)).collect();
    let mutex = |session| ZkMutex::builder(session, LOCK).wait_strategy(strategy).build().unwrap();
    let mutexes: Vec<_> = sessions.iter().map(mutex).collect();
    let sent = || embedded.requests().iter().filter(|request| request.op != Op::Ping).count();
    thread::scope(|scope| {
        let first = mutexes[0].lock().unwrap();
        drop(first.lost());
        let mut waiting = VecDeque::new();
        for (number, mutex) in mutexes.iter().enumerate().skip(1) {
            waiting.push_back(Waiter::start(scope, || mutex.lock().unwrap()));
            until_queue(&at, LOCK, number + 1);
        }
        // Each contender watches its own node, and each waiter also the node that it waits for.
        let all_watch = |watches: usize| {
            until("all watch", SOON, || (embedded.watch_count() == watches).then_some(()));
        };
        all_watch(1 + 2 * (waiters + 1));
        // The next waiter has only the holder ahead, so it needs fewer requests than the waiters
        // behind it.
        first.unlock().unwrap();
        until("the next one has it", SOON, || waiting[0].is_done().then_some(()));
        // The watch on the list that showed the waiter that it holds the lock stays.
        all_watch(1 + 2 * waiters + usize::from(strategy == WaitStrategy::Parent));
        embedded.clear_log();
        waiting.pop_front().expect("one at least").let_go();
        until("the next one has it", SOON, || waiting[0].is_done().then_some(()));
        let mut counted = [0, 0];
        until("nothing more is sent", SOON, || {
            thread::sleep(A_LONG_WHILE);
            let before = mem::replace(&mut counted, [sent(), embedded.events().len()]);
            (before == counted).then_some(())
        });
        waiting.into_iter().for_each(Waiter::let_go);
        counted
    })
}

fn a_release_costs_what_the_page_says_however_many_wait() {
    let count = |waiters| {
        let [requests, events] = one_release(waiters, WaitStrategy::Predecessor);
        let [herd_requests, herd_events] = one_release(waiters, WaitStrategy::Parent);
        row(&waiters.to_string(), &[requests, events, herd_requests, herd_events])
    };
    assert_table("With waiters elsewhere", &[1, 8, 32].map(count));
}

fn threads_of_one_session_queue_as_one() {
    let count = |threads: usize| {
        let server = Server::builder().max_session(TIMEOUT).start();
        let (at, embedded) = (server.connect_string(), server.embedded_server());
        let sessions = [session_of(&at, TIMEOUT), session_of(&at, TIMEOUT)];
        let [near, far] = &sessions.map(|session| ZkMutex::new(&session, LOCK).unwrap());
        let held = far.lock().unwrap();
        drop(held.lost());
        until("the holder watches", SOON, || (embedded.watch_count() == 1).then_some(()));
        embedded.clear_log();
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..threads)
                .map(|_| Waiter::start_waiting(scope, || near.lock().unwrap()))
                .collect();
            until("all is watched", SOON, || (embedded.watch_count() == 3).then_some(()));
            let requests =
                embedded.requests().iter().filter(|request| request.op != Op::Ping).count();
            let nodes = until_queue(&at, LOCK, 2).len() - 1;
            drop(held);
            waiters.into_iter().for_each(Waiter::let_go);
            row(&threads.to_string(), &[requests, nodes])
        })
    };
    assert_table("With threads of one session", &[1, 32].map(count));
}

/// The number of threads of this process, once it does not change any more.
fn lasting_threads() -> usize {
    let mut seen = 0;
    until("no thread comes or goes", SOON, || {
        thread::sleep(A_LONG_WHILE);
        let threads = threads().len();
        let before = mem::replace(&mut seen, threads);
        (before == seen).then_some(seen)
    })
}

fn threads_are_as_many_as_the_page_says() {
    const MANY: usize = 10;
    let server = Server::builder().max_session(TIMEOUT).start();
    let at = server.connect_string();
    let mut counted = Vec::new();
    let mut rows = table("Threads").into_iter();
    let mut count = |name: &str, before: usize, own: usize| {
        // Some threads are short-lived. The check waits for their end while there are more threads
        // than the page says.
        let said = rows.next().and_then(|row| row[1].parse().ok()).unwrap_or(0);
        let limit = Instant::now() + SOON;
        let mut now = lasting_threads();
        while now != before + own + said * MANY && Instant::now() < limit {
            now = lasting_threads();
        }
        counted.push(row(name, &[(now - before - own).div_ceil(MANY)]));
    };
    let before = lasting_threads();
    let sessions: Vec<_> = (0..MANY).map(|_| session_of(&at, TIMEOUT)).collect();
    count("a session", before, 0);
    let path = |number: usize| format!("/locks/{number}");
    let mutexes: Vec<_> = (0..MANY).map(|i| ZkMutex::new(&sessions[0], path(i)).unwrap()).collect();
    let before = lasting_threads();
    let held: Vec<_> = mutexes.iter().map(|mutex| mutex.lock().unwrap()).collect();
    count("a held lock", before, 0);
    let other = &ZkMutex::new(&sessions[1], path(0)).unwrap();
    thread::scope(|scope| {
        let before = lasting_threads();
        let wait = || Waiter::start_waiting(scope, || other.lock().unwrap());
        let waiters: Vec<_> = (0..MANY).map(|_| wait()).collect();
        count("a thread that waits for a lock, beside itself", before, MANY);
        drop(held);
        waiters.into_iter().for_each(Waiter::let_go);
    });
    let election = ZkElection::new(&sessions[0], LOCK).unwrap();
    let before = lasting_threads();
    let candidates: Vec<_> = (0..MANY).map(|_| election.join().unwrap()).collect();
    count("a candidate that has joined", before, 0);
    drop(candidates);
    assert_table("Threads", &counted);
}

/// The session timeout of the sessions whose upkeep is counted, and for how many it is counted.
const UPKEEP: (Duration, u32) = (Duration::from_secs(4), 5);

/// What the sessions of one round have sent by themselves, a session for each row of the table.
struct UpkeepRound {
    begun: Instant,
    lasted: Duration,
    /// The slowest answer to another client's write.
    slowest: Duration,
    /// The requests of each session. `None`: it has lost its connection or its hold.
    sent: Vec<Option<Vec<Request>>>,
}

/// Counts for several session timeouts what sessions send by themselves. Another client writes
/// meanwhile.
fn upkeep_round(server: &Server, said: &[Vec<String>], round: usize) -> UpkeepRound {
    let (timeout, times) = UPKEEP;
    let others = session_of(&server.connect_string(), SOON);
    let writes = others.zookeeper().requests().within(SOON);
    let write = |path: &str| {
        writes.create(path, b"", CreateMode::Persistent, &Acl::Open).unwrap();
    };
    let kept: Vec<_> = said
        .iter()
        .map(|row| {
            let proxy = Proxy::start(server.address());
            let session = ZkSession::connect(
                Config::new(proxy.connect_string())
                    .session_timeout(timeout)
                    .leader_serves(!row[0].contains("leader_serves(false)")),
            )
            .unwrap();
            let events = session.subscribe();
            let path = format!("/locks/{round}-{}", row[0].len());
            let mutex = ZkMutex::new(&session, &path).unwrap();
            let guard = row[0].starts_with("it holds locks").then(|| mutex.lock().unwrap());
            if let Some(guard) = &guard {
                let _ = guard.lost();
                let is_watch = |request: &Request| request.path.as_deref() == Some(guard.path());
                until("the holder watches its node", SOON, || {
                    proxy.answered().iter().any(|r| is_read(r) && is_watch(r)).then_some(())
                });
            }
            (proxy, session, events, guard)
        })
        .collect();
    let sent = || kept.iter().map(|(proxy, ..)| proxy.requests()).collect::<Vec<_>>();
    let (begun, before) = (Instant::now(), sent());
    let (mut number, mut slowest) = (0, Duration::ZERO);
    while begun.elapsed() < timeout * times {
        let asked = Instant::now();
        write(&format!("/{round}-{number}"));
        slowest = slowest.max(asked.elapsed());
        number += 1;
        thread::sleep(timeout / 8);
    }
    let (lasted, after) = (begun.elapsed(), sent());
    let sent =
        before.iter().zip(after).zip(&kept).map(|((before, mut after), (_, _, events, guard))| {
            let is_held = guard.as_ref().is_none_or(|guard| guard.is_held());
            let stood = is_held && events.is_empty();
            stood.then(|| after.split_off(before.len()))
        });
    UpkeepRound { begun, lasted, slowest, sent: sent.collect() }
}

/// A machine that is late for long may cost a session its connection: such a session is counted
/// again.
fn the_upkeep_of_a_session_costs_what_the_page_says() {
    const ROUNDS: usize = 4;
    let timeout = UPKEEP.0;
    let server = Server::start();
    let mut left = table("Upkeep");
    for round in 0..ROUNDS {
        let UpkeepRound { begun, lasted, slowest, sent } = upkeep_round(&server, &left, round);
        let times = lasted.as_secs_f64() / timeout.as_secs_f64();
        let late = control::late_since(begun).as_secs_f64() / timeout.as_secs_f64() * 8.0;
        let mut again = Vec::new();
        for (row, new) in left.into_iter().zip(sent) {
            let Some(new) = new else {
                // The library gives a connection up after T/6 at the earliest.
                let what = format!("{row:?}: the connection and the hold last");
                control::assert_in_time(false, begun, timeout / 6, &what);
                again.push(row);
                continue;
            };
            let of_writes = new.iter().filter(|request| name(request) == "delete").count();
            assert!(new.iter().all(|r| ["sync", "delete"].contains(&name(r).as_str())), "{new:?}");
            for (cell, count) in [(&row[1], new.len()), (&row[2], of_writes)] {
                let wanted = cell.parse::<f64>().unwrap() * times;
                // One more or less at the ends. A machine that is late sends less, and more when it
                // sees that the lease has become short for that. Where servers are slow, a holder
                // sends twice as many.
                let more = if slowest > timeout / 32 { wanted } else { 0.0 };
                let off = f64::from(u32::try_from(count).unwrap()) - wanted;
                assert!(
                    off >= -2.0 - late && off <= 2.0 + late + more,
                    "{row:?}: {count} in {times:.1} T, late by {late:.1}, answers within {slowest:?}"
                );
            }
        }
        left = again;
        if left.is_empty() {
            break;
        }
    }
}

/// A table without a scenario could say anything.
fn each_table_of_the_page_is_one_that_is_counted() {
    let counted = [
        "`ZkMutex`",
        "`ZkMutex` that is kept",
        "`ZkRwLock`",
        "`ZkSemaphore`",
        "`ZkSemaphoreMutex`",
        "`ZkMultiLock`",
        "`ZkExclusiveLock`",
        "`ZkElection`",
        "With waiters elsewhere",
        "With threads of one session",
        "Upkeep",
        "Threads",
    ];
    let mut heading = "";
    let mut with_tables = Vec::new();
    for line in PAGE.lines() {
        if line.starts_with('#') {
            heading = line.trim_start_matches(['#', ' ']);
        } else if line.starts_with("| ---") {
            with_tables.push(heading);
        }
    }
    assert_eq!(with_tables, counted);
}

scenarios![
    a_mutex_costs_what_the_page_says on embedded,
    a_kept_mutex_costs_what_the_page_says on embedded,
    a_read_write_lock_costs_what_the_page_says on embedded,
    a_semaphore_costs_what_the_page_says on embedded,
    a_semaphore_mutex_costs_what_the_page_says on embedded,
    a_multi_lock_costs_what_the_page_says on embedded,
    an_exclusive_lock_costs_what_the_page_says on embedded,
    an_election_costs_what_the_page_says on embedded,
    a_release_costs_what_the_page_says_however_many_wait on embedded,
    threads_of_one_session_queue_as_one on embedded,
    threads_are_as_many_as_the_page_says on embedded,
    the_upkeep_of_a_session_costs_what_the_page_says,
    each_table_of_the_page_is_one_that_is_counted on none,
];
