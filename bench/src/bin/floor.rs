//! What a lock costs at the least: ZooKeeper's protocol on one blocking socket, without threads,
//! deadlines, leases or recovery. A peer of `bench/compare` (`zk_mutex_bench::protocol`):
//!
//!     floor HOSTS seq|flights|flight|bare key=value...
//!
//! - `seq`: create, list, delete, each waited for, as in the textbook recipe;
//! - `flights`: create and list in one flight, then delete;
//! - `flight`: the same, and the delete is not waited for: its answer is read by the next acquire;
//! - `bare`: create and delete alone, each waited for. That excludes nobody.
//!
//! Behind another contender all but `bare` watch its node, wait, and list again. One process has
//! one thread.

use std::io;
use std::process::ExitCode;
use std::str;
use zk_mutex_bench::protocol::{self, Args, Bare, Counter, Outcome, in_a_loop, warm};
use zk_mutex_bench::raw::{
    CREATE, DELETE, EPHEMERAL_SEQUENTIAL, GET_CHILDREN, GET_DATA, PERSISTENT, Raw, create_body,
    string,
};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Seq,
    Flights,
    Flight,
    Bare,
}

fn main() -> ExitCode {
    let find = |workload: &str| {
        let kind = match workload {
            "seq" => Kind::Seq,
            "flights" => Kind::Flights,
            "flight" => Kind::Flight,
            "bare" => Kind::Bare,
            _ => return None,
        };
        Some(move |args: &Args| uncontended(args, kind))
    };
    protocol::run("floor", find, |_| false)
}

fn uncontended(args: &Args, kind: Kind) -> Outcome<()> {
    if args.threads()? != 1 {
        return Err("there is one thread".into());
    }
    warm(args, Floor::new(args, kind, &args.warm_path())?)?;
    let counter = &Counter::default();
    in_a_loop(args, Some(counter), || {
        let mut floor = Floor::new(args, kind, args.path())?;
        Ok(move || floor.cycle(|| counter.bump()))
    })
}

struct Floor {
    link: Raw,
    kind: Kind,
    folder: String,
    node: String,
    /// The answer to the delete has not been read yet.
    is_deleting: bool,
}

impl Floor {
    fn new(args: &Args, kind: Kind, folder: &str) -> io::Result<Floor> {
        let hosts: Vec<_> = args.hosts.split(',').collect();
        let mut link = Raw::connect(hosts[std::process::id() as usize % hosts.len()])?;
        let ends = folder.match_indices('/').skip(1).map(|(end, _)| end);
        for end in ends.chain([folder.len()]) {
            match link.create(&folder[..end], PERSISTENT) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let folder = folder.to_owned();
        Ok(Floor { link, kind, folder, node: String::new(), is_deleting: false })
    }

    fn listing(&self) -> Vec<u8> {
        [string(&self.folder), vec![0]].concat()
    }

    /// The node of the contender before ours in a listing.
    fn before<'a>(&self, listing: &'a [u8]) -> io::Result<Option<&'a str>> {
        let own = &self.node[self.folder.len() + 1..];
        let (count, mut rest) = take_number(listing)?;
        let mut before = None;
        for _ in 0..count {
            let name;
            (name, rest) = take_text(rest)?;
            if name < own && before.is_none_or(|nearest| name > nearest) {
                before = Some(name);
            }
        }
        Ok(before)
    }
}

impl Bare for Floor {
    fn acquire(&mut self) -> Outcome<()> {
        let listing = self.listing();
        let body = create_body(&format!("{}/lock-", self.folder), EPHEMERAL_SEQUENTIAL);
        self.link.queue(CREATE, &body)?;
        if matches!(self.kind, Kind::Flights | Kind::Flight) {
            self.link.queue(GET_CHILDREN, &listing)?;
        }
        if std::mem::take(&mut self.is_deleting) {
            self.link.answer()?;
        }
        let created = self.link.answer()?;
        self.node = take_text(&created)?.0.to_owned();
        let mut listed = match self.kind {
            Kind::Bare => return Ok(()),
            Kind::Seq => self.link.call(GET_CHILDREN, &listing)?,
            Kind::Flights | Kind::Flight => self.link.answer()?,
        };
        while let Some(before) = self.before(&listed)? {
            let watched = [string(&format!("{}/{before}", self.folder)), vec![1]].concat();
            match self.link.call(GET_DATA, &watched) {
                Ok(_) => self.link.event()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            listed = self.link.call(GET_CHILDREN, &listing)?;
        }
        Ok(())
    }

    fn release(&mut self) -> Outcome<()> {
        let any_version = (-1i32).to_be_bytes();
        self.link.queue(DELETE, &[&string(&self.node)[..], &any_version].concat())?;
        if self.kind == Kind::Flight {
            self.is_deleting = true;
            return Ok(self.link.flush()?);
        }
        self.link.answer()?;
        Ok(())
    }
}

fn take_number(bytes: &[u8]) -> io::Result<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    let number = usize::try_from(i32::from_be_bytes(*number));
    Ok((number.map_err(|_| io::ErrorKind::InvalidData)?, rest))
}

fn take_text(bytes: &[u8]) -> io::Result<(&str, &[u8])> {
    let (length, rest) = take_number(bytes)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((str::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?, rest))
}
