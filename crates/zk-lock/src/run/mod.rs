//! A command that runs while a lock is held.
//!
//! Four processes take part:
//!
//! * zk-lock itself holds the lock and decides (`supervise.rs`);
//! * the **guard** (`guard/`) ends the command if zk-lock cannot: it was killed, or stopped;
//! * the **starter** (`starter.rs`) waits until the guard knows of it, and then becomes the
//!   command. So the command never runs without a guard;
//! * the **command** leads a process group of its own, in which its children are too.
//!
//! The command never runs beyond the lease of the lock. When only so much of the lease is left as
//! the grace takes, the group gets the signal, and at the end of the grace SIGKILL.

mod acquire;
mod beside;
mod child;
pub mod elect;
mod guard;
mod held_by;
mod hold;
mod memory;
mod metrics_file;
mod on_loss;
mod plan;
mod reports;
mod starter;
mod supervise;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::ZkSession;
use zk_mutex::crossbeam_channel::{at, bounded, never, select};

use self::acquire::{Acquired, Locks};
use self::hold::Hold;
use self::memory::Memory;
use self::metrics_file::MetricsFile;
use self::plan::Plan;
use self::reports::Reports;
use self::supervise::Outcome;
use crate::cli::{ChildArgs, Common, RunArgs};
use crate::connect;
use crate::exit::{Failure, UNREACHABLE};
use crate::output::Output;
use crate::signals::Signals;
use crate::time::{millis, show};

/// Does the work of a helper process, if this process was started as one.
pub fn helper() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    words.next()?;
    let main = match words.next()?.to_str()? {
        guard::NAME => guard::main,
        starter::NAME => starter::main,
        _ => return None,
    };
    let output = Output::of_helper(&words.next()?);
    let rest: Vec<OsString> = words.collect();
    Some(main(&rest, &output))
}

/// `zk-lock run`.
pub fn run(common: &Common, args: &RunArgs, output: &Output) -> Result<u8, Failure> {
    let started = Instant::now();
    let mut metrics = MetricsFile::of(args, started);
    let code = run_once(common, args, started, &mut metrics, output);
    metrics.write(&code, output);
    code
}

fn run_once(
    common: &Common,
    args: &RunArgs,
    started: Instant,
    metrics: &mut MetricsFile,
    output: &Output,
) -> Result<u8, Failure> {
    let mut plan = Plan::of_run(args)?;
    let signals = Signals::start()?;
    let reports = Reports::start(output)?;
    let wait = acquire::WaitLimit::new(started, args.try_once, args.timeout);
    let session = connect(common, &args.child, &wait, &signals, output)?;
    plan.fit(&args.child, session.status().timeout)?;
    let locks = {
        let (session, common, args, output) =
            (session.clone(), common.clone(), args.clone(), output.clone());
        in_time(wait.deadline(), &signals, move || {
            let locks = Locks::new(&session, &common, &args)?;
            beside::check(&session, &args, &output)?;
            Ok(locks)
        })?
    };
    let hold = match locks.acquire(&wait, &signals, output) {
        Ok(Acquired::Held(hold)) => hold,
        Ok(Acquired::ByOthers(path)) => {
            let fields = json!({"paths": args.paths, "status": args.conflict_exit_code});
            let sentence = format!("{path} is held by others");
            held_by::tell(&session, &path, &sentence, fields, output);
            // The reporting thread may still have a handle of the session.
            let _ = session.close();
            return Ok(args.conflict_exit_code);
        }
        Err(failure) => {
            let _ = session.close();
            return Err(failure);
        }
    };
    metrics.acquired();
    let memory =
        args.record.then(|| Memory::begin(&session, &args.paths, &hold.variables(&session)));
    let outcome = hold_and_run(&session, &hold, &plan, &args.command, &signals, &reports);
    let (status, lost) = match &outcome {
        Ok(outcome) => (outcome.code, outcome.lost.as_deref()),
        Err(failure) => (failure.code, Some(&*failure.message).filter(|_| failure.is_loss())),
    };
    metrics.ended(lost.is_some());
    release(Box::new(hold), &session, &reports);
    if let Some(memory) = memory {
        memory.end(&session, status, lost, output);
    }
    let _ = session.close();
    reports.finish(&signals);
    Ok(outcome?.code)
}

/// Everything between having the lock and giving it back.
pub fn hold_and_run(
    session: &ZkSession,
    hold: &dyn Hold,
    plan: &Plan,
    command: &[OsString],
    signals: &Signals,
    reports: &Reports,
) -> Result<Outcome, Failure> {
    let since = Instant::now();
    let variables = hold.variables(session);
    let fields: serde_json::Map<_, _> =
        variables.iter().map(|(name, value)| (name.to_lowercase(), json!(value))).collect();
    reports.note("acquired", &format!("{} is held", hold.name()), fields.into());
    // A signal came during the wait for the lock, too late to end the wait.
    if let Some(signal) = signals.ending() {
        return Err(Failure::signalled(signal));
    }
    let child = child::Child::prepare(command, &variables, plan)?;
    let outcome = supervise::supervise(hold, plan, since, child, signals, reports)?;
    if outcome.lost.is_none() {
        supervise::keep_for_min_hold(hold, plan, since, signals, reports);
    }
    Ok(outcome)
}

/// Gives the lock back, which cannot change the command's exit status any more.
pub fn release(hold: Box<dyn Hold>, session: &ZkSession, reports: &Reports) {
    let name = hold.name();
    let was_held = hold.valid_until().is_some();
    match hold.release() {
        Ok(()) => reports.note("released", &format!("{name} is released"), json!({})),
        Err(e) if was_held => {
            let why = match &e {
                zk_mutex::Error::Unavailable { cause, .. } => cause.to_string(),
                e => e.to_string(),
            };
            let text = format!(
                "{name}: the release is not confirmed: {why}. The servers free the lock by \
                 themselves: while they work, {} from now at the latest",
                show(session.status().timeout)
            );
            reports.warn("release_unconfirmed", &text, json!({}));
        }
        // There was a message about the loss when it happened.
        Err(_) => {}
    }
}

/// Connects, and can be interrupted.
pub fn connect(
    common: &Common,
    child: &ChildArgs,
    wait: &acquire::WaitLimit,
    signals: &Signals,
    output: &Output,
) -> Result<ZkSession, Failure> {
    let mut common = common.clone();
    common.connect_timeout = wait.bound(common.connect_timeout);
    let mut config = connect::config(&common, child.session)?;
    if child.create_chroot {
        config = config.create_chroot();
    }
    // It has a limit of its own, and then says what each host answers.
    let session = in_time(None, signals, move || Ok(ZkSession::connect(config)?))?;
    tell_timeout(child.session, session.status().timeout, output);
    Ok(session)
}

/// Does work that waits for servers. A signal ends the wait, and so does `until`; nothing is held
/// or queued by then.
pub fn in_time<T: Send + 'static>(
    until: Option<Instant>,
    signals: &Signals,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (tell, done) = bounded(1);
    std::thread::Builder::new()
        .name("ask".into())
        .spawn(move || tell.send(work()))
        .map_err(|e| Failure::system(format!("no thread: {e}")))?;
    let end = until.map_or_else(never, at);
    loop {
        select! {
            recv(done) -> outcome => return outcome.unwrap_or_else(|_| {
                Err(Failure::system("a thread that asks the servers failed"))
            }),
            recv(signals.events) -> _ => if let Some(signal) = signals.ending() {
                return Err(Failure::signalled(signal));
            },
            recv(end) -> _ => {
                let text = "the time of --timeout ended before a server had answered; it is \
                            unknown who holds the lock";
                return Err(Failure::new(UNREACHABLE, "unreachable", text));
            },
        }
    }
}

/// The servers may change the session timeout: then a lock is free sooner, or later, than the
/// operator thinks after its host has died.
fn tell_timeout(asked: Duration, granted: Duration, output: &Output) {
    // The protocol counts whole milliseconds.
    if millis(asked) == millis(granted) {
        return;
    }
    let (why, limit) = if granted < asked {
        ("is as long as they allow", "maxSessionTimeout")
    } else {
        ("is as short as they allow", "minSessionTimeout")
    };
    let text = format!(
        "--session {} was asked for, and the servers grant {}, which {why} ({limit} in zoo.cfg): \
         so long after this host has died a lock of its own is free",
        show(asked),
        show(granted)
    );
    let fields = json!({"asked_ms": millis(asked), "granted_ms": millis(granted)});
    // A job of cron would say it each time, of a timeout that nobody has chosen.
    if asked == crate::cli::DEFAULT_SESSION {
        output.note("session_timeout", &text, fields);
    } else {
        output.warn("session_timeout", &text, fields);
    }
}
