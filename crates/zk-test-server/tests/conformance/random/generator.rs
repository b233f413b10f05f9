//! Chooses the next act of the clients of a random sequence.
use super::{
    super::{
        requests::{
            ANY_WATCHES, Req, Watches, acl, add_watch, auth, check, check_watches, delete_version,
            get_acl, get_children, get_data, mode, op, remove_watches, sync,
        },
        servers::is_39,
    },
    vocabulary::{HOUR, Vocabulary},
};

#[derive(Clone, Debug)]
pub enum Act {
    /// Sends all requests in one packet.
    Ask { client: usize, requests: Vec<Req> },
    /// Closes the client's session and opens a new one.
    Close { client: usize },
    /// Moves the session to a new connection, if the password is right.
    Move { client: usize, right: bool },
}

#[derive(Clone, Copy)]
enum What {
    Create,
    Delete,
    Exists,
    GetData,
    SetData,
    GetAcl,
    SetAcl,
    GetChildren,
    GetChildren2,
    Sync,
    Ping,
    Check,
    Multi,
    MultiRead,
    Auth,
    SetWatches,
    AddWatch,
    RemoveWatches,
    CheckWatches,
    GetEphemerals,
    GetAllChildrenNumber,
    WhoAmI,
    Garbage,
    Unknown,
}

/// How often each kind of request occurs. A packet of several requests has only the kinds up to
/// `STEADY`.
const WEIGHTS: [(u32, What); 24] = [
    (240, What::Create),
    (100, What::Delete),
    (80, What::SetData),
    (60, What::Exists),
    (60, What::GetData),
    (50, What::GetChildren),
    (30, What::GetChildren2),
    (30, What::GetAcl),
    (15, What::Sync),
    (90, What::Multi),
    (30, What::MultiRead),
    (30, What::GetEphemerals),
    (25, What::GetAllChildrenNumber),
    (60, What::AddWatch),
    (30, What::RemoveWatches),
    (30, What::CheckWatches),
    (30, What::SetWatches),
    (15, What::WhoAmI),
    // (While a setACL is in progress, the former ACL counts.)
    (25, What::SetAcl),
    (20, What::Ping),
    (25, What::Auth),
    (20, What::Check),
    (12, What::Garbage),
    (3, What::Unknown),
];
const STEADY: usize = 18;

/// The next act of one of `clients`.
pub fn act(words: &mut Vocabulary, clients: usize) -> Act {
    let client = words.rng.usize(0..clients);
    match words.rng.u32(0..1000) {
        0..12 => Act::Close { client },
        12..35 => Act::Move { client, right: true },
        35..40 => Act::Move { client, right: false },
        40..110 => {
            words.steady = true;
            let count = words.rng.usize(2..12);
            let requests = (0..count).map(|_| one_of(words, &WEIGHTS[..STEADY])).collect();
            words.steady = false;
            Act::Ask { client, requests }
        }
        _ => {
            let request = one_of(words, &WEIGHTS);
            Act::Ask { client, requests: vec![request] }
        }
    }
}

fn one_of(words: &mut Vocabulary, weights: &[(u32, What)]) -> Req {
    let what = words.weighted(weights);
    let request = request(words, what);
    // In 3.9 the server closes the connection at a single check.
    if matches!(what, What::Check) && is_39() { Req::Multi(vec![request]) } else { request }
}

fn request(words: &mut Vocabulary, what: What) -> Req {
    match what {
        What::Create => words.create(),
        What::Delete => {
            let path = words.path();
            delete_version(&path, words.version(&path, |stat| stat.version))
        }
        What::Exists => Req::Exists { path: words.path(), watch: words.chance(70) },
        What::GetData => Req::GetData { path: words.path(), watch: words.chance(70) },
        What::SetData => {
            let path = words.path();
            Req::SetData {
                data: words.data(),
                version: words.version(&path, |stat| stat.version),
                path,
            }
        }
        What::GetAcl => get_acl(&words.path()),
        What::SetAcl => {
            let path = words.path();
            Req::SetAcl {
                acl: words.acl(),
                version: words.version(&path, |stat| stat.aversion),
                path,
            }
        }
        What::GetChildren => Req::GetChildren { path: words.path(), watch: words.chance(70) },
        What::GetChildren2 => Req::GetChildren2 { path: words.path(), watch: words.chance(70) },
        What::Sync => sync(&words.path()),
        What::Ping => Req::Ping,
        What::Check => {
            let path = words.path();
            check(&path, words.version(&path, |stat| stat.version))
        }
        What::Multi => Req::Multi(parts(words, &part)),
        What::MultiRead => Req::MultiRead(parts(words, &|words| match words.rng.bool() {
            true => get_data(&words.path()),
            false => get_children(&words.path()),
        })),
        What::Auth => {
            let (scheme, who) = words.pick(&[
                ("digest", "alice:wonder"),
                ("digest", "alice:wonder"),
                ("digest", "bob:builder"),
                ("ip", ""),
                ("unknown", "x"),
            ]);
            auth(scheme, who)
        }
        What::SetWatches => {
            let mut paths = || Vec::from_iter((0..words.rng.usize(0..3)).map(|_| words.path()));
            let (data, exist, child) = (paths(), paths(), paths());
            let lasting = [paths(), paths()];
            let persistent = words.rng.bool().then_some(lasting);
            Req::SetWatches(Watches { seen: words.seen(), data, exist, child, persistent })
        }
        What::AddWatch => add_watch(&words.path(), words.pick(&[0, 0, 0, 1, 1, 1, 2])),
        What::RemoveWatches => {
            remove_watches(&words.path(), words.pick(&[1, 2, ANY_WATCHES, ANY_WATCHES, 4, 5, 7]))
        }
        What::CheckWatches => {
            check_watches(&words.path(), words.pick(&[1, 2, ANY_WATCHES, 4, 5, 7]))
        }
        What::GetEphemerals => {
            let prefix = if words.rng.bool() { String::new() } else { words.path() };
            Req::GetEphemerals { prefix }
        }
        What::GetAllChildrenNumber => Req::GetAllChildrenNumber { path: words.path() },
        What::WhoAmI => Req::WhoAmI,
        What::Garbage => {
            let op = words.pick(&[
                op::CREATE,
                op::DELETE,
                op::GET_DATA,
                op::MULTI,
                op::SET_WATCHES,
                op::RECONFIG,
            ]);
            // The server can parse a reconfig of such a length.
            let length = if op == op::RECONFIG { 20 } else { words.rng.usize(0..4) };
            Req::Other { op, body: vec![0xff; length] }
        }
        What::Unknown => Req::Other { op: words.pick(&[0, -1, 10, 99]), body: Vec::new() },
    }
}

fn parts(words: &mut Vocabulary, part: &dyn Fn(&mut Vocabulary) -> Req) -> Vec<Req> {
    (0..words.rng.usize(0..5)).map(|_| part(words)).collect()
}

fn part(words: &mut Vocabulary) -> Req {
    let what = words.weighted(&[
        (50, What::Create),
        (20, What::Delete),
        (20, What::SetData),
        (12, What::Check),
        (1, What::Exists),
    ]);
    match request(words, what) {
        // In a packet of several requests, the effects of a request that cannot be read depend on
        // timing.
        Req::Exists { path, .. } if words.steady => check(&path, -1),
        Req::Create(mut create) => {
            let lasts = create.flags == mode::TTL || create.flags == mode::SEQUENTIAL_TTL;
            if words.steady && lasts && create.op != op::CREATE_TTL {
                create.flags = mode::PERSISTENT;
            }
            create.ttl = if create.ttl < 0 && !lasts { HOUR } else { create.ttl };
            Req::Create(create)
        }
        other => other,
    }
}

/// The first requests of a sequence: they make nodes to work on.
pub fn opening(top: &str) -> Vec<Req> {
    let below = |path: &str| super::super::requests::create(&format!("{top}{path}"));
    let owned = below("/b").acl(&[acl(31, "world", "anyone"), acl(31, "ip", "127.0.0.1")]);
    vec![below(""), below("/a"), owned, below("/a/x").data(b"data")]
}
