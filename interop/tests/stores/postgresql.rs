//! PostgreSQL, from Debian, by its client `psql`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use zk_mutex::FencingToken;

use crate::accounts::{Accounts, hex, of_hex, takes_each_token_that_is_not_older, token};
use crate::chapter::statement;
use crate::client::{BY_ECHO, Client};
use crate::server::{Directory, Server, prepare};

/// The row that is there before the first write.
const ROW: &str = "INSERT INTO accounts (id, balance) VALUES (7, 0)";

/// A program of the server's package: Debian has a directory for each version.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin").join(name));
    let newest = programs.filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| PathBuf::from(name)).into_os_string().into_string().expect("UTF-8")
}

fn start() -> Server {
    let directory = Directory::new("zk-pg");
    let (data, socket) = (directory.file("data"), directory.file(""));
    let arguments =
        ["-D", &data, "-U", "tester", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"];
    prepare(&program("initdb"), &arguments, &directory);
    let arguments = ["-D", &data, "-k", &socket, "-c", "listen_addresses=", "-F", "-N", "16"];
    Server::start(&program("postgres"), &arguments, "INT", directory, |directory| {
        let ask = ["-h", &directory.file(""), "-U", "tester", "-c", "SELECT 1", "postgres"];
        Command::new("psql").args(ask).output().expect("psql").status.success()
    })
}

fn connect(server: &Server) -> Client {
    let socket = server.directory().file("");
    let errors = "VERBOSITY=verbose"; // with their SQLSTATE
    let arguments = ["-X", "-A", "-t", "-v", errors, "-h", &socket, "-U", "tester", "postgres"];
    let mut client = Client::start("psql", &arguments, BY_ECHO);
    client.run("SET client_min_messages = warning");
    client
}

/// Prepares this statement of the chapter under this name.
fn prepare_as(client: &mut Client, name: &str, block: &str) {
    client.run(&format!("PREPARE {name} AS {}", statement(block)));
}

/// How a table keeps a token.
#[derive(Clone, Copy)]
enum Fence {
    Bytes,
    Number,
    TwoNumbers,
}

impl Fence {
    /// A token as arguments of `EXECUTE`.
    fn of(self, token: FencingToken) -> String {
        match self {
            Fence::Bytes => format!(r"'\x{}'", hex(token)),
            Fence::Number => format!("'{}'", u128::from_be_bytes(token.to_bytes())),
            Fence::TwoNumbers => format!("{}, {}", token.zxid(), token.hand_overs()),
        }
    }

    /// What reads a token from the table as text.
    fn column(self) -> &'static str {
        match self {
            Fence::Bytes => "encode(fence, 'hex')",
            Fence::Number => "fence::text",
            Fence::TwoNumbers => "zxid || '.' || hand_over",
        }
    }

    fn read(self, text: &str) -> FencingToken {
        match self {
            Fence::Bytes => of_hex(text),
            Fence::Number => {
                FencingToken::from_bytes(text.parse::<u128>().expect("a number").to_be_bytes())
            }
            Fence::TwoNumbers => {
                let (zxid, hand_over) = text.split_once('.').expect("two numbers");
                token(zxid.parse().expect("a zxid"), hand_over.parse().expect("a number"))
            }
        }
    }
}

struct Table {
    client: Client,
    row: &'static str,
    fence: Fence,
}

impl Table {
    fn new(server: &Server, table: &str, row: &'static str, write: &str, fence: Fence) -> Self {
        let mut client = connect(server);
        client.run("DROP TABLE IF EXISTS accounts");
        client.run(statement(table));
        prepare_as(&mut client, "write", write);
        let mut table = Table { client, row, fence };
        table.renew();
        table
    }
}

impl Accounts for Table {
    fn renew(&mut self) {
        self.client.run(&format!("TRUNCATE accounts; {}", self.row));
    }

    fn write(&mut self, balance: i64, token: FencingToken) -> bool {
        has_written(&self.client.run(&write(balance, &self.fence.of(token))))
    }

    fn read(&mut self) -> (i64, FencingToken) {
        let column = self.fence.column();
        let row = self.client.run(&format!("SELECT balance, {column} FROM accounts WHERE id = 7"));
        let (balance, fence) = row.split_once('|').expect("two columns");
        (balance.parse().expect("a balance"), self.fence.read(fence))
    }
}

fn write(balance: i64, fence: &str) -> String {
    format!("EXECUTE write (7, {balance}, {fence})")
}

/// Whether the count says that a row was changed.
#[track_caller]
fn has_written(answer: &str) -> bool {
    match answer {
        "UPDATE 1" | "INSERT 0 1" => true,
        "UPDATE 0" | "INSERT 0 0" => false,
        _ => panic!("{answer}"),
    }
}

#[test]
#[ignore = "needs PostgreSQL: run tests/stores"]
fn the_statements_for_postgresql_do_what_the_chapter_says() {
    let server = start();
    let bytes = ("PostgreSQL: the table", ROW, "PostgreSQL: write", Fence::Bytes);
    let number =
        ("PostgreSQL, numeric: the table", ROW, "PostgreSQL, numeric: write", Fence::Number);
    let makes_row = (bytes.0, "", "PostgreSQL: write, also where there is no row", Fence::Bytes);
    let two = ("Two BIGINTs: the table", ROW, "Two BIGINTs: write", Fence::TwoNumbers);
    for (table, row, write, fence) in [bytes, number, makes_row, two] {
        let mut accounts = Table::new(&server, table, row, write, fence);
        takes_each_token_that_is_not_older(&mut accounts, write);
        a_late_writer_waits_and_is_refused(&server, &mut accounts, write, fence);
    }
    let mut table = Table::new(&server, bytes.0, ROW, bytes.2, Fence::Bytes);
    a_claim_reads_and_keeps_older_writers_out(&mut table);
    a_condition_on_another_table_is_no_fence(&server, &mut table);
    a_zxid_alone_tells_nodes_apart_and_no_hand_overs(&server);
    the_fence_of_a_lock_protects_all_its_rows(&server);
    a_holder_that_is_idle_in_its_transaction_is_ended(&server);
    a_run_is_done_once_in_each_period(&server);
}

/// A newer holder has written and not committed. What becomes of a write that is late?
fn a_late_writer_waits_and_is_refused(
    server: &Server,
    newer: &mut Table,
    statement: &str,
    fence: Fence,
) {
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        newer.renew();
        assert!(newer.write(1, token(1, 0)));
        let (mut late, mut third) = (connect(server), connect(server));
        prepare_as(&mut late, "write", statement);
        late.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
        late.run("SELECT balance FROM accounts"); // its snapshot is of before
        newer.client.run("BEGIN");
        assert!(newer.write(3, token(3, 0)));
        late.send(&write(2, &fence.of(token(2, 0))));
        third.run_until("SELECT count(*) FROM pg_locks WHERE NOT granted", "1");
        newer.client.run("COMMIT");
        let answer = late.answer();
        let first = answer.first().expect("a line");
        if isolation == "READ COMMITTED" {
            assert!(!has_written(first), "{statement}");
            late.run("COMMIT");
        } else {
            assert!(first.contains("ERROR:  40001"), "{statement}, {isolation}: {answer:?}");
            late.ask("ROLLBACK");
            late.run(&format!("BEGIN ISOLATION LEVEL {isolation}"));
            assert!(!has_written(&late.run(&write(2, &fence.of(token(2, 0))))), "again");
            late.run("COMMIT");
        }
        assert_eq!(newer.read(), (3, token(3, 0)), "{statement}, {isolation}");
    }
}

fn a_claim_reads_and_keeps_older_writers_out(table: &mut Table) {
    prepare_as(&mut table.client, "claim", "PostgreSQL: claim and read");
    table.renew();
    assert!(table.write(5, token(1, 0)));
    let claim = |fence| format!("EXECUTE claim (7, {})", Fence::Bytes.of(fence));
    assert_eq!(table.client.ask(&claim(token(2, 0))), ["5", "UPDATE 1"]);
    assert!(!table.write(6, token(1, 0)), "before the next holder has written");
    assert_eq!(table.client.ask(&claim(token(1, 0))), ["UPDATE 0"]);
    assert_eq!(table.read(), (5, token(2, 0)));
}

/// The warning of the chapter: a condition on another table lets a late writer in.
fn a_condition_on_another_table_is_no_fence(server: &Server, newer: &mut Table) {
    newer.renew();
    newer.client.run(statement("PostgreSQL: the table of the locks"));
    newer.client.run("INSERT INTO fences (path) VALUES ('/locks/7')");
    let (mut late, mut third) = (connect(server), connect(server));
    newer.client.run("BEGIN");
    let fence = Fence::Bytes.of(token(3, 0));
    newer.client.run(&format!("UPDATE fences SET fence = {fence}"));
    newer.client.run("UPDATE accounts SET balance = 3");
    late.send(&format!(
        "UPDATE accounts SET balance = 2 WHERE id = 7 AND EXISTS
         (SELECT FROM fences WHERE path = '/locks/7' AND fence <= {})",
        Fence::Bytes.of(token(2, 0))
    ));
    third.run_until("SELECT count(*) FROM pg_locks WHERE NOT granted", "1");
    newer.client.run("COMMIT");
    assert_eq!(late.answer(), ["UPDATE 1"], "it is no longer as the chapter warns");
    newer.client.run("DROP TABLE fences");
}

fn a_zxid_alone_tells_nodes_apart_and_no_hand_overs(server: &Server) {
    let mut client = connect(server);
    client.run("DROP TABLE accounts");
    client.run(statement("BIGINT: the table"));
    client.run(ROW);
    prepare_as(&mut client, "write", "BIGINT: write");
    let mut writes =
        |token: FencingToken| has_written(&client.run(&write(1, &token.zxid().to_string())));
    assert!(writes(token(0x2_0000_0017, 2)));
    assert!(!writes(token(0x2_0000_0016, 5)), "an older node");
    assert!(writes(token(0x2_0000_0017, 1)), "an earlier holder of this node: this is lost");
    assert!(writes(token(i64::MAX, 0)));
    assert!(!writes(token(0x2_0000_0017, 3)));
}

fn the_fence_of_a_lock_protects_all_its_rows(server: &Server) {
    let block = "PostgreSQL: begin a transaction under a lock";
    let (mut newer, mut late, mut third) = (connect(server), connect(server), connect(server));
    newer.run(statement("PostgreSQL: the table of the locks"));
    let claim = |path: &str, fence: FencingToken| {
        format!("EXECUTE claim ('{path}', {})", Fence::Bytes.of(fence))
    };
    for client in [&mut newer, &mut late] {
        prepare_as(client, "claim", block);
        client.run("BEGIN");
    }
    // The first claim makes the row, the second one finds it.
    for fence in [token(3, 0), token(5, 0)] {
        assert_eq!(newer.run(&claim("/locks/7", fence)), "INSERT 0 1");
        late.send(&claim("/locks/7", token(2, 0)));
        third.run_until("SELECT count(*) FROM pg_locks WHERE NOT granted", "1");
        newer.run("COMMIT");
        assert_eq!(late.answer(), ["INSERT 0 0"]);
        late.run("ROLLBACK");
        for client in [&mut newer, &mut late] {
            client.run("BEGIN");
        }
    }
    assert_eq!(late.run(&claim("/locks/8", token(2, 0))), "INSERT 0 1", "of another lock");
}

fn a_holder_that_is_idle_in_its_transaction_is_ended(server: &Server) {
    let block = "PostgreSQL: begin a transaction under a lock";
    let (mut paused, mut next) = (connect(server), connect(server));
    let claim =
        |fence: FencingToken| format!("EXECUTE claim ('/idle', {})", Fence::Bytes.of(fence));
    for client in [&mut paused, &mut next] {
        prepare_as(client, "claim", block);
    }
    paused.run("SET idle_in_transaction_session_timeout = '300ms'");
    paused.run("BEGIN");
    assert_eq!(paused.run(&claim(token(1, 0))), "INSERT 0 1");
    assert_eq!(next.run(&claim(token(2, 0))), "INSERT 0 1", "it waits for the end of the other");
}

fn a_run_is_done_once_in_each_period(server: &Server) {
    let mut client = connect(server);
    client.run(statement("PostgreSQL: the table of runs"));
    prepare_as(&mut client, "begin_run", "PostgreSQL: begin a run");
    prepare_as(&mut client, "end_run", "PostgreSQL: end a run");
    let mut run = |what: &str, day: u32, fence: FencingToken| {
        let fence = Fence::Bytes.of(fence);
        client.run(&format!("EXECUTE {what} ('nightly', '2026-11-{day:02}', {fence})"))
    };
    assert_eq!(run("begin_run", 1, token(1, 0)), "INSERT 0 1");
    assert_eq!(
        run("begin_run", 1, token(1, 0)),
        "INSERT 0 1",
        "the same holder, whose answer was lost"
    );
    assert_eq!(run("begin_run", 1, token(2, 0)), "INSERT 0 1", "the next holder after a crash");
    assert_eq!(run("begin_run", 1, token(1, 0)), "INSERT 0 0", "late");
    assert_eq!(run("end_run", 1, token(1, 0)), "UPDATE 0", "late");
    assert_eq!(run("end_run", 1, token(2, 0)), "UPDATE 1");
    assert_eq!(run("end_run", 1, token(2, 0)), "UPDATE 1", "the same holder again");
    assert_eq!(run("begin_run", 1, token(3, 0)), "INSERT 0 0", "it is done");
    assert_eq!(run("begin_run", 2, token(3, 0)), "INSERT 0 1", "the next period");
}
