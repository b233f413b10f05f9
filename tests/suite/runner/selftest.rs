//! Tests of the tools: the runner, the servers, the proxy's faults and the ensemble.
use crate::support::{
    Direction, Ensemble, Isolation, OpKind, Proxy, Raw, Server, Shared,
    raw::{self, EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT, SEQUENTIAL},
    runner, scenarios, until, variant,
    wire::Writer,
};
use std::{
    env, fs,
    io::{BufRead, BufReader, ErrorKind, Read},
    net::TcpStream,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(20);

fn runner_fails_what_panics_dies_hangs_or_leaves_something_behind() {
    let run = |filter: &[&str]| {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--skip", "holds_a_server"])
            .args(filter)
            .env(runner::TRAPS_VAR, "1")
            .env_remove(runner::TEST_VAR)
            .env_remove("RUST_TEST_THREADS");
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (ok, said) = run(&[]);
    assert!(!ok);
    for line in [
        "none::runner::traps::leaves_a_thread ... FAILED",
        "forgotten",
        "none::runner::traps::leaves_a_socket ... FAILED",
        "Socket 127.0.0.1:",
        "none::runner::traps::leaves_a_process ... FAILED",
        "sleep 1000",
        "none::runner::traps::panics ... FAILED",
        "said before the panic",
        "as told",
        "none::runner::traps::dies ... FAILED",
        "died of signal 6",
        "none::runner::traps::never_ends ... FAILED",
        "timeout: still running after 3s, killed",
        "said before the hang",
        "test result: FAILED. 1 passed; 6 failed",
    ] {
        let squeezed =
            said.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(line), "no {line:?} in\n{said}");
    }
    let left = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Process ")?.split(' ').next())
        .unwrap();
    let state = fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
    assert!(
        state.is_empty() || state.contains(") Z "),
        "the process that was left behind was killed: {state}"
    );
    let (ok, said) = run(&["--exact", "none::runner::traps::ends_its_thread_a_little_late"]);
    assert!(
        ok && said
            .trim_end()
            .lines()
            .last()
            .unwrap()
            .starts_with("test result: ok. 1 passed; 0 failed"),
        "{said}"
    );
}

fn one_switch_chooses_the_server_and_the_run_says_what_it_leaves_out() {
    let run = |server: &str, args: &[&str]| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(args).env(variant::SWITCH, server).env_remove(runner::TEST_VAR);
        let output = command.output().unwrap();
        let [listed, said] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), listed, said)
    };
    let list = |server: &str| run(server, &["--list"]);
    let (ok, all, said) = list("both");
    assert!(ok && said.is_empty(), "{said}");
    let of = |variant: &str| {
        all.lines().filter(|line| line.starts_with(&format!("{variant}::"))).count()
    };
    for (server, other) in [("real", "embedded"), ("embedded", "real"), ("", "real")] {
        let (ok, listed, said) = list(server);
        let runs = if server.is_empty() { "embedded" } else { server };
        assert!(
            ok && listed
                .lines()
                .all(|line| [runs, "none"].contains(&line.split("::").next().unwrap()))
        );
        assert_eq!(listed.lines().count(), of(runs) + of("none"));
        assert!(
            of(runs) > 200
                && said.trim().lines().count() == 1
                && said.starts_with(&format!("not run here: {} scenarios", of(other)))
                && said.contains("`tests/run`"),
            "{said}"
        );
    }
    for wrong in ["none", "Real", "real,embedded"] {
        let (ok, listed, said) = list(wrong);
        assert!(
            !ok && listed.is_empty() && said.contains("it takes embedded, real or both"),
            "{said}"
        );
    }
    // If the arguments name only scenarios that are left out, the run fails. Arguments for
    // another binary are ignored.
    let ensembles = "members_of_an_ensemble_let_in_no_more_than_there_are";
    let (ok, _, said) = run("embedded", &[ensembles]);
    assert!(
        !ok && said.contains("not run here: 1 scenarios") && said.contains("no scenario was run"),
        "{said}"
    );
    assert!(run("embedded", &["a_name_of_none_of_them"]).0);
}

fn java_dies_with_a_test_process_that_is_killed() {
    let mut holder = Command::new(env::current_exe().unwrap())
        .env(runner::TRAPS_VAR, "1")
        .env(runner::TEST_VAR, "runner::traps::holds_a_server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let connect = || TcpStream::connect(address.trim());
    connect().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("the server is gone", SOON, || {
        connect().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused).then_some(())
    });
}

fn shared_server_gives_each_scenario_a_chroot_of_its_own() {
    let (one, other) = (Shared::chroot(), Shared::chroot());
    assert_ne!(one, other);
    let (_, path) = one.split_once('/').unwrap();
    let mut raw = Raw::connect(&one).unwrap();
    assert!(raw.exists(&format!("/{path}")).unwrap().is_some());
}

fn server_keeps_its_data_over_a_kill() {
    let server = Server::start();
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    let mut raw = Raw::connect(&server.connect_string()).unwrap();
    raw.create("/kept", b"data", PERSISTENT).unwrap();
    raw.abandon();
    server.kill();
    assert_eq!(server.mode(), None);
    server.restart();
    let mut raw = Raw::connect(&server.connect_string()).unwrap();
    assert_eq!(raw.get_data("/kept").unwrap().0, b"data");
}

fn paused_server_is_silent_until_it_resumes() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.connect_string()).unwrap();
    server.pause();
    assert!(TcpStream::connect(server.address()).is_ok(), "the kernel still accepts connections");
    let (resumed, answered) = thread::scope(|scope| {
        let ping = scope.spawn(|| {
            raw.ping().unwrap();
            Instant::now()
        });
        thread::sleep(Duration::from_millis(300)); // long enough for an answer, which must not come
        let resumed = Instant::now();
        server.resume();
        (resumed, ping.join().unwrap())
    });
    assert!(answered > resumed);
}

fn server_counts_packets_and_watches() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.connect_string()).unwrap();
    let (received, sent) = server.packets();
    for _ in 0..100 {
        raw.ping().unwrap();
    }
    let (received_later, sent_later) = server.packets();
    assert!(received_later >= received + 100 && sent_later >= sent + 100);
    assert_eq!(server.watches(), 0);
}

fn raw_client_does_what_it_says() {
    let address = Shared::chroot();
    let root = address.split_once('/').map(|(_, path)| format!("/{path}")).unwrap();
    let at = |name: &str| format!("{root}/{name}");
    let mut raw = Raw::connect(&address).unwrap();
    assert_eq!(raw.timeout(), Duration::from_secs(60));
    raw.mkdirs(&at("a/b/c")).unwrap();
    assert_eq!(raw.children(&at("a")).unwrap(), ["b"]);
    assert_eq!(raw.create(&at("a"), b"", PERSISTENT).unwrap_err().code(), Some(raw::NODE_EXISTS));
    assert_eq!(raw.delete(&at("a")).unwrap_err().code(), Some(raw::NOT_EMPTY));
    assert_eq!(raw.create(&at("q-"), b"", SEQUENTIAL).unwrap(), at("q-0000000001"));
    raw.set_data(&at("a"), b"new").unwrap();
    let (data, stat) = raw.get_data(&at("a")).unwrap();
    assert_eq!(
        (data.as_slice(), stat.version, stat.data_length, stat.num_children),
        (&b"new"[..], 1, 3, 1)
    );
    let acl = raw.get_acl(&at("a")).unwrap();
    assert_eq!(
        (acl.len(), acl[0].perms, acl[0].scheme.as_str(), acl[0].id.as_str()),
        (1, 31, "world", "anyone")
    );
    raw.add_auth("user:password").unwrap();
    raw.sync().unwrap();
    raw.create(&at("box"), b"", raw::CONTAINER).unwrap();
    let ephemeral = raw.create(&at("box/e-"), b"", EPHEMERAL_SEQUENTIAL).unwrap();
    assert_eq!(raw.exists(&ephemeral).unwrap().unwrap().ephemeral_owner, raw.session_id());
    let made = raw.create_many(&at("a/n-"), b"", SEQUENTIAL, 1200).unwrap();
    assert_eq!((made.len(), made.is_sorted()), (1200, true));
    raw.delete_recursive(&root).unwrap();
    assert_eq!(raw.exists(&root).unwrap(), None);
}

fn session_closed_by_a_second_connection_loses_its_ephemerals() {
    let address = Shared::chroot();
    let node = format!("/{}/e", address.split_once('/').unwrap().1);
    let mut owner = Raw::connect(&address).unwrap();
    owner.create(&node, b"", EPHEMERAL).unwrap();
    let (id, password) = (owner.session_id(), owner.password().to_vec());
    raw::expire(&address, id, &password).unwrap();
    let mut looker = Raw::connect(&address).unwrap();
    assert_eq!(looker.exists(&node).unwrap(), None);
    assert!(owner.ping().is_err(), "the owner's connection is closed");
    let again = Raw::with_session(&address, id, &password).map(drop);
    assert_eq!(again.unwrap_err().code(), Some(raw::SESSION_EXPIRED));
}

/// A proxy in front of the shared server, a client through it, and a path of the scenario's own.
fn proxied() -> (Proxy, Raw, String) {
    let address = Shared::chroot();
    let (server, path) = address.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap());
    let raw = Raw::connect(&proxy.connect_string()).unwrap();
    (proxy, raw, format!("/{path}"))
}

/// Whether the same path exists, seen without the proxy.
fn exists(path: &str) -> bool {
    Raw::connect(&Shared::connect_string()).unwrap().exists(path).unwrap().is_some()
}

fn proxy_sees_requests_and_sessions() {
    let (proxy, mut raw, path) = proxied();
    assert_eq!(proxy.sessions(), [(raw.session_id(), raw.password().to_vec())]);
    let (created, replied) =
        (proxy.on_request(OpKind::Create.on("/x"), SOON), proxy.on_reply(OpKind::Create, SOON));
    assert!(!created.passed());
    raw.create(&format!("{path}/x"), b"", PERSISTENT).unwrap();
    assert_eq!(created.wait().path.as_deref(), Some(format!("{path}/x").as_str()));
    assert_eq!(replied.wait().opcode, 1);
    raw.ping().unwrap();
    let kinds =
        |proxy: &Proxy| proxy.requests().iter().map(|request| request.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&proxy), [OpKind::Connect, OpKind::Create, OpKind::Ping]);
    assert_eq!(
        (proxy.count(OpKind::Create), proxy.count(OpKind::Create.on("/y")), proxy.connections()),
        (1, 0, 1)
    );
    proxy.clear();
    raw.close_session().unwrap();
    assert_eq!(kinds(&proxy), [OpKind::CloseSession]);
}

fn proxy_carries_four_letter_words() {
    let server: std::net::SocketAddr = Shared::connect_string().parse().unwrap();
    let proxy = Proxy::start_at("127.0.0.1:0".parse().unwrap(), server);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    std::io::Write::write_all(&mut stream, b"mntr").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("zk_version") && answer.ends_with('\n'), "{answer}");
}

fn cut_closes_connections_and_the_session_lives() {
    let (proxy, mut raw, _) = proxied();
    let (id, password) = (raw.session_id(), raw.password().to_vec());
    proxy.cut();
    assert!(raw.ping().is_err());
    assert_eq!(proxy.connections(), 0);
    let mut again = Raw::with_session(&proxy.connect_string(), id, &password).unwrap();
    assert_eq!(again.session_id(), id);
    again.ping().unwrap();
}

fn refuse_refuses_new_connections_and_keeps_the_old() {
    let (proxy, mut raw, _) = proxied();
    proxy.refuse(true);
    assert_eq!(
        TcpStream::connect(proxy.address()).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    raw.ping().unwrap();
    proxy.refuse(false);
    Raw::connect(&proxy.connect_string()).unwrap();
}

fn black_hole_holds_everything_until_it_closes() {
    let (proxy, mut raw, path) = proxied();
    let node = format!("{path}/late");
    proxy.black_hole(true);
    let mut newcomer = TcpStream::connect(proxy.address()).unwrap();
    newcomer.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    thread::scope(|scope| {
        let created = proxy.on_reply(OpKind::Create, SOON);
        let create = scope.spawn(|| raw.create(&node, b"", PERSISTENT));
        assert_eq!(
            newcomer.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "the connection is accepted, but silent"
        );
        assert!(!create.is_finished() && !exists(&node));
        proxy.black_hole(false);
        created.wait();
        create.join().unwrap().unwrap();
    });
    assert!(exists(&node));
}

fn hold_stops_one_direction() {
    let (proxy, mut raw, path) = proxied();
    let node = format!("{path}/there");
    proxy.hold(Direction::ToClient, true);
    thread::scope(|scope| {
        let create = scope.spawn(|| raw.create(&node, b"", PERSISTENT));
        until("the create reaches the server", SOON, || exists(&node).then_some(()));
        assert!(!create.is_finished());
        proxy.hold(Direction::ToClient, false);
        create.join().unwrap().unwrap();
    });
}

fn held_replies_pass_when_they_are_told_to_and_later_ones_wait() {
    let (proxy, mut raw, path) = proxied();
    let nodes = [1, 2, 3].map(|number| format!("{path}/{number}"));
    proxy.clear();
    proxy.hold_replies(true);
    thread::scope(|scope| {
        // The creates go together, and each delete follows the answer to the one before.
        let client = scope.spawn(|| {
            raw.create_at_once(&nodes, PERSISTENT).unwrap();
            nodes.iter().for_each(|node| raw.delete(node).unwrap());
        });
        for sent in [3, 4, 5, 6] {
            until("the flight is sent", SOON, || (proxy.requests().len() == sent).then_some(()));
            until("the replies are at the proxy", SOON, || (proxy.unanswered() == 0).then_some(()));
            assert!(!client.is_finished());
            assert_eq!(proxy.requests().len(), sent);
            proxy.pass_replies();
        }
        client.join().unwrap();
    });
}

fn cut_ends_connections_in_a_black_hole() {
    let (proxy, mut raw, _) = proxied();
    proxy.black_hole(true);
    proxy.cut();
    assert!(raw.ping().is_err());
    proxy.black_hole(false);
    Raw::connect(&proxy.connect_string()).unwrap();
}

fn delay_is_for_each_way() {
    let (proxy, mut raw, _) = proxied();
    proxy.delay(Duration::from_millis(150));
    let start = Instant::now();
    raw.ping().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
    proxy.delay(Duration::ZERO);
}

fn dropped_reply_of_a_create_leaves_the_node_and_a_cut() {
    let (proxy, mut raw, path) = proxied();
    let node = format!("{path}/orphan");
    proxy.drop_reply(OpKind::Create);
    raw.ping().unwrap();
    let replied = proxy.on_reply(OpKind::Create, SOON);
    let failed = raw.create(&node, b"", PERSISTENT).unwrap_err();
    assert_eq!(failed.code(), None, "a cut: {failed}");
    replied.wait();
    assert!(exists(&node));
    assert_eq!((proxy.plans(), proxy.connections()), (0, 0));
}

fn silenced_reply_leaves_the_node_and_an_open_connection() {
    let (proxy, mut raw, path) = proxied();
    let node = format!("{path}/orphan");
    proxy.silence_reply(OpKind::Create.on("orphan"));
    raw.create(&format!("{path}/other"), b"", PERSISTENT).unwrap();
    thread::scope(|scope| {
        let swallowed = proxy.on_reply(OpKind::Create, SOON);
        let create = scope.spawn(|| raw.create(&node, b"", PERSISTENT));
        swallowed.wait();
        assert!(exists(&node) && !create.is_finished());
        Raw::connect(&proxy.connect_string()).unwrap().ping().unwrap(); // other connections work
        proxy.cut();
        assert_eq!(create.join().unwrap().unwrap_err().code(), None);
    });
}

fn frozen_connection_stays_open_and_carries_nothing_while_a_new_one_does() {
    let (proxy, mut raw, path) = proxied();
    proxy.freeze();
    thread::scope(|scope| {
        let create = scope.spawn(|| raw.create(&format!("{path}/frozen"), b"", PERSISTENT));
        let mut other = Raw::connect(&proxy.connect_string()).unwrap();
        other.create(&format!("{path}/well"), b"", PERSISTENT).unwrap();
        assert!(!create.is_finished() && !exists(&format!("{path}/frozen")));
        proxy.cut();
        assert!(create.join().unwrap().is_err());
    });
}

fn half_open_connection_is_closed_for_the_server_alone() {
    let (proxy, mut raw, path) = proxied();
    let (id, password) = (raw.session_id(), raw.password().to_vec());
    proxy.half_open();
    thread::scope(|scope| {
        let create = scope.spawn(|| raw.create(&format!("{path}/unheard"), b"", PERSISTENT));
        // The session works on another connection.
        let mut other = Raw::with_session(&proxy.connect_string(), id, &password).unwrap();
        other.create(&format!("{path}/well"), b"", PERSISTENT).unwrap();
        assert!(!create.is_finished() && !exists(&format!("{path}/unheard")));
        proxy.cut();
        assert!(create.join().unwrap().is_err());
    });
}

fn dropped_request_never_reaches_the_server() {
    let (proxy, mut raw, path) = proxied();
    let node = format!("{path}/never");
    proxy.drop_request(OpKind::Create);
    assert_eq!(raw.create(&node, b"", PERSISTENT).unwrap_err().code(), None);
    assert!(!exists(&node));
    assert_eq!(proxy.count(OpKind::Create), 0);
}

fn injected_bytes_reach_the_client() {
    let (proxy, raw, _) = proxied();
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    let hello = Writer::new().i32(0).i64(0).i32(5000).i64(0).buffer(&[0; 16]).bool(false).frame();
    let connected = proxy.on_reply(OpKind::Connect, SOON);
    std::io::Write::write_all(&mut stream, &hello).unwrap();
    connected.wait();
    proxy.inject(b"garbage");
    let mut reply = vec![0; 4];
    stream.read_exact(&mut reply).unwrap();
    let length = u32::from_be_bytes(reply.try_into().unwrap()) as usize;
    let mut rest = vec![0; length + 7];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(&rest[length..], b"garbage");
    raw.abandon();
}

fn killed_server_ends_the_connections_through_a_proxy() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let mut raw = Raw::connect(&proxy.connect_string()).unwrap();
    let (id, password) = (raw.session_id(), raw.password().to_vec());
    server.kill();
    assert!(raw.ping().is_err());
    assert!(Raw::connect(&proxy.connect_string()).is_err());
    server.restart();
    Raw::with_session(&proxy.connect_string(), id, &password).unwrap().ping().unwrap();
}

/// Isolates a follower and ends the isolation.
fn isolated_follower(how: Isolation) {
    let ensemble = Ensemble::start(3);
    let leader = ensemble.leader();
    let followers = ensemble.followers();
    assert_eq!(followers.len(), 2);
    let (cut_off, other) = (followers[0], followers[1]);
    let mut raw = Raw::connect(&ensemble.member(cut_off).connect_string()).unwrap();
    raw.create("/before", b"", PERSISTENT).unwrap();

    ensemble.isolate(cut_off, how);
    until("the isolated follower stops serving", Duration::from_secs(30), || {
        (!ensemble.serves(cut_off)).then_some(())
    });
    until("the follower's clients are cut", SOON, || raw.ping().is_err().then_some(()));
    raw.abandon();
    assert_eq!(ensemble.leader(), leader);
    let mut there = Raw::connect(&ensemble.member(other).connect_string()).unwrap();
    there.create("/meanwhile", b"", PERSISTENT).unwrap();
    assert!(!ensemble.serves(cut_off));

    ensemble.heal(cut_off);
    until("the healed follower serves", Duration::from_secs(30), || {
        ensemble.serves(cut_off).then_some(())
    });
    let mut raw = Raw::connect(&ensemble.member(cut_off).connect_string()).unwrap();
    raw.sync().unwrap();
    assert!(
        raw.exists("/before").unwrap().is_some() && raw.exists("/meanwhile").unwrap().is_some()
    );
}

fn follower_in_a_black_hole_stops_serving_and_recovers() {
    isolated_follower(Isolation::BlackHole);
}

fn follower_cut_off_stops_serving_and_recovers() {
    isolated_follower(Isolation::Cut);
}

fn isolated_leader_is_replaced_and_follows_after_healing() {
    let ensemble = Ensemble::start(3);
    let deposed = ensemble.leader();
    ensemble.isolate(deposed, Isolation::BlackHole);
    let elected = until("another leader", Duration::from_secs(30), || {
        Some(ensemble.leader()).filter(|leader| *leader != deposed)
    });
    until("the deposed leader stops serving", Duration::from_secs(30), || {
        (!ensemble.serves(deposed)).then_some(())
    });
    ensemble.heal(deposed);
    until("the deposed leader follows", Duration::from_secs(30), || {
        ensemble.followers().contains(&deposed).then_some(())
    });
    assert_eq!(ensemble.leader(), elected);
}

fn server_on_a_full_disk_takes_no_write_and_has_lost_nothing_after_its_restart() {
    let alone = Ensemble::start(1);
    let mut raw = Raw::connect(&alone.connect_string()).unwrap();
    raw.create("/before", b"", PERSISTENT).unwrap();
    alone.fill_disk(0);
    assert!(raw.create("/on-a-full-disk", b"", PERSISTENT).is_err());
    until("the server gives up", SOON, || alone.member(0).mode().is_none().then_some(()));
    alone.member(0).restart();
    let mut raw = Raw::connect(&alone.connect_string()).unwrap();
    assert!(raw.exists("/before").unwrap().is_some());
    assert!(raw.exists("/on-a-full-disk").unwrap().is_none());
    raw.create("/after", b"", PERSISTENT).unwrap();
}

fn ensemble_survives_a_killed_member_and_takes_it_back() {
    let ensemble = Ensemble::start_with(
        3,
        Server::real().tick(Duration::from_secs(2)).min_session(Duration::from_secs(4)),
    );
    let mut raw = Raw::connect_timeout(&ensemble.connect_string(), Duration::from_secs(1)).unwrap();
    assert_eq!(raw.timeout(), Duration::from_secs(4), "the shortest timeout allowed");
    raw.ping().unwrap();
    drop(raw);
    let leader = ensemble.leader();
    ensemble.member(leader).kill();
    assert_ne!(ensemble.leader(), leader);
    ensemble.member(leader).restart();
    assert!(ensemble.followers().contains(&leader));
}

scenarios![
    runner_fails_what_panics_dies_hangs_or_leaves_something_behind on none,
    one_switch_chooses_the_server_and_the_run_says_what_it_leaves_out on none,
    // Only Java is a process of its own.
    java_dies_with_a_test_process_that_is_killed on real,
    shared_server_gives_each_scenario_a_chroot_of_its_own,
    server_keeps_its_data_over_a_kill,
    paused_server_is_silent_until_it_resumes,
    server_counts_packets_and_watches,
    raw_client_does_what_it_says,
    session_closed_by_a_second_connection_loses_its_ephemerals,
    proxy_sees_requests_and_sessions,
    proxy_carries_four_letter_words,
    cut_closes_connections_and_the_session_lives,
    refuse_refuses_new_connections_and_keeps_the_old,
    black_hole_holds_everything_until_it_closes,
    hold_stops_one_direction,
    held_replies_pass_when_they_are_told_to_and_later_ones_wait,
    cut_ends_connections_in_a_black_hole,
    delay_is_for_each_way,
    dropped_reply_of_a_create_leaves_the_node_and_a_cut,
    silenced_reply_leaves_the_node_and_an_open_connection,
    frozen_connection_stays_open_and_carries_nothing_while_a_new_one_does,
    half_open_connection_is_closed_for_the_server_alone,
    dropped_request_never_reaches_the_server,
    injected_bytes_reach_the_client,
    killed_server_ends_the_connections_through_a_proxy,
    // Only real servers form ensembles.
    follower_in_a_black_hole_stops_serving_and_recovers on real,
    follower_cut_off_stops_serving_and_recovers on real,
    isolated_leader_is_replaced_and_follows_after_healing on real,
    server_on_a_full_disk_takes_no_write_and_has_lost_nothing_after_its_restart on real,
    ensemble_survives_a_killed_member_and_takes_it_back on real,
];
