//! The arguments of a run, checked before anything is done.

use std::time::Duration;

use crate::cli::{AclArg, ChildArgs, Common, RunArgs};
use crate::connect;
use crate::exit::Failure;
use crate::time::show;

/// The longest grace where none is given.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// How a command is run and ended.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Between the signal and SIGKILL.
    pub grace: Duration,
    /// Between SIGKILL and the end of the lease: for the kernel to end the group, and for us to be
    /// late.
    pub margin: Duration,
    pub signal: i32,
    pub min_hold: Option<Duration>,
    pub max_hold: Option<Duration>,
    pub on_loss: Vec<String>,
    /// The exit status if the lock is lost.
    pub loss_status: u8,
    pub revocable: bool,
}

impl Plan {
    pub fn of_run(args: &RunArgs) -> Result<Plan, Failure> {
        if let (Some(min), Some(max)) = (args.min_hold, args.max_hold) {
            if min > max {
                return Err(Failure::usage(format!(
                    "--min-hold {} is longer than --max-hold {}",
                    show(min),
                    show(max)
                )));
            }
        }
        if args.permits == Some(0) {
            return Err(Failure::usage("--permits 0: take one permit at least"));
        }
        if let (Some(permits), Some(of)) = (args.permits, args.of) {
            if permits > of {
                return Err(Failure::usage(format!(
                    "--permits {permits} --of {of}: so many could never be taken at once"
                )));
            }
        }
        let mut plan = Plan::of(&args.child)?;
        plan.min_hold = args.min_hold;
        plan.max_hold = args.max_hold;
        Ok(plan)
    }

    pub fn of(args: &ChildArgs) -> Result<Plan, Failure> {
        let on_loss = args.on_loss.as_deref().unwrap_or_default();
        let mut plan = Plan {
            grace: DEFAULT_GRACE,
            margin: Duration::ZERO,
            signal: args.signal,
            min_hold: None,
            max_hold: None,
            on_loss: on_loss.split_whitespace().map(str::to_owned).collect(),
            loss_status: args.loss_status,
            revocable: args.revocable,
        };
        plan.fit(args, args.session)?;
        Ok(plan)
    }

    /// Fits the grace into the session timeout, which the server may have granted shorter than it
    /// was asked for.
    ///
    /// A lease that is renewed in time never has less than a third of the timeout left, but for the
    /// time that an answer takes, which may be a tenth. Grace and margin are a fifth at most, so a
    /// healthy session never ends its command.
    pub fn fit(&mut self, args: &ChildArgs, timeout: Duration) -> Result<(), Failure> {
        let margin = (timeout / 50).clamp(Duration::from_millis(50), Duration::from_millis(500));
        let most = (timeout / 5).saturating_sub(margin);
        self.margin = margin;
        // A server that freezes is given up after a sixth of the timeout, so a sixth of it is left at
        // least when the session begins to move to another server. With a tenth for the grace, and
        // the margin, there is time for that.
        self.grace = args.grace.unwrap_or_else(|| DEFAULT_GRACE.min(timeout / 10).min(most));
        if self.grace <= most {
            return Ok(());
        }
        let needed = (self.grace + Duration::from_millis(500)) * 5;
        let granted = if timeout < args.session {
            format!("the servers grant a session timeout of {} at most", show(timeout))
        } else {
            format!("the session timeout is {}", show(timeout))
        };
        Err(Failure::usage(format!(
            "--grace {} is too long: {granted}, and the command must have ended before the lease \
             does, so the grace may be {} at most. Shorten it, or ask for --session {}s (the \
             servers' maxSessionTimeout must allow it)",
            show(self.grace),
            show(most),
            needed.as_secs_f64().ceil()
        )))
    }
}

/// The ACL of the lock's nodes.
pub fn acl(common: &Common, args: &ChildArgs) -> Result<zk_mutex::Acl, Failure> {
    match args.acl {
        AclArg::Open => Ok(zk_mutex::Acl::Open),
        AclArg::Creator if !connect::has_identity(common) => {
            Err(Failure::usage("--acl creator needs credentials: give --auth too, or --sasl"))
        }
        AclArg::Creator => Ok(zk_mutex::Acl::CreatorAll),
    }
}
