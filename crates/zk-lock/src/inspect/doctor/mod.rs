//! `zk-lock doctor`: checks the ensemble, its locks and this host, and gives advice for each
//! finding.
//!
//! Each file is one part of the check; `report.rs` has the findings.

mod chroot;
mod ensemble;
mod host;
mod locks;
mod login;
mod nodes;
mod report;
mod session;
mod survey;
mod upkeep;

use std::time::{Duration, Instant};

use zk_mutex::{Error, ZkSession};

use self::ensemble::Hosts;
use self::report::{Findings, Level};
use self::survey::Survey;
use crate::cli::{Common, DoctorArgs, SaslArg};
use crate::exit::Failure;
use crate::output::Output;
use crate::{connect, zk};

/// How long the search for locks below the path may take.
const SURVEY_TAKES: Duration = Duration::from_secs(10);

pub fn run(common: &Common, args: &DoctorArgs, output: &Output) -> Result<u8, Failure> {
    let mut findings = Findings::default();
    // A finding of its own says that the chroot does not exist.
    let config = connect::config(common, args.session)?.create_chroot();
    let clocks = host::Clocks::now();
    let hosts = ensemble::check_hosts(common, &mut findings);
    if login::check(common, &hosts, &mut findings) {
        let session = ZkSession::connect(config);
        with_session(session, common, args, &hosts, &mut findings)?;
    }
    host::logger(common, output, &mut findings);
    host::synchronised(&mut findings);
    host::judge(&clocks, &host::Clocks::now(), &mut findings);
    report::report(&findings, output)
}

/// Makes the checks that need a session.
fn with_session(
    session: zk_mutex::Result<ZkSession>,
    common: &Common,
    args: &DoctorArgs,
    hosts: &Hosts,
    findings: &mut Findings,
) -> Result<(), Failure> {
    match session {
        Ok(session) => {
            let examined = examine(&session, common, args, hosts, findings);
            let _ = session.close();
            let examined = examined
                .and_then(|()| ensemble::one_ensemble(common, args, &hosts.serving, findings));
            if let Err(failure) = examined {
                let advice = "the checks behind this were not made";
                findings.add("session", Level::Fault, failure.message, advice);
            }
            session::encryption(common, findings);
        }
        Err(e) => {
            if matches!(e, Error::Auth { .. }) || may_be_refused(common, hosts) {
                ensemble::logins(common, args, &hosts.serving, findings)?;
            }
            let failure = Failure::from(e);
            findings.add("session", Level::Fault, failure.message, "nothing else can be checked");
        }
    }
    Ok(())
}

/// Whether there is no session perhaps because each host has refused the login. If the hosts are of
/// several ensembles, none has refused the same session as another, and the error does not say it.
fn may_be_refused(common: &Common, hosts: &Hosts) -> bool {
    let has_password =
        matches!(common.sasl, Some(SaslArg::DigestMd5(_))) || !common.auth.is_empty();
    has_password && hosts.serving.len() > 1
}

fn examine(
    session: &ZkSession,
    common: &Common,
    args: &DoctorArgs,
    hosts: &Hosts,
    findings: &mut Findings,
) -> Result<(), Failure> {
    session::timeouts(session, args, hosts, findings);
    // Without the chroot nothing else can be read or written.
    if zk::data(session, "/")?.is_none() {
        return chroot::missing(common, args, findings);
    }
    let folder = zk::nearest(session, &args.path)?;
    if folder != args.path {
        let text = format!("{} does not exist yet; {folder} is judged instead", args.path);
        findings.add("path", Level::Note, text, "the first lock makes it");
    }
    nodes::reads(session, &folder, findings)?;
    let write = nodes::writes(session, &folder, findings)?;
    nodes::acl(session, &folder, findings)?;
    let identities = session::identities(common, session, &folder, findings)?;
    let survey = Survey::read(session, &args.path, Instant::now() + SURVEY_TAKES)?;
    if let Some(write) = write {
        let timeout = session.status().timeout;
        upkeep::of_a_session(timeout, write, hosts, findings);
        upkeep::of_the_fleet(&args.path, &survey, timeout, write, hosts, findings);
    }
    if survey.hidden > 0 {
        let text = format!(
            "{} nodes below {} are hidden from this client: locks there are neither counted nor judged",
            survey.hidden, args.path
        );
        findings.add(
            "hidden",
            Level::Note,
            text,
            "give credentials that may read them, with --auth or --sasl",
        );
    }
    locks::judge(&survey, findings);
    locks::folders(&survey, identities.as_deref(), &folder, findings);
    chroot::typed(common, args, session, findings)
}
