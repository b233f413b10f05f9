//! Each fault in each phase of a lock's life, over each recipe: while it is held, waited for,
//! requested and released.
use crate::support::{
    Direction, On, OpKind, Proxy, Raw, Recipe, Server, Shared, Test, at_best, raw,
    recipe::{Guard, Lock, Needs, Row, over_recipes, rows},
    scene::{SOON, expire, full_path, queue, session_of, until_empty, until_event, until_state},
    until,
};
use crossbeam_channel::{Receiver, bounded};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use zk_mutex::{Error, LossReason, LostSignal, OptionalExt, SessionEvent, SessionState, ZkSession};

const PATH: &str = "/locks/orders";
const OTHER: &str = "/locks/other";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server is killed and started again.
    Restart,
    /// The session is closed by a second connection.
    Expiry,
    Cut,
    /// Nothing passes until the connection is given up.
    BlackHole,
    LostReply(OpKind),
    LostRequest(OpKind),
}
use Fault::*;
use OpKind::{Create, Delete, GetChildren, GetData};

/// A victim behind a proxy and a bystander without one, both with sessions on one server.
struct Stage {
    recipe: Recipe,
    victim: ZkSession,
    events: Receiver<SessionEvent>,
    bystander: ZkSession,
    proxy: Proxy,
    clean: String,
    id: i64,
    fault: Fault,
    server: Option<Server>,
}

impl Stage {
    fn new(recipe: Recipe, fault: Fault) -> Stage {
        let server = (fault == Restart).then(Server::start);
        // On a busy machine a server starts slowly, and it must be back within the lease. Only a
        // black hole is noticed later with a longer timeout.
        let timeout = Duration::from_secs(if fault == BlackHole { 12 } else { 24 });
        let clean = server.as_ref().map_or_else(Shared::chroot, Server::connect_string);
        let (host, chroot) =
            clean.split_once('/').map_or((&*clean, None), |(host, path)| (host, Some(path)));
        let proxy = Proxy::start(host.parse().unwrap());
        let through = chroot
            .map_or(proxy.connect_string(), |path| format!("{}/{path}", proxy.connect_string()));
        let victim = session_of(&through, timeout);
        let bystander = session_of(&clean, timeout);
        let events = victim.subscribe();
        let id = victim.status().session_id.unwrap();
        Stage { recipe, victim, events, bystander, proxy, clean, id, fault, server }
    }

    fn lock(&self) -> Lock {
        self.recipe.make(&self.victim, PATH)
    }

    /// Another lock of the victim.
    fn other(&self) -> Lock {
        self.recipe.make(&self.victim, OTHER)
    }

    /// A lock of the bystander: it keeps the victim waiting, or waits for it.
    fn rival(&self) -> Lock {
        self.recipe.rival().make(&self.bystander, PATH)
    }

    fn raw(&self) -> Raw {
        Raw::connect(&self.clean).unwrap()
    }

    fn queue(&self) -> Vec<String> {
        queue(&self.clean, PATH)
    }

    fn path_of(&self, node: &str) -> String {
        full_path(&self.clean, &format!("{PATH}/{node}"))
    }

    /// Plans the fault if it is a lost request or reply, which has to be planned before.
    fn plan(&self) {
        let node = self.recipe.mark();
        match self.fault {
            LostReply(Delete) => self.proxy.drop_reply(OpKind::Delete.on(node)),
            LostReply(kind) => self.proxy.drop_reply(self.recipe.own(kind)),
            LostRequest(Delete) => self.proxy.drop_request(OpKind::Delete.on(node)),
            LostRequest(kind) => self.proxy.drop_request(self.recipe.own(kind)),
            _ => {}
        }
    }

    /// Injects the fault, and lets requests pass that were held back for it.
    fn inject(&self) {
        match (self.fault, &self.server) {
            (Restart, Some(server)) => {
                server.kill();
                self.proxy.cut(); // the held requests are lost
                self.proxy.black_hole(false);
                server.restart();
            }
            (Restart, None) => unreachable!(),
            (Expiry, _) => {
                expire(&self.proxy, &self.clean);
            }
            (Cut, _) => self.proxy.cut(),
            (BlackHole, _) => {
                self.proxy.black_hole(true);
                until_state(&self.victim, SessionState::Suspended);
            }
            (LostReply(_) | LostRequest(_), _) => {}
        }
        self.proxy.black_hole(false);
    }

    /// Waits until the session, or its successor, has recovered.
    fn recovered(&self) {
        let seen = match self.fault {
            Expiry => {
                until_event(&self.events, |event| matches!(event, SessionEvent::Connected { .. }))
            }
            _ => until_event(&self.events, |event| *event == SessionEvent::Reconnected),
        };
        assert_eq!(
            seen.iter().any(|event| matches!(event, SessionEvent::Lost(_))),
            self.fault == Expiry,
            "{seen:?}"
        );
        assert_eq!(self.proxy.plans(), 0, "the fault was injected");
        assert_eq!(self.victim.status().session_id == Some(self.id), self.fault != Expiry);
        // A restarted server accepts some connections that it never answers; the session tries
        // again after a while.
        until("the bystander is back", SOON * 2, || {
            (self.bystander.status().state == SessionState::Connected).then_some(())
        });
    }

    /// Checks that the queue is empty though both sessions live, and that both can lock again.
    fn end(self) {
        until_empty(&self.clean, PATH);
        let id = self.victim.status().session_id;
        assert_eq!(
            id == Some(self.id),
            self.fault != Expiry,
            "the session is the same, so the nodes were deleted"
        );
        for lock in [self.lock(), self.rival()] {
            lock.lock().unwrap().unlock().unwrap();
        }
        until_empty(&self.clean, PATH);
        assert_eq!(self.victim.status().session_id, id);
        assert_eq!(
            (self.victim.status().state, self.bystander.status().state),
            (SessionState::Connected, SessionState::Connected)
        );
    }
}

/// What the scenario needs of a recipe, its fault, and its name.
type FaultRow = (Needs, Fault, &'static str);

const ANY: Needs = Recipe::any;
const QUEUE: Needs = Recipe::queues;
const LOCK: Needs = Recipe::is_lock_that_queues;

// ---- while holding ----

const HOLDING: &[FaultRow] = &[
    (ANY, Restart, "holder_keeps_its_hold_while_the_server_restarts"),
    (LOCK, Expiry, "holder_loses_its_hold_when_its_session_expires"),
    (ANY, Cut, "holder_keeps_its_hold_over_a_cut"),
    (ANY, BlackHole, "holder_keeps_its_hold_over_a_black_hole_shorter_than_the_lease"),
    (ANY, LostReply(Create), "holder_keeps_its_hold_when_the_reply_to_another_create_is_lost"),
    (ANY, LostRequest(Create), "holder_keeps_its_hold_when_another_create_is_lost"),
    (ANY, LostReply(Delete), "holder_keeps_its_hold_when_the_reply_to_another_delete_is_lost"),
    (QUEUE, LostReply(GetChildren), "holder_keeps_its_hold_when_the_reply_to_its_listing_is_lost"),
    (QUEUE, LostReply(GetData), "holder_keeps_its_hold_when_the_reply_to_its_read_is_lost"),
];

fn holding(recipe: Recipe, fault: Fault) {
    let stage = Stage::new(recipe, fault);
    let lock = stage.lock();
    // A holder's own node is read once, for its watch: a moment after the grant, or earlier if a
    // caller asks for the lost signal. So this fault is planned before the grant.
    let is_by_the_read_of_its_node = fault == LostReply(GetData);
    if is_by_the_read_of_its_node {
        stage.proxy.drop_reply(OpKind::GetData.on(recipe.mark()));
    }
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    if !is_by_the_read_of_its_node {
        stage.plan();
    }
    if fault == LostReply(Delete) {
        // The release of another lock. The holder's own no-op write would do as well.
        drop(stage.other().lock().unwrap());
    } else {
        provoke(&stage, &lock);
    }
    stage.inject();
    if fault == Expiry {
        lost_by_expiry(&stage, &lock, &guard);
        let gone =
            Error::Lost { path: guard.path().to_owned(), reason: LossReason::SessionExpired };
        assert_eq!(guard.unlock(), Err(gone), "each lock answers so");
        return stage.end();
    }
    stage.recovered();
    assert!(
        guard.is_held()
            && guard.check().is_ok()
            && lost.receiver().try_recv().is_err_and(|e| e.is_empty())
    );
    assert_eq!((guard.lost_reason(), stage.queue().len()), (None, 1));
    assert_ne!(lock.is_owned_here(), Some(false));
    assert!(
        stage.rival().try_lock().optional().unwrap().is_none(),
        "the victim still holds the lock"
    );
    assert_eq!(guard.path(), format!("{PATH}/{}", stage.queue()[0]));
    guard.unlock().unwrap();
    until_empty(&stage.clean, OTHER);
    assert_no_loss(recipe, &lost);
    stage.end();
}

/// A release is not a loss. But a leader's lost signal also reports the end of its term.
#[track_caller]
fn assert_no_loss(recipe: Recipe, lost: &LostSignal) {
    let reason = (!recipe.is_lock()).then_some(LossReason::Resigned);
    assert_eq!(
        (lost.receiver().try_recv().is_err_and(|e| e.is_disconnected()), lost.reason()),
        (reason.is_some(), reason)
    );
}

/// Makes the holder send the request that is to be lost.
fn provoke(stage: &Stage, lock: &Lock) {
    match stage.fault {
        LostReply(Create) | LostRequest(Create) => {
            assert!(stage.other().lock().unwrap().is_held());
        }
        LostReply(GetChildren) => assert_eq!(lock.contenders().unwrap().len(), 1),
        // `lost` has sent the read already.
        LostReply(GetData) => {
            until_event(&stage.events, |event| *event == SessionEvent::Suspended);
        }
        _ => {}
    }
}

fn lost_by_expiry(stage: &Stage, lock: &Lock, guard: &Guard<'_>) {
    let lost = guard.lost();
    assert!(lost.wait(SOON).is_some(), "it was lost");
    assert_eq!(lost.reason(), Some(LossReason::SessionExpired));
    assert_eq!((guard.is_held(), guard.lost_reason()), (false, Some(LossReason::SessionExpired)));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    let path = guard.path().to_owned();
    let gone = Error::Lost { path, reason: LossReason::SessionExpired };
    assert_eq!(guard.check(), Err(gone.clone()));
    if stage.recipe.is_a_threads() {
        assert_eq!(lock.lock().map(drop), Err(gone.clone()), "no second hold on top of a lost one");
        assert_eq!(lock.try_lock().optional().map(drop), Err(gone));
    }
    assert_ne!(lock.is_owned_here(), Some(true));
    assert!(
        stage.rival().lock_timeout(SOON).optional().unwrap().is_some_and(|theirs| theirs.is_held())
    );
    stage.recovered();
    // The remaining guard does not keep a thread of the same process out.
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.lock().unwrap().is_held())).join().unwrap();
    });
}

// ---- while waiting ----

const WAITING: &[FaultRow] = &[
    (QUEUE, Restart, "waiter_waits_on_while_the_server_restarts"),
    (QUEUE, Expiry, "waiter_waits_on_in_a_new_session_when_its_own_expires"),
    (QUEUE, Cut, "waiter_waits_on_over_a_cut"),
    (QUEUE, BlackHole, "waiter_waits_on_over_a_black_hole"),
    (QUEUE, LostReply(Create), "waiter_queues_again_when_the_reply_to_its_create_is_lost"),
    (QUEUE, LostRequest(Create), "waiter_queues_again_when_its_create_is_lost"),
    (QUEUE, LostReply(Delete), "waiter_waits_on_when_the_reply_to_a_delete_is_lost"),
    (QUEUE, LostReply(GetChildren), "waiter_waits_on_when_the_reply_to_its_listing_is_lost"),
    (QUEUE, LostReply(GetData), "waiter_waits_on_when_the_reply_to_its_read_is_lost"),
];

fn waiting(recipe: Recipe, fault: Fault) {
    let stage = Stage::new(recipe, fault);
    let (lock, rival) = (stage.lock(), stage.rival());
    let theirs = rival.lock().unwrap();
    let (tell, told) = bounded(1);
    let may_have = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mine = lock.lock().unwrap();
            assert!(
                may_have.load(Ordering::SeqCst),
                "granted while another session holds the lock"
            );
            assert!(mine.is_held());
            tell.send(mine.path().to_owned()).unwrap();
            mine.unlock().unwrap();
        });
        until("the victim waits", SOON, || recipe.waits(&stage.proxy).then_some(()));
        let before = stage.queue();
        assert_eq!(before.len(), 2);
        let holder = stage.path_of(&recipe.name(theirs.path()));
        let own =
            before.iter().map(|name| stage.path_of(name)).find(|path| *path != holder).unwrap();
        stage.plan();
        match fault {
            // A waiter that watches the list lists again when the list changes, and reads its own
            // node again when that changes.
            LostReply(GetChildren) if recipe == Recipe::Herd => {
                let junk = stage.path_of("junk");
                stage.raw().create(&junk, b"", raw::PERSISTENT).unwrap();
                stage.raw().delete(&junk).unwrap();
            }
            LostReply(GetData) if recipe == Recipe::Herd => {
                stage.raw().set_data(&own, b"revoke").unwrap();
            }
            // A revocation makes the waiter read again; the loss of its node makes it queue again.
            LostReply(GetChildren | GetData) => {
                let (node, data) = recipe.looked_at(&holder, &full_path(&stage.clean, PATH));
                stage.raw().set_data(&node, data).unwrap();
            }
            LostReply(Create) | LostRequest(Create) => {
                // The waiter watches its own node after it has waited a little.
                let armed = || {
                    (stage.proxy.count(OpKind::GetData.on(own.rsplit_once('/').unwrap().1)) > 0)
                        .then_some(())
                };
                if recipe != Recipe::Permit {
                    until("the victim watches its own node", SOON, armed);
                }
                stage.raw().delete(&own).unwrap();
            }
            LostReply(Delete) => {
                drop(stage.other().lock().unwrap());
            }
            _ => {}
        }
        stage.inject();
        stage.recovered();
        // Each has one node, nothing of the lost request is left, and no other contender was
        // granted the lock beside the holder.
        until("both are in the queue, and nothing else", SOON, || {
            let now = stage.queue();
            (now.len() == 2 && now.iter().any(|name| holder.ends_with(name))).then_some(())
        });
        assert!(told.is_empty() && theirs.is_held());
        may_have.store(true, Ordering::SeqCst);
        theirs.unlock().unwrap();
        let granted = told.recv_timeout(SOON).expect("the waiter gets the lock");
        let replaced = matches!(fault, Expiry | LostReply(Create) | LostRequest(Create));
        assert_eq!(own.ends_with(&granted), !replaced, "{granted} after {own}");
    });
    stage.end();
}

// ---- while creating ----

const CREATING: &[FaultRow] = &[
    (ANY, Restart, "lock_survives_a_restart_between_its_create_and_the_reply"),
    (ANY, Expiry, "lock_survives_an_expiry_between_its_create_and_the_reply"),
    (ANY, Cut, "lock_survives_a_cut_between_its_create_and_the_reply"),
    (ANY, BlackHole, "lock_survives_a_black_hole_between_its_create_and_the_reply"),
    (ANY, LostReply(Create), "lock_survives_the_loss_of_the_reply_to_its_create"),
    (ANY, LostRequest(Create), "lock_survives_the_loss_of_its_create"),
    (QUEUE, LostReply(GetChildren), "lock_survives_the_loss_of_the_reply_to_its_listing"),
];

fn creating(recipe: Recipe, fault: Fault) {
    let stage = Stage::new(recipe, fault);
    let lock = stage.lock();
    // The folder exists, so the first create is that of a contender.
    stage.rival().lock().unwrap().unlock().unwrap();
    stage.plan();
    let interrupts = !matches!(fault, LostReply(_) | LostRequest(_));
    // The fault comes when the server has made the node and the victim has no answer.
    let create = OpKind::Create.on(recipe.mark());
    let created = if interrupts {
        stage.proxy.hold_reply(create, SOON)
    } else {
        stage.proxy.on_request(create, SOON)
    };
    let (first, had) = thread::scope(|scope| {
        let locker = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            let path = guard.path().to_owned();
            assert!(guard.is_held());
            // A node of the lost request blocks none of our contenders, and is deleted soon.
            let name = recipe.name(&path);
            until("one node is left, the holder's", SOON, || {
                (stage.queue() == [name.as_str()]).then_some(())
            });
            until("the bystander is back", SOON * 2, || {
                (stage.bystander.status().state == SessionState::Connected).then_some(())
            });
            assert!(stage.rival().try_lock().optional().unwrap().is_none());
            guard.unlock().unwrap();
            path
        });
        let first = (fault != LostRequest(Create)).then(|| created.wait());
        if interrupts {
            assert_eq!(stage.queue().len(), 1, "the server has made the node");
        }
        if fault == Expiry {
            stage.proxy.cut(); // the held reply is lost
        }
        stage.inject();
        stage.recovered();
        (first, locker.join().unwrap())
    });
    if let Some(first) = first {
        let again = !had.contains(&prefix_name(&first.path.unwrap()));
        // The fixed name of the exclusive lock does not show whose node it is; `exclusive::faults`
        // has its scenarios.
        assert_eq!(
            again,
            fault != LostReply(GetChildren) && recipe != Recipe::Exclusive,
            "a node whose create was not acknowledged is not adopted"
        );
    }
    stage.end();
}

/// The name in a create, without the number.
fn prefix_name(path: &str) -> String {
    path.rsplit_once('/').unwrap().1.to_owned()
}

// ---- while releasing ----

const RELEASING: &[FaultRow] = &[
    (QUEUE, Restart, "release_is_not_undone_by_a_restart"),
    (QUEUE, Expiry, "release_is_not_undone_by_an_expiry"),
    (QUEUE, Cut, "release_is_done_over_a_cut"),
    (ANY, BlackHole, "release_is_done_after_a_black_hole"),
    (ANY, LostReply(Delete), "release_is_done_when_the_reply_to_its_delete_is_lost"),
    (ANY, LostRequest(Delete), "release_is_done_when_its_delete_is_lost"),
];

fn releasing(recipe: Recipe, fault: Fault) {
    let stage = Stage::new(recipe, fault);
    let lock = stage.lock();
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    stage.plan();
    let interrupts = !matches!(fault, LostReply(_) | LostRequest(_));
    stage.proxy.hold(
        if fault == BlackHole { Direction::ToServer } else { Direction::ToClient },
        interrupts,
    );
    let deleted = stage.proxy.on_request(OpKind::Delete.on(recipe.mark()), SOON);
    drop(guard);
    if !matches!(fault, BlackHole | LostRequest(_)) {
        deleted.wait();
    }
    stage.inject();
    stage.recovered();
    until_empty(&stage.clean, PATH);
    assert_no_loss(recipe, &lost); // no later event sets the signal
    stage.end();
}

/// The call that waits for the answer says that it cannot know, and the node is deleted later.
fn unlock_that_gets_no_answer_says_so_and_the_node_goes(recipe: Recipe) {
    let stage = Stage::new(recipe, BlackHole);
    let lock = stage.lock();
    let guard = lock.lock().unwrap();
    stage.proxy.black_hole(true);
    let start = std::time::Instant::now();
    let said = guard.unlock();
    assert!(
        matches!(said, Err(Error::Unavailable { op, .. }) if op == recipe.ops()[1]),
        "{said:?}"
    );
    assert!(at_best(start) < stage.victim.status().timeout / 6 + Duration::from_millis(1500));
    stage.proxy.black_hole(false);
    until_empty(&stage.clean, PATH);
    stage.end();
}

/// One row for each entry of a table, with the same body.
fn over(table: &[FaultRow], body: fn(Recipe, Fault)) -> impl Iterator<Item = Row> {
    table.iter().map(move |&(needs, fault, name)| Row::new(name, needs, move |r| body(r, fault)))
}

pub fn tests() -> Vec<Test> {
    let mut rows = rows![Recipe::any => unlock_that_gets_no_answer_says_so_and_the_node_goes];
    rows.extend(over(HOLDING, holding));
    rows.extend(over(WAITING, waiting));
    rows.extend(over(CREATING, creating));
    rows.extend(over(RELEASING, releasing));
    over_recipes(module_path!(), On::Both, rows)
}
