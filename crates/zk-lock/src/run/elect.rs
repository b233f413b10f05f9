//! `zk-lock elect`: a command that runs while this process leads.

use std::time::Instant;

use serde_json::json;
use zk_mutex::{
    Error, Layout, Leadership, LossReason, LostSignal, Result, RevokeSignal, ZkCandidate,
    ZkElection, ZkSession,
};

use super::acquire::WaitLimit;
use super::beside;
use super::hold::{self, Hold, end_of};
use super::plan::{self, Plan};
use super::reports::Reports;
use crate::cli::{Common, ElectArgs};
use crate::exit::Failure;
use crate::nodes::queue::LockKind;
use crate::output::Output;
use crate::signals::Signals;

pub fn elect(common: &Common, args: &ElectArgs, output: &Output) -> Result<u8, Failure> {
    let started = Instant::now();
    let mut plan = Plan::of(&args.child)?;
    let acl = plan::acl(common, &args.child)?;
    let signals = Signals::start()?;
    let reports = Reports::start(output)?;
    let wait_limit = WaitLimit::new(started, false, args.timeout);
    let session = super::connect(common, &args.child, &wait_limit, &signals, output)?;
    plan.fit(&args.child, session.status().timeout)?;
    let election = ZkElection::builder(&session, &args.path).acl(acl).build()?;
    let kind = LockKind::Election;
    let (asking, path, told) = (session.clone(), args.path.clone(), output.clone());
    super::in_time(wait_limit.deadline(), &signals, move || {
        beside::check_path(&asking, &path, kind, Layout::Curator, false, &told)
    })?;
    let candidate = election.join()?;
    let leadership = match candidate.wait_leader_with(wait_limit.wait(&signals)) {
        Ok(leadership) => leadership,
        Err(e) => {
            // No node of this process stays in the queue, however the wait ended.
            let left = candidate.leave();
            if e.is_contended() {
                left?;
                let sentence = format!("others lead {}", args.path);
                let fields = json!({"status": args.conflict_exit_code});
                super::held_by::tell(&session, &args.path, &sentence, fields, output);
                return Ok(args.conflict_exit_code);
            }
            let is_cancelled = matches!(e, Error::Cancelled { .. });
            let by = signals.ending().filter(|_| is_cancelled);
            return Err(by.map_or_else(|| e.into(), Failure::signalled));
        }
    };
    let term = Term { path: args.path.clone(), candidate, leadership };
    let outcome = super::hold_and_run(&session, &term, &plan, &args.command, &signals, &reports);
    super::release(Box::new(term), &session, &reports);
    let _ = session.close();
    reports.finish(&signals);
    Ok(outcome?.code)
}

/// One term of this process as the leader.
struct Term {
    path: String,
    candidate: ZkCandidate,
    leadership: Leadership,
}

impl Hold for Term {
    fn name(&self) -> String {
        format!("the leadership of {}", self.path)
    }

    fn valid_until(&self) -> Option<Instant> {
        end_of(|| self.leadership.valid_for())
    }

    fn lost(&self) -> LostSignal {
        self.leadership.lost()
    }

    fn lost_reason(&self) -> Option<LossReason> {
        self.leadership.lost_reason()
    }

    fn revoke_requests(&self) -> Vec<RevokeSignal> {
        vec![self.leadership.revoke_requested()]
    }

    fn variables(&self, session: &ZkSession) -> Vec<(String, String)> {
        hold::variables(
            session,
            std::slice::from_ref(&self.path),
            std::iter::once(&*self.leadership),
        )
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.candidate.leave()
    }
}
