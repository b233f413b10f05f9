//! The chapters of the guide: text to read, with no code of the library. Each begins with its
//! answer in three lines.
//!
//! If you write a program that locks, read these first, in this order. They take half an hour:
//!
//! | chapter | the question | minutes |
//! | --- | --- | --- |
//! | [`migration`] | what differs dangerously from the locks that I know (its first table) | 5 |
//! | [`which_lock`] | which lock do I need; what do ZooKeeper's words mean | 6 |
//! | [`faults`] | what do my holder and my waiter see of each fault, and what do they do | 5 |
//! | [`fencing`] | how does my database or S3 refuse a holder that comes too late | 6, and your store |
//! | [`errors`] | what does this error mean, and what do I do | look it up |
//! | [`testing`] | how do I test that | 4 |
//!
//! Before you run it in production, read on:
//!
//! | chapter | the question | minutes |
//! | --- | --- | --- |
//! | [`operations`] | session timeout, ACLs, TLS, metrics, logs; limits | 10 |
//! | [`stuck`] | a lock is not released: whom do I ask or end, in which order | 3 |
//! | [`sasl`] | how does a session log in by a password or by Kerberos | 4 |
//! | [`deployment`] | what do I give to systemd, Kubernetes and ZooKeeper, and which figures for which T | 10 |
//! | [`guarantees`] | what do the locks promise, and what must be true of the servers for that | 10 |
//! | [`costs`] | what does each operation send, how fast is it, what do 10,000 sessions cost | look it up |
//!
//! These are for those who need them:
//!
//! | chapter | the question | minutes |
//! | --- | --- | --- |
//! | [`interop`] | which programs in other languages can share a lock with mine | 2 |
//! | [`forks`] | what does a program that forks have to know | 3 |
//! | [`comparison`] | would Curator, etcd, Consul, Redis, PostgreSQL or a file lock be better | 6 |

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("which_lock.md")]
pub mod which_lock {}

#[doc = include_str!("faults.md")]
pub mod faults {}

#[doc = include_str!("fencing.md")]
pub mod fencing {}

#[doc = include_str!("errors.md")]
pub mod errors {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("operations.md")]
pub mod operations {}

#[doc = include_str!("stuck.md")]
pub mod stuck {}

#[doc = include_str!("deployment.md")]
pub mod deployment {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("costs.md")]
#[doc = ""]
#[doc = include_str!("peers.md")]
#[doc = include_str!("fleet.md")]
#[doc = include_str!("measured.md")]
pub mod costs {}

#[doc = include_str!("comparison.md")]
pub mod comparison {}

#[doc = include_str!("interop.md")]
pub mod interop {}

#[doc = include_str!("sasl.md")]
pub mod sasl {}

#[doc = include_str!("forks.md")]
pub mod forks {}
