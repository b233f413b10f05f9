//! The back of a long queue: each waiter is a connection with a node and a watch, like those of a
//! `ZkMutex` with the strategy.
//!
//! A session has two threads, and counting the watches of a thousand waiters needs no sessions.

use std::io;
use zk_mutex::WaitStrategy;
use zk_mutex_bench::raw::{Raw, string};

const GET_CHILDREN: i32 = 8;
const EPHEMERAL: i32 = 1;
/// A sequence number behind all numbers that the server gives.
const FIRST_NUMBER: usize = 1_000_000;

pub struct Crowd {
    dir: String,
    waiters: Vec<(Raw, String)>,
}

impl Crowd {
    /// Puts `count` nodes at the end of the queue.
    pub fn queue(host: &str, dir: &str, count: usize) -> io::Result<Crowd> {
        let waiters = (0..count).map(|number| {
            let mut raw = Raw::connect(host)?;
            let name = format!("_c_{}-lock-{:010}", uuid::Uuid::new_v4(), FIRST_NUMBER + number);
            let path = raw.create(&format!("{dir}/{name}"), EPHEMERAL)?;
            Ok((raw, path))
        });
        Ok(Crowd { dir: dir.to_owned(), waiters: waiters.collect::<io::Result<_>>()? })
    }

    /// Each waiter sets its watch; the first one of the crowd watches the node `ahead`.
    pub fn watch(&mut self, strategy: WaitStrategy, ahead: &str) -> io::Result<()> {
        let mut ahead = ahead.to_owned();
        for (raw, path) in &mut self.waiters {
            match strategy {
                WaitStrategy::Parent => {
                    let mut body = string(&self.dir);
                    body.push(1);
                    raw.call(GET_CHILDREN, &body)?;
                }
                _ => raw.watch(&ahead)?,
            }
            ahead.clone_from(path);
        }
        Ok(())
    }

    /// Ends the sessions of the crowd; the server deletes their nodes.
    pub fn leave(self) -> io::Result<()> {
        self.waiters.into_iter().try_for_each(|(raw, _)| raw.close())
    }
}
