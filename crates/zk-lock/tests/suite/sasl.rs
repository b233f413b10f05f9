//! Logins by SASL. The scenarios of DIGEST-MD5 run on the embedded server and on the real one;
//! those of Kerberos on the real one, with a KDC of their own. `ZK_TEST_SERVER` says which the run
//! has.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use zk_test_support::Variant;
use zk_test_support::server::{Builder, Server};

use crate::doctor::{assert_says, findings, said};
use crate::support::{Ended, LIMIT, Notes, Running, Signal, child_named, ended, until, zk_lock_at};

const LOCK: &str = "/locks/orders";
const PASSWORD: &str = "of-alice-alone";
const WRONG: &str = "not-the-password";

/// A real server needs processor time, so one scenario at a time has one.
static REAL: Mutex<()> = Mutex::new(());

/// Runs a scenario on each server of the run. It gets the settings of a server without logins.
fn on_each_server(scenario: impl Fn(&dyn Fn() -> Builder)) {
    for variant in Variant::chosen().expect("the switch") {
        match variant {
            Variant::Embedded => scenario(&Server::embedded),
            Variant::Real => on_a_real_server(&scenario),
            Variant::None => {}
        }
    }
}

fn on_a_real_server(scenario: impl Fn(&dyn Fn() -> Builder)) {
    let _turn = REAL.lock().unwrap_or_else(PoisonError::into_inner);
    scenario(&Server::real);
}

/// A server whose users are alice and bob.
struct Stage {
    server: Server,
    notes: Notes,
}

impl Stage {
    fn of(server: Builder) -> Stage {
        let server = server.sasl_digest(&[("alice", PASSWORD), ("bob", "of-bob")]).start();
        let notes = Notes::new();
        fs::write(notes.path("alice"), format!("alice:{PASSWORD}\n")).expect("a file");
        fs::write(notes.path("wrong"), format!("alice:{WRONG}\n")).expect("a file");
        Stage { server, notes }
    }

    /// The option for a login with the secret of this file.
    fn login(&self, file: &str) -> String {
        format!("digest-md5:{}", self.notes.path(file).display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        zk_lock_at(&self.server.connect_string(), arguments)
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments))
    }

    /// What zk-lock says to alice.
    fn alice(&self, arguments: &[&str]) -> Ended {
        self.run(&[&["--sasl", &self.login("alice")], arguments].concat())
    }

    fn with_a_wrong_password(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(&[&["--sasl", &self.login("wrong")], arguments].concat());
        assert!(!format!("{ended:?}").contains(WRONG), "the password is shown: {ended:?}");
        ended
    }
}

#[track_caller]
fn assert_ended(ended: &Ended, code: i32, says: &[&str]) {
    let has = |part: &&str| ended.err.contains(*part);
    assert!(ended.code == code && says.iter().all(has), "{code}, {says:?}: {ended:?}");
}

/// The sessions that the server has, by the word `dump`.
fn sessions(server: &Server) -> usize {
    let dump = server.four_letter("dump").expect("an answer");
    let (alive, _) = dump.split_once("ephemeral nodes dump").expect("a list of the sessions");
    alive.lines().filter(|line| line.trim().starts_with("0x")).count()
}

#[test]
fn a_command_runs_under_a_lock_that_only_its_user_sees() {
    on_each_server(|server| {
        let stage = Stage::of(server());
        let script = stage.notes.script("echo $$ >$D/child; exec sleep 600");
        let login = stage.login("alice");
        let run = ["-vv", "--sasl", &login, "run", "--acl", "creator", LOCK, "--", "sh", "-c"];
        let held = Running::start(stage.command(&[&run[..], &[&script]].concat()));
        stage.notes.wait("child");
        assert_eq!(sessions(&stage.server), 1, "the guard has a session of its own");
        // Neither zk-lock nor its guard shows the password in the list of processes.
        let guard = child_named(held.pid(), "zk-guard").expect("the guard");
        for pid in [held.pid().as_raw_nonzero().get(), guard] {
            let all = fs::read(format!("/proc/{pid}/cmdline")).expect("its arguments");
            assert!(!String::from_utf8_lossy(&all).contains(PASSWORD), "{pid}");
        }

        let shown = stage.alice(&["show", LOCK]);
        assert!(shown.code == 0 && shown.out.contains("1 holds it"), "{shown:?}");
        let with_variable = |user: &str, secret: &str, arguments: &[&str]| {
            let mut command = stage.command(arguments);
            command.env("ZK_SASL", "digest-md5:SECRET").env("SECRET", format!("{user}:{secret}"));
            ended(command)
        };
        let shown = with_variable("alice", PASSWORD, &["--json", "show", LOCK]);
        assert!(shown.code == 0 && shown.out.contains("\"contenders\":[{"), "{shown:?}");
        let hidden = "list /locks/orders: the ACL of this node does not give READ; give \
                      credentials that it names with --auth or --sasl";
        assert_ended(&with_variable("bob", "of-bob", &["show", LOCK]), 77, &[hidden]);
        assert_ended(&stage.run(&["show", LOCK]), 77, &[hidden]);
        let listed = with_variable("bob", "of-bob", &["ls", "/"]);
        assert_ended(&listed, 77, &["/locks is left out: ", "1 of the nodes are hidden from it"]);

        held.signal(Signal::TERM);
        let ended = held.end();
        assert!(!ended.err.contains(PASSWORD), "the password is in the log: {ended:?}");
    });
}

#[test]
fn a_wrong_password_is_denied_and_never_shown() {
    on_each_server(|server| {
        let stage = Stage::of(server());
        for arguments in [
            &["run", LOCK, "--", "true"][..],
            &["-vv", "run", LOCK, "--", "true"],
            &["--json", "-vv", "show", LOCK],
            &["ls"],
            &["wait", LOCK],
        ] {
            let says = ["SASL DIGEST-MD5 as ", "alice", "AuthFailed", "password", "--sasl"];
            assert_ended(&stage.with_a_wrong_password(arguments), 77, &says);
        }
    });
}

#[test]
fn a_server_that_requires_a_login_is_told_in_the_words_of_the_command_line() {
    on_each_server(|server| {
        let stage = Stage::of(server().requires_sasl());
        const LONG: &str = "1h";
        let permits = ["--permits", "1", "--of", "2"];
        for command in [
            &["run", LOCK, "--", "true"][..],
            &[&["run"][..], &permits, &["/limits/a", "--", "true"]].concat(),
            &["elect", LOCK, "--", "true"],
            &["elect", LOCK, "--observe", "--for", LONG],
            &["ls", "/"],
            &["ls", "/", "--watch", "--for", LONG],
            &["wait", LOCK],
            &["watch", "--for", LONG, LOCK],
            &["permits", "/limits/a", "3"],
            &["bench", "--seconds", "10ms", "--sessions", "1"],
        ] {
            let says = ["serves only sessions that log in", "give --sasl", "--auth"];
            assert_ended(&stage.run(command), 77, &says);
            // With a login it looks on until its time is over.
            let word = |word: &&'static str| if *word == LONG { "2s" } else { *word };
            let short: Vec<&str> = command.iter().map(word).collect();
            assert_ended(&stage.alice(&short), 0, &[]);
        }
        // Nobody holds the lock, so there is nothing that alice's commands can do.
        for command in [
            &["show", LOCK][..],
            &["history", LOCK],
            &["revoke", LOCK],
            &["break", LOCK, "--node", "x", "--yes"],
            &["forget", LOCK, "--yes"],
        ] {
            assert_ended(&stage.run(command), 77, &["give --sasl"]);
            let ended = stage.alice(command);
            assert!([0, 1].contains(&ended.code), "{ended:?}");
        }
    });
}

#[test]
fn export_logs_in_too() {
    on_each_server(|server| {
        let stage = Stage::of(server().requires_sasl());
        let login = stage.login("alice");
        let export = ["export", "--listen", "127.0.0.1:0", "--every", "100ms"];
        let command = stage.command(&[&["--json", "--sasl", &login], &export[..]].concat());
        let exporter = crate::export::Exporter::of(command);
        until("the locks are read", LIMIT, || {
            exporter.page().contains("zk_lock_up 1").then_some(())
        });
        assert_ended(&stage.run(&export), 77, &["give --sasl"]);
    });
}

#[test]
fn the_login_may_stand_in_the_file_of_settings() {
    on_each_server(|server| {
        let stage = Stage::of(server().requires_sasl());
        let with = |settings: &str| {
            fs::write(stage.notes.path("zk-lock.toml"), settings).expect("a file");
            let mut command = stage.command(&["run", LOCK, "--", "true"]);
            command.env("ZK_LOCK_CONFIG", stage.notes.path("zk-lock.toml"));
            command.env("SECRET", format!("alice:{PASSWORD}"));
            ended(command)
        };
        let login = stage.login("alice");
        assert_ended(&with(&format!("sasl = '{login}'")), 0, &[]);
        assert_ended(&with("sasl = 'digest-md5:SECRET'"), 0, &[]);
        let refused = with(&format!("sasl = 'digest-md5:alice:{PASSWORD}'"));
        assert_ended(&refused, 64, &["zk-lock.toml: sasl: behind the scheme stands a file"]);
        assert!(!refused.err.contains(PASSWORD), "{refused:?}");
        let refused = with(&format!("sasl = 'alice:{PASSWORD}'"));
        assert_ended(&refused, 64, &["zk-lock.toml: sasl: write digest-md5:FILE"]);
        assert!(!refused.err.contains(PASSWORD), "{refused:?}");
        let relative = with("sasl = 'digest-md5:secrets/alice'");
        assert_ended(&relative, 64, &["sasl: secrets/alice is no absolute path"]);
        let host = with(&format!("sasl = '{login}'\nsasl-server-host = 'zk1'"));
        assert_ended(&host, 64, &["--sasl-server-host goes with --sasl gssapi"]);
    });
}

#[test]
fn a_login_that_cannot_be_used_is_a_wrong_command_line_and_never_shown() {
    let notes = Notes::new();
    let file = |text: &[u8]| {
        fs::write(notes.path("secret"), text).expect("a file");
        format!("digest-md5:{}", notes.path("secret").display())
    };
    let with = |options: &[&str]| {
        let run = ["run", LOCK, "--", "true"];
        let mut command = zk_lock_at("127.0.0.1:1", &[options, &run].concat());
        command.env("SECRET", PASSWORD);
        let ended = ended(command);
        assert!(!ended.err.contains(PASSWORD), "{ended:?}");
        ended
    };
    let refuses = |options: &[&str], says: &str| assert_ended(&with(options), 64, &[says]);
    let holds = "must hold USER:PASSWORD, and there is no ':' in it";
    refuses(&["--sasl", &file(PASSWORD.as_bytes())], holds);
    refuses(&["--sasl", "digest-md5:SECRET"], holds);
    refuses(&["--sasl", &file(b"alice:\xff")], "USER:PASSWORD is not UTF-8");
    refuses(&["--sasl", &file(b":of-nobody")], "--sasl digest-md5: the user must have 1 to");
    refuses(&["--sasl", "digest-md5:/no/such/file"], "--sasl digest-md5: /no/such/file: ");
    refuses(&["--sasl", "digest-md5:NO_SUCH"], "there is no environment variable NO_SUCH");
    refuses(&["--sasl", "digest-md5"], "--sasl: write digest-md5:FILE");
    let inline = format!("alice:{PASSWORD}");
    refuses(&["--sasl", &inline], "--sasl: write digest-md5:FILE");
    refuses(&["--json", "--sasl", &inline], "--sasl: write digest-md5:FILE");
    refuses(&["--sasl", &format!("digest-md5:{inline}")], "never the credentials themselves");
    let both = ["--sasl", &file(b"a:b"), "--sasl-server-host", "zk1"];
    refuses(&both, "--sasl-server-host goes with --sasl gssapi");
    refuses(&both[2..], "--sasl-server-host goes with --sasl gssapi");
    if cfg!(not(feature = "gssapi")) {
        refuses(&["--sasl", "gssapi"], "build it with `cargo install zk-lock --features gssapi`");
        refuses(&["--sasl", "gssapi:alice", "--sasl-server-host", "zk1"], "without Kerberos");
    }
}

#[test]
fn doctor_says_which_login_a_server_asks_for_and_leaves_no_session() {
    on_each_server(|server| {
        let none = server().start();
        let doctor = |servers: &str, options: &[&str]| {
            ended(zk_lock_at(servers, &[&["--json"], options, &["doctor"]].concat()))
        };
        let login = "requires no login, and has no SASL that it shows";
        assert_says(&doctor(&none.connect_string(), &[]), "login", "ok", login);
        no_session_is_left(&none);

        let offers = Stage::of(server());
        let alice = offers.login("alice");
        let ended = doctor(&offers.server.connect_string(), &["--sasl", &alice]);
        assert_eq!(ended.code, 0, "{ended:?}");
        says_of_logins(
            &ended,
            &[
                ("ok", "requires no login, and offers SASL DIGEST-MD5"),
                ("note", "this client logs in by SASL DIGEST-MD5 without TLS"),
            ],
        );
        assert_says(&ended, "identity", "ok", "the servers know this client as sasl:alice");
        no_session_is_left(&offers.server);

        let requires = Stage::of(server().requires_sasl());
        let ended = doctor(&requires.server.connect_string(), &[]);
        assert_eq!(ended.code, 1, "{ended:?}");
        says_of_logins(&ended, &[("fault", "requires a login, and offers SASL DIGEST-MD5")]);
        assert!(ended.out.contains("give --sasl digest-md5:FILE"), "{ended:?}");
        assert_says(&ended, "session", "fault", "no server serves this client without a login");
        let ended = doctor(&requires.server.connect_string(), &["--sasl", &alice]);
        assert_eq!(ended.code, 0, "{ended:?}");
        no_session_is_left(&requires.server);

        let both = [&none, &offers.server].map(Server::connect_string).join(",");
        let ended = doctor(&both, &["--sasl", &alice]);
        assert_eq!(ended.code, 1, "{ended:?}");
        let differ = said(&ended, "login").into_iter().find(|(level, _)| level == "warning");
        let (_, differ) = differ.unwrap_or_else(|| panic!("{ended:?}"));
        assert!(differ.starts_with("the servers differ: "), "{differ}");
    });
}

/// A server that requires a login takes no close without one: such a session ends by its timeout.
fn no_session_is_left(server: &Server) {
    until("no session is left", LIMIT, || (sessions(server) == 0).then_some(()));
}

#[track_caller]
fn says_of_logins(ended: &Ended, wanted: &[(&str, &str)]) {
    let all = said(ended, "login");
    let fits = |((level, text), (of, words)): (&(String, String), &(&str, &str))| {
        level == of && text.contains(words)
    };
    let is_it = all.len() == wanted.len() && all.iter().zip(wanted).all(fits);
    assert!(is_it, "{wanted:?}: {all:?}");
}

#[test]
fn doctor_says_of_each_host_that_it_refuses_the_login_and_checks_the_rest() {
    on_each_server(|server| {
        let stages = [Stage::of(server()), Stage::of(server())];
        let servers = stages.each_ref().map(|stage| stage.server.connect_string());
        let (login, names) = (stages[0].login("wrong"), servers.join(","));
        let options = ["--json", "--connect-timeout", "3s", "--sasl", &login];
        let ended = ended(zk_lock_at(&names, &[&options[..], &["doctor"]].concat()));
        assert!(ended.code == 1 && !format!("{ended:?}").contains(WRONG), "{ended:?}");
        for host in &servers {
            let text =
                format!("{host} does not let this client in: the server refused SASL DIGEST-MD5");
            let mut all = findings(&ended).into_iter();
            let refused = all.find(|one| one.check == "login" && one.text.starts_with(&text));
            assert!(refused.is_some_and(|one| one.level == "fault"), "{host}: {ended:?}");
        }
        assert_says(&ended, "logger", "ok", "stderr takes lines");
        let ended = stages[0].with_a_wrong_password(&["--json", "doctor"]);
        assert_says(&ended, "session", "fault", "SASL DIGEST-MD5 as \"alice\"");

        // Of two servers one knows another password. A session may have come to either.
        let other = server().sasl_digest(&[("alice", "another")]).start();
        let (alice, own) = (stages[0].login("alice"), stages[0].server.connect_string());
        let names = format!("{},{own}", other.connect_string());
        let doctor =
            crate::support::ended(zk_lock_at(&names, &["--json", "--sasl", &alice, "doctor"]));
        let text = format!("{} does not let this client in: ", other.connect_string());
        let refused: Vec<_> =
            said(&doctor, "login").into_iter().filter(|(l, _)| l == "fault").collect();
        assert!(refused.len() == 1 && refused[0].1.starts_with(&text), "{doctor:?}");
    });
}

#[cfg(feature = "tls")]
#[test]
fn a_login_goes_over_tls_and_doctor_has_nothing_against_it() {
    use zk_test_support::pki::Pki;
    use zk_test_support::tls::ServerSide;
    on_each_server(|server| {
        let scratch = crate::support::Scratch::new("zk-lock-sasl");
        let pki = Pki::new(scratch.path(), "own");
        let side = ServerSide { pki: pki.clone(), leaf: None, wants_clients: false };
        let stage = Stage::of(server().requires_sasl().tls(side));
        let (login, ca) = (stage.login("alice"), pki.ca_file().display().to_string());
        let with = |options: &[&str], arguments: &[&str]| {
            let tls = ["--json", "--tls-ca", &ca];
            ended(zk_lock_at(&stage.server.secure(), &[&tls[..], options, arguments].concat()))
        };
        let sasl = ["--sasl", &login];
        assert_ended(&with(&sasl, &["run", "--acl", "creator", LOCK, "--", "true"]), 0, &[]);
        let ended = with(&sasl, &["doctor"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        says_of_logins(
            &ended,
            &[
                ("ok", "requires a login, and offers SASL DIGEST-MD5"),
                ("ok", "this client logs in by SASL DIGEST-MD5, over TLS"),
            ],
        );
        says_of_logins(&with(&[], &["doctor"]), &[("fault", "requires a login, and offers")]);
    });
}

/// Kerberos, with a KDC of the scenario's own.
#[cfg(feature = "gssapi")]
mod kerberos {
    use std::ffi::OsString;
    use std::path::Path;
    use std::time::Duration;

    use zk_test_support::Kdc;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    /// As long as a ticket needs to be there for one command.
    const SHORT: Duration = Duration::from_secs(3);

    type Environment = Vec<(&'static str, OsString)>;

    fn where_it_is_real(scenario: impl Fn(&Kdc, Builder)) {
        if Variant::chosen().expect("the switch").contains(&Variant::Real) {
            on_a_real_server(|server| {
                let kdc = Kdc::start();
                scenario(&kdc, server().sasl_kerberos(&kdc));
            });
        }
    }

    fn run_as(server: &Server, environment: &Environment, arguments: &[&str]) -> Ended {
        ended(command(server, environment, arguments))
    }

    /// The servers' principal has the host localhost.
    fn command(server: &Server, environment: &Environment, arguments: &[&str]) -> Command {
        let options = ["--sasl", "gssapi", "--sasl-server-host", "localhost"];
        let limit = ["--connect-timeout", "3s"];
        let arguments = [&options[..], &limit, arguments].concat();
        let mut command = zk_lock_at(&server.connect_string(), &arguments);
        command.envs(environment.iter().cloned()).env("LC_ALL", "C");
        command
    }

    #[test]
    fn a_command_runs_under_a_lock_of_the_tickets_principal() {
        where_it_is_real(|kdc, server| {
            let server = server.requires_sasl().start();
            let alice = kdc.environment_with_ticket("alice", HOUR);
            let run = ["run", "--acl", "creator", LOCK, "--", "true"];
            assert_ended(&run_as(&server, &alice, &run), 0, &[]);
            let bob = kdc.environment_with_keytab("bob");
            assert_ended(&run_as(&server, &bob, &run), 77, &["give credentials that it names"]);

            let doctor = run_as(&server, &alice, &["--json", "doctor"]);
            assert_eq!(doctor.code, 0, "{doctor:?}");
            says_of_logins(
                &doctor,
                &[
                    ("ok", "requires a login, and offers SASL GSSAPI (Kerberos)"),
                    ("ok", "this client logs in by SASL GSSAPI"),
                ],
            );
            assert_says(&doctor, "identity", "ok", "know this client as sasl:alice@ZK.TEST");
            no_session_is_left(&server);
            let nobody = zk_lock_at(&server.connect_string(), &["--json", "doctor"]);
            assert!(ended(nobody).out.contains("give --sasl gssapi, or --auth if it"));
        });
    }

    #[test]
    fn doctor_says_that_a_server_has_kerberos_and_requires_no_login() {
        where_it_is_real(|kdc, server| {
            let server = server.start();
            let nobody = zk_lock_at(&server.connect_string(), &["--json", "doctor"]);
            let text = "requires no login, and offers SASL GSSAPI (Kerberos)";
            says_of_logins(&ended(nobody), &[("ok", text)]);
            let alice = kdc.environment_with_ticket("alice", HOUR);
            let mut other = zk_lock_at(&server.connect_string(), &["--json", "doctor"]);
            other.args(["--connect-timeout", "2s", "--sasl", "digest-md5:SECRET"]);
            let other = ended({
                other.env("SECRET", "alice:word");
                other
            });
            assert!(other.out.contains("and this client logs in by SASL DIGEST-MD5"), "{other:?}");
            assert!(other.out.contains("give --sasl gssapi"), "{other:?}");
            assert_eq!(run_as(&server, &alice, &["doctor"]).code, 0);
            no_session_is_left(&server);
        });
    }

    #[test]
    fn a_ticket_that_is_missing_or_has_expired_is_an_outage_that_names_kinit() {
        where_it_is_real(|kdc, server| {
            let server = server.start();
            let run = ["run", LOCK, "--", "true"];
            let nobody = kdc.environment();
            let says = ["SASL GSSAPI", "No Kerberos credentials", "kinit", "KRB5_CLIENT_KTNAME"];
            assert_ended(&run_as(&server, &nobody, &run), 69, &says);

            let alice = kdc.environment_with_ticket("alice", SHORT);
            let cache = alice.iter().find(|(name, _)| *name == "KRB5CCNAME").expect("a cache");
            until("the ticket has expired", LIMIT, || {
                kdc.klist(Path::new(&cache.1)).is_none().then_some(())
            });
            let says = ["SASL GSSAPI", "Ticket expired", "kinit", "KRB5_CLIENT_KTNAME"];
            // (In the second of its end the library may take a ticket that klist calls expired.)
            let expired = until("a run needs a ticket", LIMIT, || {
                Some(run_as(&server, &alice, &run)).filter(|ended| ended.code != 0)
            });
            assert_ended(&expired, 69, &says);
            let doctor = run_as(&server, &alice, &["--json", "doctor"]);
            assert_says(&doctor, "session", "fault", "kinit");
        });
    }
}
