//! MariaDB, from Debian, by its client `mariadb`, for the statements of MySQL.

use std::process::Command;

use zk_mutex::FencingToken;

use crate::accounts::{Accounts, hex, of_hex, takes_each_token_that_is_not_older, token};
use crate::chapter::statement;
use crate::client::{BY_SELECT, Client};
use crate::server::{Directory, Server, prepare};

/// The row that is there before the first write, as the chapter says.
const ROW: &str = "INSERT IGNORE INTO accounts (id, balance) VALUES (7, 0)";

/// How many transactions wait for another.
const WAITING: &str =
    "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";

fn start() -> Server {
    let directory = Directory::new("zk-my");
    let data = format!("--datadir={}", directory.file("data"));
    let arguments =
        ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
    prepare("mariadb-install-db", &arguments, &directory);
    let socket = format!("--socket={}", directory.file("socket"));
    let arguments = [
        "--no-defaults",
        &data,
        &socket,
        "--skip-networking",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=32M",
        "--innodb-lock-wait-timeout=300",
    ];
    Server::start("/usr/sbin/mariadbd", &arguments, "TERM", directory, |directory| {
        let socket = format!("--socket={}", directory.file("socket"));
        let ask = ["--no-defaults", &socket, "--user=root", "--execute=CREATE DATABASE tests"];
        Command::new("mariadb").args(ask).output().expect("mariadb").status.success()
    })
}

fn connect(server: &Server) -> Client {
    let socket = format!("--socket={}", server.directory().file("socket"));
    let arguments = [
        "--no-defaults",
        &socket,
        "--user=root",
        "--batch",
        "--skip-column-names",
        "--unbuffered",
        "--force",
        "tests",
    ];
    Client::start("mariadb", &arguments, BY_SELECT)
}

/// Prepares this statement of the chapter under this name.
fn prepare_as(client: &mut Client, name: &str, block: &str) {
    client.run(&format!("PREPARE {name} FROM '{}'", statement(block)));
}

fn write(balance: i64, token: FencingToken) -> String {
    let fence = hex(token);
    format!(
        "SET @id = 7, @balance = {balance}, @fence = X'{fence}';
         EXECUTE write_it USING @balance, @fence, @id, @fence; SELECT ROW_COUNT()"
    )
}

fn claim(token: FencingToken) -> String {
    let fence = hex(token);
    format!(
        "SET @id = 7, @fence = X'{fence}';
         EXECUTE claim USING @fence, @id, @fence; SELECT ROW_COUNT()"
    )
}

/// Whether the count says that a row was changed.
#[track_caller]
fn has_written(answer: &str) -> bool {
    match answer {
        "1" => true,
        "0" => false,
        _ => panic!("{answer}"),
    }
}

struct Table(Client);

impl Table {
    fn new(server: &Server) -> Self {
        let mut client = connect(server);
        client.run(statement("MySQL: the table"));
        prepare_as(&mut client, "write_it", "MySQL: write");
        prepare_as(&mut client, "claim", "MySQL: claim");
        let mut table = Table(client);
        table.renew();
        table
    }
}

impl Accounts for Table {
    fn renew(&mut self) {
        self.0.run(&format!("DELETE FROM accounts; {ROW}; {ROW}"));
    }

    fn write(&mut self, balance: i64, token: FencingToken) -> bool {
        has_written(&self.0.run(&write(balance, token)))
    }

    fn read(&mut self) -> (i64, FencingToken) {
        let row = self.0.run("SELECT balance, HEX(fence) FROM accounts WHERE id = 7");
        let (balance, fence) = row.split_once('\t').expect("two columns");
        (balance.parse().expect("a balance"), of_hex(fence))
    }
}

#[test]
#[ignore = "needs MariaDB: run tests/stores"]
fn the_statements_for_mysql_do_on_mariadb_what_the_chapter_says() {
    let server = start();
    let mut table = Table::new(&server);
    takes_each_token_that_is_not_older(&mut table, "MariaDB");
    a_late_writer_waits_and_is_refused(&server, &mut table);
    a_snapshot_that_is_kept_is_an_error_and_no_refusal(&server, &mut table);
    a_claim_keeps_older_writers_out(&mut table);
    without_the_column_a_write_of_the_same_is_counted_as_none(&mut table);
}

/// A newer holder has written and not committed. What becomes of a write that is late?
fn a_late_writer_waits_and_is_refused(server: &Server, newer: &mut Table) {
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        newer.renew();
        assert!(newer.write(1, token(1, 0)));
        let (mut late, mut third) = (connect(server), connect(server));
        prepare_as(&mut late, "write_it", "MySQL: write");
        late.run("SET innodb_snapshot_isolation = OFF");
        late.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}; BEGIN"));
        if isolation != "SERIALIZABLE" {
            late.run("SELECT balance FROM accounts"); // its snapshot is of before
        }
        newer.0.run("BEGIN");
        assert!(newer.write(3, token(3, 0)));
        late.send(&write(2, token(2, 0)));
        third.run_until(WAITING, "1");
        newer.0.run("COMMIT");
        assert_eq!(late.answer(), ["0"], "{isolation}");
        late.run("COMMIT");
        assert_eq!(newer.read(), (3, token(3, 0)), "{isolation}");
    }
}

/// With its `innodb_snapshot_isolation` MariaDB gives an error in place of an answer.
fn a_snapshot_that_is_kept_is_an_error_and_no_refusal(server: &Server, newer: &mut Table) {
    newer.renew();
    let mut late = connect(server);
    prepare_as(&mut late, "write_it", "MySQL: write");
    late.run("SET innodb_snapshot_isolation = ON");
    late.run("BEGIN; SELECT balance FROM accounts");
    assert!(newer.write(3, token(3, 0)));
    let answer = late.ask(&write(2, token(2, 0)));
    assert!(answer.iter().any(|line| line.contains("ERROR 1020")), "{answer:?}");
    late.run("ROLLBACK; BEGIN");
    assert!(!has_written(&late.run(&write(2, token(2, 0)))), "again");
    late.run("COMMIT");
    assert_eq!(newer.read(), (3, token(3, 0)));
}

fn a_claim_keeps_older_writers_out(table: &mut Table) {
    table.renew();
    assert!(table.write(5, token(1, 0)));
    assert!(has_written(&table.0.run(&claim(token(2, 0)))));
    assert!(has_written(&table.0.run(&claim(token(2, 0)))), "once more");
    assert!(!table.write(6, token(1, 0)), "before the next holder has written");
    assert!(!has_written(&table.0.run(&claim(token(1, 0)))));
    assert_eq!(table.read(), (5, token(2, 0)));
}

/// The warning of the chapter.
fn without_the_column_a_write_of_the_same_is_counted_as_none(table: &mut Table) {
    table.renew();
    assert!(table.write(1, token(1, 0)));
    let fence = hex(token(1, 0));
    let same = format!("UPDATE accounts SET balance = 1, fence = X'{fence}' WHERE id = 7");
    assert_eq!(table.0.run(&format!("{same}; SELECT ROW_COUNT()")), "0");
}
