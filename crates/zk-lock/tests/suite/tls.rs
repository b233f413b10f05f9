//! Servers behind TLS.

use std::process::Command;

use serde_json::Value;

use crate::doctor::{assert_says, findings};
use crate::support::{Ended, Notes, Running, Scratch, Signal, ended, zk_lock};
use zk_test_server::{ServerTls, TestServer};
use zk_test_support::pki::{Leaf, Pki};

const LOCK: &str = "/locks/orders";

struct Stage {
    server: TestServer,
    pki: Pki,
    scratch: Scratch,
}

/// A server that serves over TLS only, and wants certificates of its clients.
fn stage() -> Stage {
    stage_that_wants(true)
}

fn stage_that_wants(certificates: bool) -> Stage {
    let scratch = Scratch::new("zk-lock-tls");
    let pki = Pki::new(scratch.path(), "own");
    let files = pki.issue("server", &Leaf::server(&["127.0.0.1"]));
    let mut tls = ServerTls::new(files.certificate, files.key);
    if certificates {
        tls = tls.client_ca(pki.ca_file());
    }
    let server = TestServer::builder().tls(tls).start().expect("a server");
    Stage { server, pki, scratch }
}

impl Stage {
    /// What zk-lock says with the flags for a client of this name.
    fn run(&self, subject: Option<&str>, arguments: &[&str]) -> Ended {
        self.command(subject, arguments).output().expect("zk-lock runs").into()
    }

    fn command(&self, subject: Option<&str>, arguments: &[&str]) -> Command {
        let ca = self.pki.ca_file();
        let mut command = zk_lock(&self.server, &[]);
        command.arg("--tls-ca").arg(ca).args(["--connect-timeout", "5s"]);
        if let Some(subject) = subject {
            let files = self.pki.issue(subject, &Leaf::client(subject));
            command.arg("--tls-cert").arg(files.certificate).arg("--tls-key").arg(files.key);
        }
        command.args(arguments);
        command
    }
}

#[track_caller]
fn assert_ended(ended: &Ended, code: i32, says: &str) {
    assert!(ended.code == code && ended.err.contains(says), "{code}, {says:?}: {ended:?}");
}

#[test]
fn a_command_runs_under_a_lock_over_tls_and_its_certificate_is_its_identity() {
    let stage = stage();
    let run = ["run", "--acl", "creator", LOCK, "--", "true"];
    assert_ended(&stage.run(Some("orders"), &run), 0, "");
    assert_ended(&stage.run(Some("billing"), &run), 77, "give credentials that it names");
    assert_ended(&stage.run(Some("orders"), &run), 0, "");
    let shown = stage.run(Some("orders"), &["ls", "/locks", "--json"]);
    assert_ended(&shown, 0, "");
}

#[test]
fn what_is_missing_for_tls_is_said() {
    let stage = stage();
    let run = ["run", LOCK, "--", "true"];
    assert_ended(&stage.run(None, &run), 69, "give one with --tls-cert and --tls-key");
    let mut plain = zk_lock(&stage.server, &["--connect-timeout", "2s", "run", LOCK, "--", "true"]);
    let ended: Ended = plain.output().expect("zk-lock runs").into();
    assert_ended(&ended, 69, "TLS");
    assert!(ended.err.contains("--tls-ca"), "{ended:?}");
    let bad = |arguments: &[&str], says: &str| {
        let ended: Ended = zk_lock(&stage.server, &[arguments, &run].concat())
            .output()
            .expect("zk-lock runs")
            .into();
        assert_ended(&ended, 64, says);
    };
    bad(&["--tls-cert", "a.pem", "--tls-key", "a.key"], "need --tls-ca");
    bad(&["--tls-ca", "a.pem", "--tls-key", "a.key"], "go together");
    bad(
        &["--tls-ca", "/no/such/ca.pem"],
        "--tls-ca, --tls-cert, --tls-key: the CA file /no/such/ca.pem cannot be read",
    );
}

#[test]
fn the_files_may_stand_in_variables_and_in_the_file_of_settings() {
    let stage = stage();
    let client = stage.pki.issue("orders", &Leaf::client("orders"));
    let arguments = ["run", "--acl", "creator", LOCK, "--", "true"];
    let mut command = zk_lock(&stage.server, &arguments);
    command.env("ZK_TLS_CA", stage.pki.ca_file());
    command.env("ZK_TLS_CERT", &client.certificate).env("ZK_TLS_KEY", &client.key);
    assert_ended(&ended(command), 0, "");

    let file = stage.scratch.path().join("zk-lock.toml");
    let settings = [
        ("tls-ca", stage.pki.ca_file()),
        ("tls-cert", client.certificate),
        ("tls-key", client.key),
    ];
    let lines = settings.map(|(name, file)| format!("{name} = '{}'\n", file.display()));
    std::fs::write(&file, lines.concat()).expect("a file");
    let mut command = zk_lock(&stage.server, &arguments);
    command.env("ZK_LOCK_CONFIG", &file);
    assert_ended(&ended(command), 0, "");
}

#[test]
fn doctor_asks_the_servers_over_tls_and_says_how_the_connection_is() {
    let stage = stage();
    let ended = stage.run(Some("orders"), &["--json", "doctor"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_says(&ended, "version", "ok", "mode standalone");
    assert_says(&ended, "tick", "ok", "the tick is");
    assert_says(&ended, "tls", "ok", "connections are encrypted; this client has the certificate");
    let known = "the servers know this client as x509:CN=orders,O=Example";
    assert_says(&ended, "identity", "ok", known);
    let upkeep = findings(&ended).into_iter().filter(|one| one.check == "upkeep");
    let upkeep: Vec<String> = upkeep.map(|one| one.text).collect();
    assert!(upkeep.iter().all(|text| !text.contains("not known")), "{upkeep:?}");
}

#[test]
fn doctor_finds_a_certificate_that_the_servers_do_not_ask_for() {
    let stage = stage_that_wants(false);
    let ended = stage.run(Some("orders"), &["--json", "doctor"]);
    let words = "do not know this client by its certificate";
    assert_says(&ended, "identity", "warning", words);
    let ended = stage.run(None, &["--json", "doctor"]);
    assert_says(&ended, "tls", "ok", "connections are encrypted; this client has no certificate");
}

#[test]
fn doctor_says_why_a_server_behind_tls_could_not_be_asked() {
    let stage = stage();
    let ended = stage.run(None, &["--json", "doctor"]);
    assert_says(&ended, "reachable", "note", "no connection over TLS: ");
    assert_says(&ended, "session", "fault", "give one with");
    let mut plain = zk_lock(&stage.server, &["--json", "doctor", "--connect-timeout", "2s"]);
    let ended: Ended = plain.output().expect("zk-lock runs").into();
    assert_says(&ended, "reachable", "note", "it speaks TLS, and was asked in plain text");
    assert!(ended.out.contains("--tls-ca"), "{ended:?}");
}

#[test]
fn show_has_the_addresses_and_watches_of_servers_behind_tls() {
    let (stage, notes) = (stage(), Notes::new());
    let script = notes.script("echo $$ >$D/child; exec sleep 600");
    let held =
        Running::start(stage.command(Some("orders"), &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("child");
    let shown = stage.run(Some("orders"), &["--json", "show", LOCK]);
    let json: Value = serde_json::from_str(&shown.out).expect("JSON");
    let holder = &json["contenders"][0];
    assert!(holder["address"].is_string() && holder["watched_by"].is_array(), "{shown:?}");
    held.signal(Signal::TERM);
    held.end();
}
