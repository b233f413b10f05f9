//! The connect string, as in "zk1:2181,zk2:2181/app": the servers, and the path below which all our
//! paths are.

use crate::error::{Error, Result};
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use zk_wire::path;

const DEFAULT_PORT: u16 = 2181;

/// A longer connect string, or more hosts, can only be a mistake: ensembles have a handful of
/// servers.
const MAX_BYTES: usize = 16 * 1024;
const MAX_HOSTS: usize = 128;

/// The longest host name that DNS can carry.
const MAX_NAME: usize = 253;

/// A connect string, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectString {
    /// The servers in the given order, each once; there is at least one.
    pub(crate) hosts: Vec<Host>,
    /// A valid path below which all our paths are, or "" if there is none.
    pub(crate) chroot: String,
}

/// One server. It is shown as "name:port", with an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// A host name or an address, an IPv6 address without its brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl ConnectString {
    /// Reads the format of ZooKeeper's `ConnectStringParser`, strictly. The Java parser guesses: it
    /// skips empty items, takes "h:" for the default port, drops text after a port, and takes
    /// blanks as host names, which fail later. This parser refuses all of these, because each of
    /// them comes from a setting that was not filled in. The service would run with fewer servers,
    /// or with another chroot, than was meant, and this would show only in an outage.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        parse(text).map_err(|reason| Error::InvalidConfig { what: "connect string", reason })
    }
}

/// What is said of a connect string with an '@' among its hosts. It may have a password, so that
/// no text before an '@' is ever shown.
const NO_LOGIN: &str = "it has an '@', and a connect string has no place for a user and a \
    password; name only the servers, and give the session credentials with auth() or a login by \
    SASL";

fn parse(text: &str) -> Result<ConnectString, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    let (list, chroot) = text.split_at(text.find('/').unwrap_or(text.len()));
    if list.trim().is_empty() {
        return Err("it names no host".to_owned());
    }
    if list.ends_with(':') && chroot.starts_with("//") {
        return Err("it begins as a URL does; leave out the scheme and its \"//\"".to_owned());
    }
    // A '/' in a password begins a chroot: "user:pa/ss@zk1:2181". A chroot may have an '@', but
    // hardly one before a port.
    let after = chroot.rsplit_once('@').map(|(_, after)| after);
    if list.contains('@') || after.is_some_and(|after| after.contains(':')) {
        return Err(NO_LOGIN.to_owned());
    }
    let mut hosts: Vec<Host> = Vec::new();
    for (i, item) in list.split(',').map(str::trim).enumerate() {
        if i == MAX_HOSTS {
            return Err(format!("it names more than {MAX_HOSTS} hosts"));
        }
        if item.is_empty() {
            return Err("a host is empty (two commas in a row, or one at an end)".to_owned());
        }
        let host = read_host(item).map_err(|why| match after {
            None => format!("host {}: {why}", quoted(item)),
            Some(_) => format!("one of its hosts: {why}; or {NO_LOGIN}"),
        })?;
        // A host that is given twice is kept once, or it would be dialled twice as often as the
        // others. Case does not matter in DNS names.
        if !hosts.iter().any(|h| h.port == host.port && h.name.eq_ignore_ascii_case(&host.name)) {
            hosts.push(host);
        }
    }
    Ok(ConnectString { hosts, chroot: read_chroot(chroot)? })
}

fn read_chroot(chroot: &str) -> Result<String, String> {
    if matches!(chroot.trim_end(), "" | "/") {
        return Ok(String::new());
    }
    path::check(chroot).map_err(|rule| format!("the chroot {}: {rule}", quoted(chroot)))?;
    if chroot.ends_with(char::is_whitespace) {
        return Err(format!("the chroot {} ends with a blank", quoted(chroot)));
    }
    // From "h1/app,h2/app" ZooKeeper's parser would read the chroot "/app,h2/app" and lose a host.
    // Other processes would have another chroot, and their locks would be other locks.
    if chroot.contains(',') {
        return Err(format!(
            "the chroot {} has a comma; give the chroot once, after the last host",
            quoted(chroot)
        ));
    }
    Ok(chroot.to_owned())
}

fn read_host(item: &str) -> Result<Host, &'static str> {
    let has_several = item.matches(':').count() > 1 && item.contains(char::is_whitespace);
    if item.contains(';') || has_several {
        return Err("hosts are separated by commas");
    }
    let (name, port) = match item.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or("'[' has no ']'")?;
            let name = read_ipv6(address).ok_or("no IPv6 address in the brackets")?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err("']' must end it or precede ':'"),
            };
            (name, port)
        }
        None => {
            let (name, port) = match item.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (item, None),
            };
            if port.is_some_and(|port| port.contains(':')) {
                return Err("more than one ':'; an IPv6 address goes in brackets, like [::1]:2181");
            }
            (read_name(name)?, port)
        }
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => read_port(port).ok_or("the port must be 1 to 65535")?,
    };
    Ok(Host { name, port })
}

fn read_name(name: &str) -> Result<String, &'static str> {
    if name.is_empty() {
        return Err("it has no name before the ':'");
    }
    if name.len() > MAX_NAME {
        return Err("its name is too long");
    }
    // Underscores are not allowed in DNS, but are common in container networks.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.chars().all(is_allowed) {
        return Err("a name has only ASCII letters, digits, '-', '_' and '.'");
    }
    Ok(name.to_owned())
}

/// An IPv6 address in its canonical text, so that two spellings of it are one host. Its zone
/// ("%eth0") stays as it is.
fn read_ipv6(text: &str) -> Option<String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().ok()?;
    match zone {
        None => Some(address.to_string()),
        Some(zone) => read_name(zone).ok().map(|zone| format!("{address}%{zone}")),
    }
}

/// Reads a port. It must have digits only: Rust's `parse` alone would also accept "+2181".
fn read_port(text: &str) -> Option<u16> {
    let port = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())??;
    (port != 0).then_some(port)
}

/// The text without what stands before its last '@': that may be a password.
pub(crate) fn without_login(text: &str) -> Cow<'_, str> {
    match text.rfind('@') {
        None => Cow::Borrowed(text),
        Some(at) => Cow::Owned(format!("***{}", text.get(at..).unwrap_or_default())),
    }
}

/// The caller's text for an error message: escaped, and cut if it is long.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 64;
    let text = without_login(text);
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(text: &str) -> Vec<String> {
        let parsed = ConnectString::parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        parsed.hosts.iter().map(Host::to_string).collect()
    }

    fn chroot(text: &str) -> String {
        ConnectString::parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}")).chroot
    }

    fn refusal(text: &str) -> String {
        match ConnectString::parse(text) {
            Err(Error::InvalidConfig { what: "connect string", reason }) => reason,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn names_addresses_and_default_ports_are_read() {
        assert_eq!(hosts("zk"), ["zk:2181"]);
        assert_eq!(hosts("zk_1.svc-a:1,10.0.0.1:65535"), ["zk_1.svc-a:1", "10.0.0.1:65535"]);
        assert_eq!(hosts("[::1],[fe80::1%eth0]:99"), ["[::1]:2181", "[fe80::1%eth0]:99"]);
    }

    #[test]
    fn blanks_around_hosts_are_trimmed() {
        assert_eq!(hosts(" a:1 ,\tb:2\n"), ["a:1", "b:2"]);
    }

    #[test]
    fn a_host_given_twice_is_kept_once() {
        assert_eq!(hosts("a,b:2181,A:2181,a:1"), ["a:2181", "b:2181", "a:1"]);
        assert_eq!(hosts("[::1]:5,[0:0:0:0:0:0:0:1]:5"), ["[::1]:5"]);
    }

    #[test]
    fn the_chroot_starts_at_the_first_slash() {
        assert_eq!(chroot("a:1,b:2"), "");
        assert_eq!(chroot("a/"), "");
        assert_eq!(chroot("a/\n"), "");
        assert_eq!(chroot("a:1,b:2/app/x"), "/app/x");
        assert_eq!(hosts("a:1,b:2/app/x"), ["a:1", "b:2"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_reason() {
        for (text, word) in [
            ("", "no host"),
            (" ", "no host"),
            ("/app", "no host"),
            (",", "empty"),
            ("a,,b", "empty"),
            ("a,", "empty"),
            (",a", "empty"),
            ("a, ,b", "empty"),
            (":2181", "no name"),
            ("h:", "port"),
            ("h:0", "port"),
            ("h:99999", "port"),
            ("h:65536", "port"),
            ("h:99999999999999999999", "port"),
            ("h:x", "port"),
            ("h:+1", "port"),
            ("h:-1", "port"),
            ("h: 1", "port"),
            ("h:٣", "port"),
            ("::1", "brackets"),
            ("fe80::1:2181", "brackets"),
            ("h:1:2", "brackets"),
            ("[::1", "']'"),
            ("[::1:2181", "']'"),
            ("[]", "IPv6"),
            ("[zk]:1", "IPv6"),
            ("[1.2.3.4]:1", "IPv6"),
            ("[::1%]:1", "IPv6"),
            ("[::1]x", "']'"),
            ("[::1]:", "port"),
            ("::1]", "brackets"),
            ("a b", "letters"),
            ("a b:1", "letters"),
            ("zk://h", "leave out the scheme"),
            ("a:1,zk://h", "leave out the scheme"),
            ("u@h", "no place for a user"),
            ("zk;h", "separated by commas"),
            ("a:1;b:2", "separated by commas"),
            ("[::1]:1;[::2]:2", "separated by commas"),
            ("a:1 b:2", "separated by commas"),
            ("zü:1", "letters"),
            ("a\0", "letters"),
            ("a/app/", "end with '/'"),
            ("a//", "end with '/'"),
            ("a//app", "empty node"),
            ("a/../b", "'..'"),
            ("a/app\n", "control"),
            ("a/app ", "blank"),
            ("a/app,b/app", "comma"),
        ] {
            let reason = refusal(text);
            assert!(reason.contains(word), "{text:?}: {reason}");
        }
    }

    #[test]
    fn nothing_before_an_at_sign_is_ever_shown() {
        for (text, word) in [
            ("user:secret@h:2181", "no place for a user"),
            ("h1,user:secret@h", "no place for a user"),
            ("user:sec@ret@h", "no place for a user"),
            ("user:secret/s3@h:2181", "no place for a user"),
            ("user:secret/s3@h", "the port must be"),
            ("user;secret/s3@h", "separated by commas"),
            ("user:secret/s3//@h", "the port must be"),
            ("secret/s3//@h", "empty node"),
            ("secret/s3,s4@h", "comma"),
            ("zk://user:secret@h", "leave out the scheme"),
            ("user:secret/@h:2181,h2", "no place for a user"),
            ("user:secret@h/app", "no place for a user"),
            ("user:secret@\0", "no place for a user"),
        ] {
            let reason = refusal(text);
            assert!(reason.contains(word), "{text:?}: {reason}");
            for part in ["user:", "secret", "s3", "sec@"] {
                assert!(!reason.contains(part), "{text:?}: {reason}");
            }
            let shown = format!("{:?}", crate::Config::new(text));
            assert!(!shown.contains("sec") && !shown.contains("s3"), "{shown}");
        }
    }

    #[test]
    fn a_chroot_may_have_an_at_sign() {
        assert_eq!(chroot("a:1,b/app@eu/x"), "/app@eu/x");
        let shown = format!("{:?}", crate::Config::new("a:1,b/app@eu/x"));
        assert!(shown.contains("\"***@eu/x\""), "{shown}");
        assert!(refusal("a:0/app@eu").contains("the port must be 1 to 65535"));
    }

    #[test]
    fn absurd_lengths_are_refused_and_not_quoted_whole() {
        let many = |n: usize| (0..n).map(|i| format!("h{i}")).collect::<Vec<_>>().join(",");
        assert_eq!(hosts(&many(MAX_HOSTS)).len(), MAX_HOSTS);
        assert!(refusal(&many(MAX_HOSTS + 1)).contains("hosts"));
        assert!(refusal(&"a".repeat(MAX_BYTES + 1)).contains("bytes"));
        assert_eq!(hosts(&"a".repeat(MAX_NAME)).len(), 1);
        let reason = refusal(&"a".repeat(MAX_NAME + 1));
        assert!(reason.contains("too long") && reason.len() < 200, "{reason}");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in any::<String>(), near in "[ah:0-9,/\\[\\]% .é-]{0,24}") {
            for text in [text, near] {
                if let Ok(parsed) = ConnectString::parse(&text) {
                    prop_assert!(!parsed.hosts.is_empty());
                    prop_assert!(parsed.hosts.iter().all(|h| h.port != 0 && !h.name.is_empty()));
                    prop_assert!(parsed.chroot.is_empty() || path::check(&parsed.chroot).is_ok());
                }
            }
        }

        #[test]
        fn what_is_shown_reads_back(
            names in proptest::collection::vec(("[a-z][a-z0-9.-]{0,8}|[0-9]{1,3}(\\.[0-9]{1,3}){3}", 1u16..), 1..6),
            v6 in any::<[u16; 8]>(),
            chroot in "(/[a-z]{1,3}){0,3}",
        ) {
            let mut list: Vec<String> = names.iter().map(|(name, port)| format!("{name}:{port}")).collect();
            list.push(format!("[{}]", Ipv6Addr::from(v6)));
            let parsed = ConnectString::parse(&(list.join(",") + &chroot));
            let parsed = parsed.map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(&parsed.chroot, &chroot);
            let shown: Vec<String> = parsed.hosts.iter().map(Host::to_string).collect();
            prop_assert_eq!(ConnectString::parse(&(shown.join(",") + &chroot)), Ok(parsed));
        }
    }
}
