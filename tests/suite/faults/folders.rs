//! The folders of locks: a call that ends in the middle leaves none.
use crate::support::{
    Proxy, Raw, Server, scenarios,
    scene::{SOON, session_that_makes_its_chroot},
    until,
};
use std::{thread, time::Duration};
use zk_mutex::{
    CancelToken, Error, Result, Wait, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore,
    ZkSemaphoreMutex, ZkSession,
};

/// So often the server looks for empty containers.
const CHECK: Duration = Duration::from_millis(50);
const PATH: &str = "/locks/o-1";

/// A call of each recipe, with its name.
type Call = fn(&ZkSession, Wait) -> Result<()>;

const CALLS: [(&str, Call); 5] = [
    ("mutex", |session, wait| ZkMutex::new(session, PATH)?.lock_with(wait).map(drop)),
    ("write", |session, wait| ZkRwLock::new(session, PATH)?.write_with(wait).map(drop)),
    ("exclusive", |session, wait| ZkExclusiveLock::new(session, PATH)?.lock_with(wait).map(drop)),
    ("one", |session, wait| ZkSemaphoreMutex::new(session, PATH)?.lock_with(wait).map(drop)),
    ("permit", |session, wait| ZkSemaphore::new(session, PATH, 2)?.acquire_with(wait).map(drop)),
];

/// A server does not delete a container that never had a child. So a folder must not be made
/// without the node for which it is made. Each call here ends when so many of its flights are
/// answered, and the answer to the next one is still on its way.
fn first_call_that_ends_after_any_of_its_requests_leaves_no_folder() {
    let server = Server::builder().container_check(CHECK).start();
    let mut raw = Raw::connect(&server.connect_string()).unwrap();
    for (name, call) in CALLS {
        let is_permit = name == "permit";
        for answered in 0.. {
            let proxy = Proxy::start(server.address());
            let top = format!("/{name}-{answered}");
            let ours = session_that_makes_its_chroot(&(proxy.connect_string() + &top));
            let token = CancelToken::new();
            proxy.clear();
            proxy.hold_replies(true);
            let said = thread::scope(|scope| {
                let wait = Wait::forever().cancelled_by(&token);
                let caller = scope.spawn(|| call(&ours, wait));
                for flight in 0..=answered {
                    let before = if flight == 0 { 0 } else { proxy.requests().len() };
                    if flight > 0 {
                        proxy.pass_replies();
                    }
                    until("the next flight is answered", SOON, || {
                        let is_sent = proxy.requests().len() > before;
                        (caller.is_finished() || is_sent && proxy.unanswered() == 0).then_some(())
                    });
                }
                token.cancel();
                let said = caller.join().unwrap();
                proxy.hold_replies(false);
                said
            });
            assert!(matches!(said, Ok(()) | Err(Error::Cancelled { .. })), "{name}: {said:?}");
            until(&format!("the folders of {top} go"), SOON, || {
                // The number of permits stays, whoever uses the semaphore.
                let is_gone = match raw.children(&(top.clone() + PATH)) {
                    Ok(below) => is_permit && below.is_empty(),
                    Err(_) => is_permit || raw.exists(&top).unwrap().is_none(),
                };
                is_gone.then_some(())
            });
            if said.is_ok() {
                break;
            }
        }
    }
}

scenarios![first_call_that_ends_after_any_of_its_requests_leaves_no_folder];
