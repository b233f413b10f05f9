//! Several writes that the server does together, or not at all.

use super::{CHECK, DELETE, MULTI, Requests, WRITE, create_of, wait};
use crate::acl::Acl;
use crate::error::{Error, Result};
use crate::machine::codec::{CallError, CreateMode, Operation, Reply};
use zk_wire::code::{err, op};
use zk_wire::record::Stat;

/// One operation of a [`multi`](Requests::multi). Paths are as in all requests.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Op<'a> {
    /// As [`Requests::create`].
    Create {
        /// The node.
        path: &'a str,
        /// Its data.
        data: &'a [u8],
        /// The kind of node.
        mode: CreateMode,
        /// Its access control list.
        acl: &'a Acl,
    },
    /// As [`Requests::delete`].
    Delete {
        /// The node.
        path: &'a str,
        /// The version that its data must have, if it must have one.
        version: Option<i32>,
    },
    /// As [`Requests::set`].
    Set {
        /// The node.
        path: &'a str,
        /// Its new data.
        data: &'a [u8],
        /// The version that its data must have, if it must have one.
        version: Option<i32>,
    },
    /// Changes nothing: the node must exist and, with a `version`, its data must have this version.
    /// Otherwise the multi is refused.
    Check {
        /// The node.
        path: &'a str,
        /// The version that its data must have, if it must have one.
        version: Option<i32>,
    },
}

/// What an operation of a [`multi`](Requests::multi) has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpOutcome {
    /// The node was made.
    Created {
        /// Its path; of a sequential node with its number.
        path: String,
        /// What the server says of it. Before version 3.9 ZooKeeper says nothing here of nodes that
        /// are persistent or end with the session.
        stat: Option<Stat>,
    },
    /// The node was deleted.
    Deleted,
    /// The data was replaced; the `Stat` after that.
    Set(Stat),
    /// The node is as it was to be.
    Checked,
}

impl Requests {
    /// Does all of these operations, or none. No other client sees a state in between. Gives what
    /// each has done, in their order. A later operation finds what an earlier one has done.
    ///
    /// ```no_run
    /// # fn main() -> zk_session::Result<()> {
    /// # let zk = zk_session::Session::connect("zk1:2181")?.requests();
    /// use zk_session::{Acl, CreateMode, Error, Op};
    ///
    /// // A job moves from one folder to another, unless the jobs were stopped meanwhile.
    /// let running = zk.get("/running")?;
    /// let job = zk.get("/todo/17")?;
    /// let moved = zk.multi(&[
    ///     Op::Check { path: "/running", version: Some(running.stat.version) },
    ///     Op::Delete { path: "/todo/17", version: Some(job.stat.version) },
    ///     Op::Create {
    ///         path: "/done/17",
    ///         data: &job.data,
    ///         mode: CreateMode::Persistent,
    ///         acl: &Acl::Open,
    ///     },
    /// ]);
    /// match moved {
    ///     Err(Error::MultiRefused { index: 0, .. }) => println!("they were stopped"),
    ///     moved => println!("{:?}", moved?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::MultiRefused`] names the first operation that the server refused, with the error
    /// that it would have alone. Nothing was done then. A multi is a write: see [`Requests`] for
    /// what an outage means to it, and for the errors of all calls.
    pub fn multi(&self, operations: &[Op<'_>]) -> Result<Vec<OpOutcome>> {
        let paths = operations.iter().map(|operation| match operation {
            Op::Create { path, mode, .. } => self.to_create(path, *mode),
            Op::Delete { path, .. } | Op::Set { path, .. } | Op::Check { path, .. } => {
                self.full(path)
            }
        });
        let paths = paths.collect::<Result<Vec<String>>>()?;
        let parts = operations.iter().zip(&paths).map(|(operation, path)| match *operation {
            Op::Create { data, mode, acl, .. } => Operation::Create { path, data, acl, mode },
            Op::Delete { version, .. } => Operation::Delete { path, version },
            Op::Set { data, version, .. } => Operation::SetData { path, data, version },
            Op::Check { version, .. } => Operation::Check { path, version },
        });
        let parts: Vec<Operation<'_>> = parts.collect();
        let shown = operations.first().map_or("", Op::path);
        let results = match self.write(MULTI, shown, Operation::Multi { parts: &parts })? {
            Reply::Multi(results) if results.len() == operations.len() => results,
            other => return Err(wait::unexpected(MULTI, shown, &other)),
        };
        // The server does nothing after the first refusal, and gives the operations before it an
        // error of the code 0.
        let is_refused =
            |result: &Result<Reply, i32>| result.as_ref().is_err_and(|e| *e != err::OK);
        if let Some(index) = results.iter().position(is_refused) {
            let (Some(operation), Some(Err(code))) = (operations.get(index), results.get(index))
            else {
                return Err(wait::unexpected(MULTI, shown, &Reply::Multi(results)));
            };
            let path = operation.path().to_owned();
            let e = CallError::of(parts.get(index).map_or(op::MULTI, Operation::code), *code);
            let why = super::error(operation.name(), path, e);
            return Err(Error::MultiRefused { index, why: Box::new(why) });
        }
        let outcomes = operations.iter().zip(results).map(|(operation, result)| {
            let reply = result.unwrap_or(Reply::Multi(Vec::new()));
            Ok(match (operation, reply) {
                (Op::Create { .. }, Reply::Created(path, stat)) => OpOutcome::Created {
                    path: self.shown(&path),
                    stat: Some(stat).filter(|stat| stat.czxid != 0),
                },
                (Op::Delete { .. }, Reply::Done) => OpOutcome::Deleted,
                (Op::Set { .. }, Reply::Stat(stat)) => OpOutcome::Set(stat),
                (Op::Check { .. }, Reply::Done) => OpOutcome::Checked,
                (_, other) => return Err(wait::unexpected(MULTI, operation.path(), &other)),
            })
        });
        outcomes.collect()
    }
}

impl Op<'_> {
    fn path(&self) -> &str {
        match self {
            Op::Create { path, .. }
            | Op::Delete { path, .. }
            | Op::Set { path, .. }
            | Op::Check { path, .. } => path,
        }
    }

    /// Its name in errors.
    fn name(&self) -> &'static str {
        match self {
            Op::Create { mode, .. } => create_of(*mode),
            Op::Delete { .. } => DELETE,
            Op::Set { .. } => WRITE,
            Op::Check { .. } => CHECK,
        }
    }
}
