//! The SQL statements of the guide's chapter on fencing, taken from the chapter, on the stores that
//! it names. `cargo test` runs SQLite, which comes with a crate; `tests/stores` installs PostgreSQL
//! and MariaDB, and runs all. Each server has a directory of its own and listens on a socket in it.

mod accounts;
mod chapter;
mod client;
mod mariadb;
mod postgresql;
mod server;
mod sqlite;
