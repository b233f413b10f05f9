//! `zk-lock bench`: measures the cost of locking with this ensemble for a few seconds.

use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::ZkMutex;

use crate::cli::{BenchArgs, Common};
use crate::connect;
use crate::exit::Failure;
use crate::output::{Output, table};

/// The result of one part of the measurement.
struct Part {
    name: &'static str,
    about: String,
    /// The length of each cycle, the shortest first.
    cycles: Vec<Duration>,
    took: Duration,
}

impl Part {
    fn per_second(&self) -> f64 {
        self.cycles.len() as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    /// The duration that `percent` of all cycles do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let at = (self.cycles.len() * percent / 100).min(self.cycles.len().saturating_sub(1));
        self.cycles.get(at).copied().unwrap_or_default()
    }
}

pub fn run(common: &Common, args: &BenchArgs, output: &Output) -> Result<u8, Failure> {
    let alone = measure(common, args, 1)?;
    let contended = measure(common, args, usize::from(args.sessions.max(1)))?;
    let parts = [
        Part { name: "uncontended", about: "one session locks and unlocks".to_owned(), ..alone },
        Part {
            name: "contended",
            about: format!("{} sessions of this process, one lock", args.sessions.max(1)),
            ..contended
        },
    ];
    if output.json {
        for part in &parts {
            let fields = json!({
                "part": part.name,
                "cycles": part.cycles.len(),
                "seconds": part.took.as_secs_f64(),
                "per_second": part.per_second(),
                "p50_us": part.percentile(50).as_micros(),
                "p99_us": part.percentile(99).as_micros(),
                "max_us": part.percentile(100).as_micros(),
            });
            output.report("measured", fields, "")?;
        }
        return Ok(0);
    }
    let heads = ["", "LOCKS/S", "MEDIAN", "99 %", "LONGEST", ""];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for part in &parts {
        let millis = |percent| format!("{:.2} ms", part.percentile(percent).as_secs_f64() * 1e3);
        rows.push(vec![
            part.name.to_owned(),
            format!("{:.0}", part.per_second()),
            millis(50),
            millis(99),
            millis(100),
            part.about.clone(),
        ]);
    }
    output.result(&table(&rows))?;
    output.result(
        "A cycle is lock and unlock, the wait for the others included. This loads the ensemble: \
         others are slower meanwhile.",
    )?;
    Ok(0)
}

fn measure(common: &Common, args: &BenchArgs, sessions: usize) -> Result<Part, Failure> {
    // Sessions of their own: threads of one session would hand the lock to each other.
    let locks: Vec<(zk_mutex::ZkSession, ZkMutex)> = (0..sessions)
        .map(|_| {
            let session = connect::session(common)?;
            let lock = ZkMutex::new(&session, &args.path)?;
            drop(lock.lock()?); // the path is made
            Ok((session, lock))
        })
        .collect::<Result<_, Failure>>()?;
    let began = Instant::now();
    let cycle = |lock: &ZkMutex| -> Result<Vec<Duration>, Failure> {
        let mut all = Vec::new();
        while began.elapsed() < args.seconds {
            let start = Instant::now();
            lock.lock()?.unlock()?;
            all.push(start.elapsed());
        }
        Ok(all)
    };
    let outcomes: Vec<Result<Vec<Duration>, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = locks.iter().map(|(_, lock)| scope.spawn(|| cycle(lock))).collect();
        let failed = || Failure::system("a measuring thread failed");
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(failed()))).collect()
    });
    let took = began.elapsed();
    let mut cycles = Vec::new();
    for outcome in outcomes {
        cycles.extend(outcome?);
    }
    cycles.sort_unstable();
    for (session, _) in &locks {
        let _ = session.close();
    }
    Ok(Part { name: "", about: String::new(), cycles, took })
}
