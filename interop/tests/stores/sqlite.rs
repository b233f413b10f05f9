//! SQLite, from the crate `rusqlite`.

use rusqlite::{Connection, Error, ToSql, named_params};
use zk_mutex::FencingToken;

use crate::accounts::{Accounts, takes_each_token_that_is_not_older, token};
use crate::chapter::statement;

/// A table in memory.
struct Table {
    database: Connection,
    table: &'static str,
    row: &'static str,
    write: &'static str,
    fence: Fence,
}

/// How the table keeps a token.
#[derive(Clone, Copy)]
enum Fence {
    Bytes,
    TwoNumbers,
}

impl Table {
    fn new(table: &str, row: &'static str, write: &str, fence: Fence) -> Self {
        let (table, write) = (statement(table), statement(write));
        let database = Connection::open_in_memory().unwrap();
        let mut table = Table { database, table, row, write, fence };
        table.renew();
        table
    }

    fn of_bytes() -> Self {
        Table::new("SQLite: the table", ROW, "SQLite: write", Fence::Bytes)
    }
}

/// The row that is there before the first write.
const ROW: &str = "INSERT INTO accounts (id, balance) VALUES (7, 0)";

impl Accounts for Table {
    fn renew(&mut self) {
        let (table, row) = (self.table, self.row);
        let anew = format!("DROP TABLE IF EXISTS accounts; {table}; {row}");
        self.database.execute_batch(&anew).unwrap();
    }

    fn write(&mut self, balance: i64, token: FencingToken) -> bool {
        let bytes = token.to_bytes();
        let (zxid, hand_over) = (token.zxid(), token.hand_overs().cast_signed());
        let parameters: &[(&str, &dyn ToSql)] = match self.fence {
            Fence::Bytes => named_params! { ":id": 7, ":balance": balance, ":fence": bytes },
            Fence::TwoNumbers => {
                named_params! { "$1": 7, "$2": balance, "$3": zxid, "$4": hand_over }
            }
        };
        self.database.execute(self.write, parameters).unwrap() == 1
    }

    fn read(&mut self) -> (i64, FencingToken) {
        let columns = match self.fence {
            Fence::Bytes => "balance, fence",
            Fence::TwoNumbers => "balance, zxid, hand_over",
        };
        let read = format!("SELECT {columns} FROM accounts WHERE id = 7");
        let of_row = |row: &rusqlite::Row<'_>| {
            let kept = match self.fence {
                Fence::Bytes => FencingToken::from_bytes(row.get(1)?),
                Fence::TwoNumbers => token(row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned()),
            };
            Ok((row.get(0)?, kept))
        };
        self.database.query_row(&read, [], of_row).unwrap()
    }
}

#[test]
fn the_table_takes_each_token_that_is_not_older() {
    takes_each_token_that_is_not_older(&mut Table::of_bytes(), "SQLite");
}

#[test]
fn the_statement_that_also_makes_the_row_takes_each_token_that_is_not_older() {
    let write = "SQLite: write, also where there is no row";
    let mut table = Table::new("SQLite: the table", "", write, Fence::Bytes);
    takes_each_token_that_is_not_older(&mut table, write);
}

#[test]
fn two_numbers_are_compared_as_a_pair() {
    let (table, write) = ("Two BIGINTs: the table", "Two BIGINTs: write");
    takes_each_token_that_is_not_older(
        &mut Table::new(table, ROW, write, Fence::TwoNumbers),
        write,
    );
}

#[test]
fn a_claim_reads_and_keeps_older_writers_out() {
    let mut table = Table::of_bytes();
    assert!(table.write(5, token(1, 0)));
    let claim = |table: &Table, fence: FencingToken| {
        let parameters = named_params! { ":id": 7, ":fence": fence.to_bytes() };
        let claim = statement("SQLite: claim and read");
        table.database.query_row(claim, parameters, |row| row.get::<_, i64>(0))
    };
    assert_eq!(claim(&table, token(2, 0)), Ok(5));
    assert!(!table.write(6, token(1, 0)), "before the next holder has written");
    assert_eq!(claim(&table, token(1, 0)), Err(Error::QueryReturnedNoRows));
    assert_eq!(table.read(), (5, token(2, 0)));
}

#[test]
fn a_row_that_is_missing_takes_no_write() {
    let mut table = Table::new("SQLite: the table", "", "SQLite: write", Fence::Bytes);
    assert!(!table.write(1, token(1, 0)));
}

#[test]
fn a_fence_that_is_text_does_not_get_in() {
    let mut table = Table::of_bytes();
    let text = named_params! { ":id": 7, ":balance": 1, ":fence": "0123456789abcdef" };
    assert_eq!(table.database.execute(statement("SQLite: write"), text), Ok(0));
    let write = statement("SQLite: write, also where there is no row");
    let why = table.database.execute(write, text).unwrap_err();
    assert!(why.to_string().contains("CHECK"), "{why}");
    assert_eq!(table.read(), (0, FencingToken::from_bytes([0; 16])));
}
