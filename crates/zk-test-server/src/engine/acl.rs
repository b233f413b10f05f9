//! Identities, access control lists and the schemes world, ip, digest, x509, sasl and auth
//! (`PrepRequestProcessor.fixupACL`, `ZooKeeperServer.checkACL`, `DigestAuthenticationProvider`,
//! `IPAuthenticationProvider`, `X509AuthenticationProvider`, `SASLAuthenticationProvider`).

use super::HashSet;
use crate::Brand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use zk_wire::Malformed;
use zk_wire::code::err;
use zk_wire::record::{Reader, Writer};

pub(crate) mod perm {
    pub(crate) const READ: i32 = 1;
    pub(crate) const WRITE: i32 = 2;
    pub(crate) const CREATE: i32 = 4;
    pub(crate) const DELETE: i32 = 8;
    pub(crate) const ADMIN: i32 = 16;
    pub(crate) const ALL: i32 = 31;
}

/// The most identities that a connection may have. Each request is checked against all of them, so
/// a client could otherwise make its requests arbitrarily slow.
pub(crate) const MOST_IDENTITIES: usize = 64;

/// What decides about the schemes that a server knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Schemes {
    pub(crate) brand: Brand,
    /// Whether it is configured for SASL.
    pub(crate) has_sasl: bool,
}

/// An identity of a client, by one scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl Id {
    pub(crate) fn ip(ip: IpAddr) -> Id {
        Id { scheme: "ip".into(), id: ip.to_string() }
    }

    /// The identity that belongs to credentials such as `user:password`.
    pub(crate) fn digest(credentials: &[u8]) -> Id {
        let credentials = String::from_utf8_lossy(credentials);
        let hash = STANDARD.encode(Sha1::from(credentials.as_bytes()).digest().bytes());
        let user = credentials.split(':').next().unwrap_or_default();
        Id { scheme: "digest".into(), id: format!("{user}:{hash}") }
    }

    /// Of a client with a certificate for this subject.
    pub(crate) fn x509(subject: String) -> Id {
        Id { scheme: "x509".into(), id: subject }
    }

    /// Of a client that has logged in by SASL.
    pub(crate) fn sasl(user: String) -> Id {
        Id { scheme: "sasl".into(), id: user }
    }

    /// The superuser, who may do everything.
    pub(crate) fn superuser() -> Id {
        Id { scheme: "super".into(), id: String::new() }
    }

    /// The name of the user in the answer to whoAmI.
    pub(crate) fn user(&self) -> &str {
        match self.scheme.as_str() {
            "digest" => self.id.split(':').next().unwrap_or_default(),
            _ => &self.id,
        }
    }

    fn is_anyone(&self) -> bool {
        self.scheme == "world" && self.id == "anyone"
    }

    /// Whether an entry of a list may say this.
    fn is_valid(&self, schemes: Schemes) -> bool {
        match self.scheme.as_str() {
            "digest" => self.id.trim_end_matches(':').split(':').count() == 2,
            "ip" => {
                let is_v6 = || schemes.brand.knows_ipv6() && self.id.parse::<Ipv6Addr>().is_ok();
                parse_network(&self.id).is_some() || is_v6()
            }
            // The real server reads the name as Java does.
            "sasl" => schemes.has_sasl && is_principal(&self.id),
            "x509" => cfg!(feature = "tls") && self.id.split(',').all(|part| part.contains('=')),
            _ => false,
        }
    }

    /// Whether the entry's `expression` means a client with the identity `self`.
    fn matches(&self, expression: &Id) -> bool {
        self.scheme == expression.scheme
            && match self.scheme.as_str() {
                "digest" | "x509" => self.id == expression.id,
                "sasl" => self.id == "super" || self.id == expression.id,
                "ip" => parse_network(&expression.id).is_some_and(|(network, mask)| {
                    self.id.parse().is_ok_and(|ip: Ipv4Addr| ip.to_bits() & mask == network & mask)
                }),
                _ => false,
            }
    }
}

/// Whether the name can be one of Kerberos (`KerberosName`): `service/host@REALM`, where the host
/// may be missing. A name without `@` is taken as it is.
fn is_principal(name: &str) -> bool {
    let Some((first, realm)) = name.split_once('@') else { return true };
    first.matches('/').count() <= 1 && !realm.contains(['/', '@'])
}

/// The address and the mask of `a.b.c.d` or `a.b.c.d/bits`. The real server does not know IPv6 here
/// either.
fn parse_network(text: &str) -> Option<(u32, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, bits.parse().ok().filter(|bits| *bits <= 32)?),
        None => (text, 32u32),
    };
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Some((address.parse::<Ipv4Addr>().ok()?.to_bits(), mask))
}

/// One entry of an ACL: an identity, and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) perms: i32,
    pub(crate) id: Id,
}

fn anyone(perms: i32) -> Arc<[Acl]> {
    Arc::new([Acl { perms, id: Id { scheme: "world".into(), id: "anyone".into() } }])
}

static OPEN: LazyLock<Arc<[Acl]>> = LazyLock::new(|| anyone(perm::ALL));

/// The list that gives all rights to everybody. The many nodes that have this list share it.
pub(crate) fn open() -> Arc<[Acl]> {
    Arc::clone(&OPEN)
}

pub(crate) fn read_only() -> Arc<[Acl]> {
    anyone(perm::READ)
}

/// An entry as a client sent it: its strings may be jute's null.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    perms: i32,
    scheme: Option<String>,
    id: Option<String>,
}

/// `None` is jute's null.
pub(crate) fn read_list(r: &mut Reader<'_>) -> Result<Option<Vec<Wanted>>, Malformed> {
    r.nullable_vector(|r| {
        Ok(Wanted { perms: r.i32()?, scheme: r.nullable_string()?, id: r.nullable_string()? })
    })
}

pub(crate) fn write_list<'a>(w: Writer, list: impl ExactSizeIterator<Item = &'a Acl>) -> Writer {
    let w = w.i32(list.len() as i32); // no longer than a request was
    list.fold(w, |w, acl| {
        w.i32(acl.perms).buffer(acl.id.scheme.as_bytes()).buffer(acl.id.id.as_bytes())
    })
}

/// Checks a list that a client with these identities wants, and puts its identities in place of
/// `auth`.
pub(crate) fn fix_up(
    wanted: Option<Vec<Wanted>>,
    who: &[Id],
    schemes: Schemes,
) -> Result<Arc<[Acl]>, i32> {
    let mut list: Vec<Acl> = Vec::new();
    let mut seen: HashSet<_> = HashSet::default();
    for entry in wanted.unwrap_or_default() {
        if !seen.insert(entry.clone()) {
            continue;
        }
        let scheme = entry.scheme.ok_or(err::INVALID_ACL)?;
        if scheme == "auth" {
            let before = list.len();
            let is_proven = |id: &&Id| matches!(id.scheme.as_str(), "digest" | "x509" | "sasl");
            let known = who.iter().filter(is_proven);
            list.extend(known.map(|id| Acl { perms: entry.perms, id: id.clone() }));
            if list.len() == before {
                return Err(err::INVALID_ACL);
            }
            continue;
        }
        // The real server fails at a null where it has a scheme to ask.
        let known = matches!(scheme.as_str(), "world" | "digest" | "ip")
            || cfg!(feature = "tls") && scheme == "x509"
            || schemes.has_sasl && scheme == "sasl";
        let id = entry.id.ok_or(if known { err::MARSHALLING_ERROR } else { err::INVALID_ACL })?;
        let id = Id { scheme, id };
        if !id.is_anyone() && !id.is_valid(schemes) {
            return Err(err::INVALID_ACL);
        }
        list.push(Acl { perms: entry.perms, id });
    }
    if list.is_empty() {
        return Err(err::INVALID_ACL);
    }
    Ok(if *list == *OPEN.as_ref() { open() } else { list.into() })
}

/// Whether a client with these identities has one of these permissions.
pub(crate) fn check(list: &[Acl], perms: i32, who: &[Id]) -> Result<(), i32> {
    if who.iter().any(|id| id.scheme == "super") {
        return Ok(());
    }
    let allows = |acl: &Acl| acl.perms & perms != 0 && (acl.id.is_anyone() || known(who, &acl.id));
    if list.is_empty() || list.iter().any(allows) { Ok(()) } else { Err(err::NO_AUTH) }
}

/// Whether the entry means one of these identities. A client has few of them: see
/// [`MOST_IDENTITIES`].
fn known(who: &[Id], entry: &Id) -> bool {
    who.iter().any(|id| id.matches(entry))
}

/// The list without its password hashes, for clients that may read a node but not administer it.
pub(crate) fn masked(list: &[Acl]) -> Vec<Acl> {
    let mask = |acl: &Acl| match acl.id.scheme.as_str() {
        "digest" => {
            let id = Id { id: format!("{}:x", acl.id.user()), ..acl.id.clone() };
            Acl { id, ..acl.clone() }
        }
        _ => acl.clone(),
    };
    list.iter().map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(scheme: &str, id: &str) -> Id {
        Id { scheme: scheme.into(), id: id.into() }
    }

    #[test]
    fn digest_is_the_one_of_zookeepers_documentation() {
        assert_eq!(Id::digest(b"super:test"), id("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU="));
    }

    #[test]
    fn ip_networks_match_as_prefixes() {
        let client = id("ip", "127.1.2.3");
        for (expression, meant) in [
            ("127.1.2.3", true),
            ("127.1.2.4", false),
            ("127.0.0.0/8", true),
            ("10.0.0.0/0", true),
            ("::1", false),
        ] {
            assert_eq!(client.matches(&id("ip", expression)), meant, "{expression}");
        }
        for invalid in ["", "1.2.3", "1.2.3.4/33", "1.2.3.4/-1", "1.2.3.4/x", "1.2.3.256"] {
            assert!(!id("ip", invalid).is_valid(Schemes::default()), "{invalid}");
        }
    }

    #[test]
    fn a_name_of_sasl_is_one_of_kerberos() {
        let schemes = Schemes { has_sasl: true, ..Schemes::default() };
        for valid in ["", "alice", "a/b", "a/b/c", "a@R", "a/b@R", "@R", "a@", "/@"] {
            assert!(id("sasl", valid).is_valid(schemes), "{valid}");
            assert!(!id("sasl", valid).is_valid(Schemes::default()), "{valid}");
        }
        for invalid in ["a@b@c", "a/b/c@R", "a@b/c", "@@"] {
            assert!(!id("sasl", invalid).is_valid(schemes), "{invalid}");
        }
    }

    #[test]
    fn the_user_super_of_sasl_is_meant_by_each_entry_of_sasl() {
        assert!(id("sasl", "alice").matches(&id("sasl", "alice")));
        assert!(id("sasl", "super").matches(&id("sasl", "alice")));
        assert!(!id("sasl", "alice").matches(&id("sasl", "super")));
        assert!(!id("sasl", "super").matches(&id("digest", "alice")));
    }
}
