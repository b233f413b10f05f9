//! What every command shows of itself: completions, man pages, settings, JSON lines, and messages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use zk_test_server::TestServer;
use zk_test_support::raw;

use crate::schema;
use crate::support::{
    Ended, LIMIT, Notes, Raw, Running, SESSION, Signal, children, ended, run, server, until,
    until_dead, zk_lock,
};
use crate::terminal::Terminal;

const LOCK: &str = "/locks/orders";

const COMMANDS: [&str; 17] = [
    "run",
    "elect",
    "ls",
    "show",
    "watch",
    "wait",
    "revoke",
    "break",
    "doctor",
    "export",
    "bench",
    "history",
    "permits",
    "forget",
    "man",
    "completions",
    "schema",
];

#[track_caller]
fn assert_ended(ended: &Ended, code: i32, says: &str) {
    assert!(ended.code == code && ended.err.contains(says), "{code}, {says:?}: {ended:?}");
}

/// The same program with its arguments and variables, started by another: `sh -c SCRIPT`, where
/// `"$@"` is the program.
fn in_shell(script: &str, inner: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The file with the completions of a shell.
fn completions(server: &TestServer, notes: &Notes, shell: &str) -> String {
    let script = run(server, &["completions", shell]);
    assert_eq!(script.code, 0, "{script:?}");
    fs::write(notes.path(shell), script.out).expect("a file");
    notes.path(shell).display().to_string()
}

/// What a shell says that was asked for completions by a script.
fn ask(shell: &str, arguments: &[&str], notes: &Notes) -> Vec<String> {
    let mut command = Command::new(shell);
    command.args(arguments).env("HOME", notes.path("")).env("XDG_DATA_HOME", notes.path(""));
    let asked: Ended = command.output().unwrap_or_else(|e| panic!("{shell}: {e}")).into();
    assert_eq!((asked.code, asked.err.as_str()), (0, ""), "{asked:?}");
    asked.out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn bash_completes_behind_the_command() {
    let (server, notes) = (server(), Notes::new());
    let script = completions(&server, &notes, "bash");
    // As bash itself calls the function that the script has registered.
    let tab = r#"source "$1"; shift
        function=$(complete -p zk-lock | sed 's/.* -F \([^ ]*\) .*/\1/')
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$function" zk-lock "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let complete = |words: &[&str]| {
        ask("bash", &[&["--norc", "-c", tab, "bash", &script, "zk-lock"], words].concat(), &notes)
    };
    assert_eq!(complete(&["run", "--m"]), ["--metrics-file", "--min-hold", "--max-hold"]);
    assert_eq!(complete(&["run", "--acl", ""]), ["open", "creator"]);
    assert_eq!(complete(&["--json", "sh"]), ["show"]);
    assert_eq!(complete(&["show", "--connect-"]), ["--connect-timeout"]);
    assert_eq!(complete(&["el"]), ["elect"]);
}

#[test]
fn fish_completes_behind_the_command() {
    let (server, notes) = (server(), Notes::new());
    let script = completions(&server, &notes, "fish");
    let complete = |line: &str| {
        let tab = "source $argv[1]; complete -C $argv[2]";
        ask("fish", &["--no-config", "-c", tab, &script, line], &notes)
    };
    assert_eq!(complete("zk-lock run --m"), ["--max-hold", "--metrics-file", "--min-hold"]);
    assert_eq!(complete("zk-lock run --acl "), ["creator", "open"]);
    assert_eq!(complete("zk-lock el"), ["elect"]);
}

/// Clears the line.
const CTRL_U: &str = "\x15";

#[test]
fn zsh_completes_behind_the_command() {
    let (server, notes) = (server(), Notes::new());
    let script = completions(&server, &notes, "zsh");
    // zsh completes only in a terminal, and one that is not dumb.
    let mut zsh = Terminal::start(&server, &["env", "TERM=vt100", "zsh", "-f", "-i"]);
    zsh.press("autoload -Uz compinit && compinit -u -D && echo rea\"\"dy\n");
    zsh.expect("ready");
    zsh.press(&format!("source {script} && echo st\"\"ep2\n"));
    zsh.expect("step2");
    // What was not typed is shown.
    for (typed, completed) in [
        ("run --mi", "n-hold"),
        ("run --ma", "x-hold"),
        ("run --acl cr", "eator"),
        ("rev", "oke"),
        ("--auth /etc/nsswitc", "h.conf"),
        ("--sasl /etc/nsswitc", "h.conf"),
    ] {
        zsh.press(&format!("zk-lock {typed}\t"));
        zsh.expect(completed);
        zsh.press(CTRL_U);
    }
    zsh.press("exit\n");
    zsh.end();
}

#[test]
fn every_command_has_a_man_page() {
    let (server, notes) = (server(), Notes::new());
    let main = run(&server, &["man"]);
    assert!(main.code == 0 && main.out.contains(".TH zk-lock 1"), "{main:?}");
    assert!(!main.out.contains("127.0.0.1"), "it does not depend on where it is made");
    let to = notes.path("").display().to_string();
    assert_eq!(run(&server, &["man", "--to", &to]).code, 0);
    assert_eq!(fs::read_to_string(notes.path("zk-lock.1")).ok(), Some(main.out.clone()));
    for command in COMMANDS {
        let page = run(&server, &["man", command]);
        assert_eq!(page.code, 0, "{page:?}");
        for part in [&format!(".TH zk-lock-{command} 1"), ".SH \"EXIT STATUS\"", "zk\\-lock(1)"] {
            assert!(page.out.contains(part), "{command}, {part}: {}", page.out);
        }
        // The main page has it in its list of commands, and below SEE ALSO.
        let named = format!("zk\\-lock\\-{command}(1)");
        assert_eq!(main.out.matches(&named).count(), 2, "{command}: {}", main.out);
        let file = fs::read_to_string(notes.path(&format!("zk-lock-{command}.1")));
        assert_eq!(file.ok(), Some(page.out));
    }
    let of_run = run(&server, &["man", "run"]).out.replace("\\-", "-");
    assert!(of_run.contains("zk-lock run [OPTIONS] <PATH>... -- <COMMAND>..."), "{of_run}");
    assert_ended(&run(&server, &["man", "nonsense"]), 64, "there is no command nonsense");
}

/// A program without the servers in its environment, but perhaps in other variables.
fn without_servers(variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut command = zk_lock(&server(), arguments);
    command.env_remove("ZK_CONNECT").envs(variables.iter().copied());
    ended(command)
}

#[test]
fn an_option_goes_before_its_variable_and_this_before_the_file() {
    let (server, notes) = (server(), Notes::new());
    let right = server.connect_string();
    let file = |name: &str, text: &str| {
        fs::write(notes.path(name), text).expect("a file");
        notes.path(name).display().to_string()
    };
    let good = file("good.toml", &format!("connect = '{right}'\nconnect-timeout = 20\n"));
    let bad = file("bad.toml", "connect = 'nowhere:0'\nconnect-timeout = '20s'\n");
    let try_with = |variables: &[(&str, &str)], options: &[&str]| {
        without_servers(variables, &[options, &["run", LOCK, "--", "true"]].concat())
    };
    // Whichever of the three has the server, and which of them it hides.
    assert_ended(&try_with(&[("ZK_LOCK_CONFIG", &good)], &[]), 0, "");
    assert_ended(&try_with(&[], &["--config", &good]), 0, "");
    assert_ended(&try_with(&[("ZK_LOCK_CONFIG", &bad)], &["--config", &good]), 0, "");
    assert_ended(&try_with(&[("ZK_CONNECT", &right)], &["--config", &bad]), 0, "");
    let both = [("ZK_CONNECT", "nowhere:0"), ("ZK_LOCK_CONFIG", bad.as_str())];
    assert_ended(&try_with(&both, &["--connect", &right]), 0, "");
    assert_ended(&try_with(&[], &["--config", &bad]), 64, "nowhere:0");
    assert_ended(&try_with(&[("ZK_CONNECT", "nowhere:0")], &["--config", &good]), 64, "nowhere:0");
    // A variable that is empty is none.
    assert_ended(&try_with(&[("ZK_CONNECT", "")], &["--config", &good]), 0, "");
    let empty = [("ZK_CONNECT", right.as_str()), ("ZK_TLS_CA", ""), ("ZK_AUTH", "")];
    assert_ended(&try_with(&empty, &[]), 0, "");
    // The file of the user has a fixed place.
    file("zk-lock.toml", &format!("connect = '{right}'"));
    let home = notes.path("").display().to_string();
    let own = [("ZK_LOCK_CONFIG", ""), ("XDG_CONFIG_HOME", home.as_str())];
    assert_ended(&try_with(&own, &[]), 0, "");
}

#[test]
fn a_file_of_settings_that_cannot_be_used_is_refused() {
    let notes = Notes::new();
    let file = |text: &str| {
        fs::write(notes.path("zk-lock.toml"), text).expect("a file");
        notes.path("zk-lock.toml").display().to_string()
    };
    let path = file("server = 'a:1'");
    let with = |path: &str| without_servers(&[], &["--config", path, "run", LOCK, "--", "true"]);
    assert_ended(&with(&path), 64, &format!("{path}: there is no setting server; there are"));
    file("connect = 'a:1'\nauth = 'digest:orders:secret'");
    let refused = with(&path);
    assert_ended(&refused, 64, &format!("{path}: auth: "));
    assert!(!refused.err.contains("orders:secret"), "{refused:?}");
    file("connect = 'a:1'");
    let open = fs::Permissions::from_mode(0o666);
    fs::set_permissions(notes.path("zk-lock.toml"), open).expect("it is ours");
    assert_ended(&with(&path), 64, "everybody may write to it");
    assert_ended(&with("/no/such/file"), 64, "the file of settings /no/such/file: ");
    // A command that asks no server needs no file.
    assert_ended(&without_servers(&[], &["--config", &path, "man"]), 0, "");
}

/// The current directory of a job may belong to somebody else.
#[test]
fn no_settings_are_taken_from_the_current_directory() {
    let notes = Notes::new();
    fs::write(notes.path("zk-lock.toml"), "this is no setting").expect("a file");
    let server = server();
    let mut command = zk_lock(&server, &["ls"]);
    command.current_dir(notes.path("")).env_remove("ZK_LOCK_CONFIG");
    command.env("XDG_CONFIG_HOME", notes.path("none"));
    assert_ended(&ended(command), 0, "");
}

#[test]
fn credentials_may_be_named_in_a_variable_and_are_never_shown() {
    let (server, notes) = (server(), Notes::new());
    fs::write(notes.path("secret"), "orders:secret\n").expect("a file");
    let in_file = format!("digest:{}", notes.path("secret").display());
    let with = |auth: &str| {
        let mut command = zk_lock(&server, &["run", "--acl", "creator", LOCK, "--", "true"]);
        command.env("ZK_AUTH", auth).env("SECRET", "billing:secret");
        ended(command)
    };
    assert_ended(&with(&in_file), 0, "");
    assert_ended(&with("digest:SECRET"), 77, "give credentials that it names");
    assert_ended(&with(&format!("digest:SECRET,{in_file}")), 0, "");
    let shown = with("digest:orders:secret");
    assert_ended(&shown, 64, "never the credentials themselves");
    assert!(!shown.err.contains("orders:secret"), "{shown:?}");
}

#[test]
fn a_password_in_a_connect_string_is_never_shown() {
    let notes = Notes::new();
    let path = notes.path("zk-lock.toml").display().to_string();
    for connect in [
        "carol:secret@zk1:2181",
        "zk://carol:secret@zk1:2181/app",
        "zk1:2181,carol:secret@zk2",
        "carol:secret/secret@zk1:2181",
        "carol:secret/secret@zk1",
        "carol;secret@zk1",
    ] {
        let mut all: Vec<Ended> = Vec::new();
        for command in [
            &["-vv", "run", LOCK, "--", "true"][..],
            &["-vv", "--json", "run", LOCK, "--", "true"],
            &["-vv", "doctor"],
            &["-vv", "--json", "doctor"],
            &["-vv", "show", LOCK],
            &["-vv", "ls"],
            &["-vv", "wait", LOCK],
            &["-vv", "export", "--listen", "127.0.0.1:0"],
        ] {
            let given = [&["--connect", connect], command].concat();
            all.push(without_servers(&[], &given));
            all.push(without_servers(&[("ZK_CONNECT", connect)], command));
            fs::write(&path, format!("connect = '{connect}'")).expect("a file");
            all.push(without_servers(&[], &[&["--config", &path], command].concat()));
        }
        fs::write(&path, format!("connect = {connect}")).expect("a file"); // without the quotes
        all.push(without_servers(&[], &["--config", &path, "ls"]));
        for ended in all {
            let shown = format!("{}{}", ended.out, ended.err);
            assert_eq!(ended.code, 64, "{connect}: {ended:?}");
            assert!(!shown.contains("secret") && !shown.contains("carol"), "{connect}: {shown}");
        }
    }
    let commas = without_servers(&[], &["--connect", "zk1:2181;zk2:2181", "ls"]);
    assert_ended(
        &commas,
        64,
        "--connect: host \"zk1:2181;zk2:2181\": hosts are separated by commas",
    );
    let login = without_servers(&[], &["--connect", "carol:secret@zk1", "ls"]);
    assert_ended(&login, 64, "give the session credentials with --auth or --sasl");
}

#[test]
fn schemes_that_the_servers_do_not_know_give_one_line() {
    let server = server();
    let with = |scheme: &str| {
        let auth = format!("{scheme}:SECRET");
        let mut command = zk_lock(&server, &["--auth", &auth, "run", LOCK, "--", "true"]);
        command.env("SECRET", "orders:secret");
        ended(command)
    };
    for (scheme, code, says) in [
        (
            "nonsense",
            77,
            "check them, and whether the servers have that scheme. See --sasl, --auth and",
        ),
        ("sasl", 64, "this login is an option of its own: --sasl digest-md5:FILE"),
        ("GSSAPI", 64, "or --sasl gssapi"),
        ("x509", 64, "give --tls-cert and --tls-key"),
    ] {
        let refused = with(scheme);
        assert_ended(&refused, code, says);
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
    }
}

#[test]
fn with_json_every_line_is_json() {
    let server = server();
    let event = |ended: &Ended, name: &str| -> Value {
        let lines = ended.err.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let found = lines.into_iter().find(|line: &Value| line["event"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {ended:?}"))
    };
    for (arguments, says) in [
        (&["--json"][..], "a command is missing"),
        (&["--json", "nonsense"], "unrecognized subcommand 'nonsense'"),
        (&["run", LOCK, "--json", "--nonsense", "--", "true"], "unexpected argument '--nonsense'"),
        (&["run", "--json", "--timeout", "soon", LOCK, "--", "true"], "write a duration as"),
        (&["--json", "run", LOCK], "<COMMAND>"),
    ] {
        let wrong = run(&server, arguments);
        let failed = event(&wrong, "failed");
        assert!(failed["message"].as_str().is_some_and(|text| text.contains(says)), "{failed}");
        assert_eq!((wrong.code, failed["status"].as_i64()), (64, Some(64)));
    }
    // What stands behind -- is the command's.
    let text = run(&server, &["run", "--nonsense", LOCK, "--", "true", "--json"]);
    assert!(text.code == 64 && text.err.starts_with("error: "), "{text:?}");

    let missing = run(&server, &["--json", "run", LOCK, "--", "/no/such/command"]);
    let failed = event(&missing, "failed");
    assert_eq!((failed["kind"].as_str(), failed["status"].as_i64()), (Some("command"), Some(127)));

    let refused = run(&server, &["--json", "--auth", "nonsense:PATH", "ls"]);
    assert_eq!(event(&refused, "failed")["kind"], "denied");
    let log = run(&server, &["--json", "-v", "ls"]);
    assert_eq!(event(&log, "log")["level"], "info");
}

#[test]
fn the_guard_speaks_as_zk_lock_does() {
    let server = server();
    for json in [true, false] {
        let notes = Notes::new();
        let script = notes.script("echo $$ > $D/child; exec sleep 300");
        let options: &[&str] = if json { &["--json"] } else { &[] };
        let command = ["run", "--session", SESSION, LOCK, "--", "sh", "-c", &script];
        let running = Running::start(zk_lock(&server, &[options, &command].concat()));
        let child = notes.wait_pid("child");
        running.signal(Signal::KILL);
        let said = running.end().err;
        until_dead(child);
        let last = said.lines().last().expect("a line");
        assert_eq!(json, last.contains("\"event\":\"lost\""), "{said}");
        let text = format!("zk-lock: {LOCK}: the guard has ended the command: zk-lock was killed");
        assert_eq!(json, !last.starts_with(&text), "{said}");
    }
}

/// Whoever may write the record of a lock could have given it members of any kind.
#[test]
fn a_record_that_another_wrote_gives_lines_as_described() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs("/zk-lock/records").expect("folders");
    let run_of_another = r#"{"runs": [{"v": 7, "event": "x", "began_ms": "\u202e", "host": 1}]}"#;
    let node = "/zk-lock/records/%2Flocks%2Forders";
    raw.create(node, run_of_another.as_bytes(), raw::PERSISTENT).expect("a node");
    let listed = run(&server, &["--json", "history", LOCK]);
    let line: Value = serde_json::from_str(&listed.out).expect("JSON");
    assert_eq!((line["event"].as_str(), line["v"].as_i64()), (Some("run"), Some(1)), "{listed:?}");
}

#[test]
fn the_schema_is_printed() {
    let printed = zk_lock(&server(), &["schema"]).output().expect("zk-lock runs");
    let schema: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(schema["title"], "The lines of zk-lock --json");
}

#[test]
fn a_session_timeout_that_the_servers_change_is_said() {
    let second = Duration::from_secs(1);
    let builder = TestServer::builder().min_session_timeout(3 * second);
    let server = builder.max_session_timeout(4 * second).start().expect("a server");
    let with = |session: &str| run(&server, &["run", "--session", session, LOCK, "--", "true"]);
    let longer = "--session 40 s was asked for, and the servers grant 4 s";
    assert_ended(&with("40s"), 0, longer);
    // Nobody has chosen the default: a cron job would say it each time.
    assert_eq!(run(&server, &["run", LOCK, "--", "true"]).err, "");
    assert_ended(&with("1s"), 0, "and the servers grant 3 s, which is as short as they allow");
    assert_eq!(with("4s").err, "");
    let json = run(&server, &["--json", "elect", "/leader", "--", "true"]);
    let first = json.err.lines().next().unwrap_or_default();
    let line: Value = serde_json::from_str(first).expect("JSON");
    assert_eq!(
        (line["event"].as_str(), line["granted_ms"].as_i64()),
        (Some("session_timeout"), Some(4_000))
    );
}

#[test]
fn watch_says_when_an_outage_begins_and_ends() {
    let (server, notes) = (server(), Notes::new());
    let file = |name: &str| fs::File::create(notes.path(name)).expect("a file");
    let mut command = zk_lock(&server, &["--json", "watch", LOCK]);
    command.stdout(file("seen")).stderr(file("said"));
    let watching = Running::start(command);
    notes.wait("seen");
    let wait = |event: &str| {
        until(event, LIMIT, || {
            let said = notes.read("said")?;
            said.contains(&format!("\"event\":\"{event}\"")).then_some(())
        });
    };
    server.refuse(true);
    server.cut_connections();
    wait("away");
    server.refuse(false);
    wait("back");
    watching.signal(Signal::INT);
    watching.end();
    let (said, seen) = (notes.read("said").unwrap_or_default(), notes.read("seen"));
    said.lines().chain(seen.unwrap_or_default().lines()).for_each(schema::check_if_json);
    assert!(said.lines().all(|line| line.starts_with('{')), "{said}");
}

/// A name or data that turns the direction of the text, or hides a part of it, would make one lock
/// look like another.
#[test]
fn what_a_terminal_would_not_show_is_escaped() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let hostile = "/locks/or\u{202e}sred\u{200b}";
    raw.mkdirs(hostile).expect("folders");
    let name = format!("{hostile}/x\u{200b}-lock-");
    let data = "h\u{202e}7\x1b[2J\u{9b}";
    for _ in 0..2 {
        raw.create(&name, data.as_bytes(), raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    let node = children(&server, hostile).remove(0);
    for arguments in [
        &["ls"][..],
        &["show", hostile],
        &["watch", "--for", "100ms", hostile],
        &["revoke", hostile],
        &["-v", "run", "--try", hostile, "--", "true"],
        &["break", hostile, "--node", &node],
        &["break", hostile, "--node", "other\u{202e}"],
        &["show", "/other\u{202e}"],
        &["run", "\u{202e}", "--", "true"],
        &["doctor", hostile],
    ] {
        for json in [&[][..], &["--json"]] {
            let said = run(&server, &[json, arguments].concat());
            let text = format!("{}{}", said.out, said.err);
            assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{9b}', '\x1b']), "{said:?}");
            assert!(text.contains("202e"), "{said:?}");
        }
    }
}

#[test]
fn show_says_that_nobody_watches() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    let node = format!("{LOCK}/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-");
    raw.create(&node, b"10.0.0.7", raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    let shown = run(&server, &["show", LOCK]);
    assert!(shown.out.lines().last().is_some_and(|line| line.contains("  nobody  ")), "{shown:?}");
}

/// With too few file descriptors no server can be asked, which is no fault of the servers.
#[test]
fn a_lack_of_file_descriptors_is_one_of_this_machine() {
    let server = server();
    let start = |limit: u32| {
        let path = format!("/limit-{limit}");
        let arguments = ["--connect-timeout", "5s", "run", &path, "--", "true"];
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        (limit, Running::start(in_shell(&script, &zk_lock(&server, &arguments))))
    };
    let all: Vec<_> = (5..=20).map(start).collect();
    let codes: Vec<(u32, Ended)> = all.into_iter().map(|(limit, run)| (limit, run.end())).collect();
    for (limit, ended) in &codes {
        let is_short = ended.code == 71 && ended.err.contains("Too many open files");
        assert!(ended.code == 0 || is_short, "{limit}: {ended:?}");
    }
    let is_enough = |(_, ended): &(u32, Ended)| ended.code == 0;
    assert!(!is_enough(&codes[0]) && is_enough(&codes[codes.len() - 1]), "{codes:?}");
}

/// A closed stdin, stdout or stderr is an empty one: no connection gets its number, so nothing that
/// is written goes to a server.
#[test]
fn a_closed_stream_is_an_empty_one() {
    let (server, notes) = (server(), Notes::new());
    let script = notes.script("cat > $D/read; echo out; echo err >&2; echo end >> $D/read");
    let arguments = ["run", LOCK, "--", "sh", "-c", &script];
    for closed in ["<&-", "<&- >&-", "<&- >&- 2>&-"] {
        let _ = fs::remove_file(notes.path("read"));
        let command = in_shell(&format!("exec \"$@\" {closed}"), &zk_lock(&server, &arguments));
        assert_ended(&ended(command), 0, "");
        assert_eq!(notes.wait("read"), "end", "{closed}");
        assert_eq!(children(&server, LOCK), [""; 0]);
    }
}
