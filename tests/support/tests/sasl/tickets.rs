//! The KDC and its tickets.
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use zk_test_support::{Kdc, until};

const LONG: Duration = Duration::from_secs(3_600);
const LIMIT: Duration = Duration::from_secs(60);

zk_test_support::scenarios![on real;
    a_ticket_expires,
    a_service_limits_the_life_of_its_tickets,
    a_kdc_that_does_not_run_refuses_at_once,
    a_paused_kdc_answers_when_it_goes_on,
    a_slow_way_to_the_kdc_takes_its_time,
    a_kdc_with_another_clock_refuses_old_tickets,
    a_stale_keytab_and_an_unknown_principal_are_refused,
];

/// A directory with a ticket of alice that lives so long.
fn ticket(kdc: &Kdc, life: Duration) -> PathBuf {
    let variables = kdc.environment_with_ticket("alice", life);
    let cache = variables.into_iter().find(|(name, _)| *name == "KRB5CCNAME");
    PathBuf::from(cache.expect("a cache").1)
}

/// The end of what the command says; an error if it fails.
fn said(command: &mut Command) -> Result<String, String> {
    let done = command.stdin(Stdio::null()).output().expect("it starts");
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if done.status.success() { Ok(text) } else { Err(text) }
}

/// Asks for a ticket to ZooKeeper.
fn service_ticket(kdc: &Kdc, cache: &Path) -> Result<String, String> {
    said(kdc.command("kvno").arg("-c").arg(cache).arg("zookeeper/localhost"))
}

/// Logs alice in anew, with this keytab.
fn login(kdc: &Kdc, keytab: &Path, user: &str) -> Command {
    let mut command = kdc.command("kinit");
    command.arg("-c").arg(keytab.with_extension("cache")).args(["-k", "-t"]).arg(keytab).arg(user);
    command
}

#[track_caller]
fn assert_refused(said: Result<String, String>, why: &str) {
    assert!(said.as_ref().is_err_and(|said| said.contains(why)), "not {why:?}: {said:?}");
}

fn a_ticket_expires() {
    let kdc = Kdc::start();
    let cache = ticket(&kdc, Duration::from_secs(2));
    let shown = kdc.klist(&cache).expect("a valid ticket");
    assert!(shown.contains("Default principal: alice@ZK.TEST"), "{shown}");
    assert!(shown.contains("krbtgt/ZK.TEST@ZK.TEST"), "{shown}");
    until("the ticket expires", LIMIT, || kdc.klist(&cache).is_none().then_some(()));
}

fn a_service_limits_the_life_of_its_tickets() {
    let kdc = Kdc::start();
    kdc.add("zookeeper/localhost");
    kdc.limit_life("zookeeper/localhost", Duration::from_secs(60));
    let cache = ticket(&kdc, LONG);
    service_ticket(&kdc, &cache).expect("a ticket");
    let shown = kdc.klist(&cache).expect("a valid ticket");
    let expires = |service: &str| {
        let line = shown.lines().find(|line| line.ends_with(service)).expect("the ticket");
        line.split_whitespace().skip(2).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_ne!(
        expires("zookeeper/localhost@ZK.TEST"),
        expires("krbtgt/ZK.TEST@ZK.TEST"),
        "{shown}"
    );
}

fn a_kdc_that_does_not_run_refuses_at_once() {
    let kdc = Kdc::start();
    let keytab = kdc.keytab("alice");
    kdc.stop();
    assert_refused(said(&mut login(&kdc, &keytab, "alice")), "Cannot contact any KDC");
    kdc.restart();
    said(&mut login(&kdc, &keytab, "alice")).expect("a ticket");
}

fn a_paused_kdc_answers_when_it_goes_on() {
    let kdc = Kdc::start();
    let keytab = kdc.keytab("alice");
    kdc.pause();
    let begun = Instant::now();
    let mut waits = login(&kdc, &keytab, "alice").spawn().expect("kinit starts");
    let lasts = Duration::from_millis(500);
    until("some time passes", LIMIT, || {
        assert_eq!(waits.try_wait().expect("a child"), None);
        (begun.elapsed() >= lasts).then_some(())
    });
    kdc.resume();
    let ended = until("kinit ends", LIMIT, || waits.try_wait().expect("a child"));
    assert!(ended.success(), "{ended}");
}

fn a_slow_way_to_the_kdc_takes_its_time() {
    let kdc = Kdc::start();
    let keytab = kdc.keytab("alice");
    let delay = Duration::from_millis(300);
    let detour = kdc.delayed(delay);
    let begun = Instant::now();
    let mut slow = login(&kdc, &keytab, "alice");
    said(slow.env("KRB5_CONFIG", detour.configuration())).expect("a ticket");
    assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
}

fn a_kdc_with_another_clock_refuses_old_tickets() {
    let kdc = Kdc::start();
    kdc.add("zookeeper/localhost");
    let cache = ticket(&kdc, LONG);
    kdc.shift_clock(600);
    assert_refused(service_ticket(&kdc, &cache), "Clock skew too great");
    kdc.shift_clock(-600);
    assert_refused(service_ticket(&kdc, &cache), "not yet valid");
    kdc.restart();
    service_ticket(&kdc, &cache).expect("a ticket");
}

fn a_stale_keytab_and_an_unknown_principal_are_refused() {
    let (kdc, other) = (Kdc::start(), Kdc::start());
    let keytab = kdc.keytab("alice");
    said(&mut login(&kdc, &keytab, "alice")).expect("a ticket");
    assert_refused(said(&mut login(&other, &keytab, "alice")), "not found in Kerberos database");
    kdc.rekey("alice");
    assert_refused(said(&mut login(&kdc, &keytab, "alice")), "Password incorrect");
}
