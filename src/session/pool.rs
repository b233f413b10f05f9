//! Threads for calls that may outlast their caller: grows when needed, shrinks when idle.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::logging::contained;

/// More calls than this at once wait for each other. Each ends within a sixth of the session
/// timeout, and their callers' deadlines hold in any case.
const MOST: usize = 64;

/// How long a thread stays without work.
const IDLE: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    jobs: Mutex<Option<Sender<Job>>>,
    inbox: Receiver<Job>,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    threads: usize,
    /// Threads that wait for a job, less the jobs that wait for a thread.
    free: isize,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let (jobs, inbox) = unbounded();
        Pool(Arc::new(Inner { jobs: Mutex::new(Some(jobs)), inbox, count: Mutex::default() }))
    }

    /// Runs `job` on a thread of the pool; gives it back where there is none.
    pub(crate) fn run(&self, job: Job) -> Result<(), Job> {
        let Some(jobs) = self.0.jobs.lock().clone() else { return Err(job) };
        let mut count = self.0.count.lock();
        if count.free <= 0 && count.threads < MOST {
            let inner = self.0.clone();
            let spawned = std::thread::Builder::new().name("zkm-call".into()).spawn(move || work(&inner));
            match spawned {
                Ok(_) => {
                    count.threads += 1;
                    count.free += 1;
                }
                Err(_) if count.threads == 0 => return Err(job),
                Err(_) => {}
            }
        }
        count.free -= 1;
        // Under the lock: a thread that ends must see a job that counts on it.
        let sent = jobs.send(job).map_err(|e| e.0);
        drop(count);
        sent
    }

    /// Ends the idle threads now, and the others when their calls end.
    pub(crate) fn close(&self) {
        drop(self.0.jobs.lock().take());
    }
}

fn work(inner: &Inner) {
    loop {
        let Ok(job) = inner.inbox.recv_timeout(IDLE) else {
            let mut count = inner.count.lock();
            // A job may have been promised to this thread meanwhile.
            if let Ok(job) = inner.inbox.try_recv() {
                drop(count);
                run(inner, job);
                continue;
            }
            count.threads -= 1;
            count.free -= 1;
            return;
        };
        run(inner, job);
    }
}

fn run(inner: &Inner, job: Job) {
    if contained(job).is_none() {
        error!("a call to ZooKeeper panicked");
    }
    inner.count.lock().free += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    #[test]
    fn a_busy_thread_does_not_keep_the_next_job_waiting() {
        let pool = Pool::new();
        let (release, gate) = bounded::<()>(0);
        let (done, all) = bounded(8);
        for _ in 0..4 {
            let (gate, done) = (gate.clone(), done.clone());
            assert!(
                pool.run(Box::new(move || {
                    let _ = (gate.recv(), done.send(()));
                }))
                .is_ok()
            );
        }
        let quick = done.clone();
        assert!(pool.run(Box::new(move || quick.send(()).unwrap())).is_ok());
        assert!(all.recv_timeout(Duration::from_secs(5)).is_ok());
        drop(release);
        for _ in 0..4 {
            assert!(all.recv_timeout(Duration::from_secs(5)).is_ok());
        }
        pool.close();
        assert!(pool.run(Box::new(|| ())).is_err());
    }

    #[test]
    fn a_panicking_job_leaves_the_pool_working() {
        let pool = Pool::new();
        assert!(pool.run(Box::new(|| panic!("on purpose"))).is_ok());
        let (done, seen) = bounded(1);
        assert!(pool.run(Box::new(move || done.send(()).unwrap())).is_ok());
        assert!(seen.recv_timeout(Duration::from_secs(5)).is_ok());
    }
}
