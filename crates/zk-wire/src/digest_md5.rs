//! SASL's mechanism DIGEST-MD5 ([RFC 2831](https://www.rfc-editor.org/rfc/rfc2831)), as far as
//! ZooKeeper uses it: both sides, without sockets, clocks or random numbers of their own.
//!
//! ```text
//! client                          server
//!   (an empty token)           ->
//!                              <-   the challenge: a realm, and a nonce of the server
//!   the response: the user,    ->
//!   a nonce of the client, and a
//!   hash of all and the password
//!                              <-   the proof that the server knows the password too
//! ```
//!
//! The password never travels. But MD5 is old, and the user's name travels in the clear: somebody
//! who reads the connection can try passwords against the hashes. So DIGEST-MD5 belongs on TLS, or
//! on a network that is trusted, and the password should be long and random.
//!
//! ZooKeeper's servers have the realm and the name `zk-sasl-md5`, and ask for authentication alone
//! (`SecurityUtils.createSaslServer`). Names and passwords are hashed as Java does it: in ISO
//! 8859-1 if they have characters of that alphabet only, otherwise in UTF-8.

use crate::Malformed;

/// The realm of ZooKeeper's servers.
pub const REALM: &str = "zk-sasl-md5";

/// What a client wants to use: the service `zookeeper` of the server `zk-sasl-md5`.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// The longest challenge and the longest response that RFC 2831 allows.
const MAX_CHALLENGE: usize = 2048;
const MAX_RESPONSE: usize = 4096;

/// The count of the uses of a nonce. Each nonce is used once.
const COUNT: &str = "00000001";

/// Why a login goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer's token is not of this mechanism, or asks for what is not spoken here.
    Malformed(Malformed),
    /// The server has not proven that it knows the password: it is another server, or it lets
    /// clients go on whose login has failed.
    NotProven,
    /// The user is unknown, or the password is wrong. Only a server finds this.
    Refused,
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Failure::Malformed(malformed)
    }
}

/// The client's side of one login. Its first token is empty.
pub struct Client {
    user: String,
    password: String,
    nonce: String,
    /// The proof that the server must give, once the response was sent.
    expected: Option<String>,
}

/// What a client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It sends this token, and waits for the answer.
    Send(Vec<u8>),
    /// The login is over, and the server has proven that it knows the password.
    Done,
}

impl Client {
    /// `nonce` must be random, never used before, and of letters and digits.
    pub fn new(
        user: impl Into<String>,
        password: impl Into<String>,
        nonce: impl Into<String>,
    ) -> Self {
        Client { user: user.into(), password: password.into(), nonce: nonce.into(), expected: None }
    }

    /// Takes the server's token: first the challenge, then the proof.
    pub fn step(&mut self, token: &[u8]) -> Result<Step, Failure> {
        if let Some(expected) = self.expected.take() {
            if token.is_empty() {
                return Err(Failure::NotProven);
            }
            let proof = Directives::parse(token, MAX_CHALLENGE)?;
            let is_proven = proof.one("rspauth")? == Some(&expected);
            return if is_proven { Ok(Step::Done) } else { Err(Failure::NotProven) };
        }
        let challenge = Directives::parse(token, MAX_CHALLENGE)?;
        if challenge.one("algorithm")? != Some("md5-sess") {
            return Err(Malformed("a challenge for another algorithm than md5-sess").into());
        }
        let qops = challenge.one("qop")?.unwrap_or("auth");
        if !qops.split(',').any(|qop| qop.trim() == "auth") {
            return Err(Malformed("a challenge that wants each message signed").into());
        }
        let server_nonce = challenge
            .one("nonce")?
            .filter(|nonce| !nonce.is_empty())
            .ok_or(Malformed("a challenge without a nonce"))?;
        // A server may offer several realms; as Java's client does, this takes the first.
        let realm = challenge.all("realm").next().unwrap_or_default();
        let login = Login {
            user: &self.user,
            realm,
            password: &self.password,
            nonce: server_nonce,
            cnonce: &self.nonce,
            authzid: None,
        };
        let response = format!(
            "charset=utf-8,username=\"{}\",realm=\"{}\",nonce=\"{}\",nc={COUNT},cnonce=\"{}\",\
             digest-uri=\"{DIGEST_URI}\",maxbuf=65536,response={},qop=auth",
            quoted(&self.user),
            quoted(realm),
            quoted(server_nonce),
            quoted(&self.nonce),
            login.hash(Side::Client),
        );
        self.expected = Some(login.hash(Side::Server));
        Ok(Step::Send(response.into_bytes()))
    }
}

/// The server's side of one login.
pub struct Server {
    nonce: String,
}

impl Server {
    /// `nonce` must be random, never used before, and of letters and digits.
    pub fn new(nonce: impl Into<String>) -> Self {
        Server { nonce: nonce.into() }
    }

    /// The token with which the server answers the client's first one.
    pub fn challenge(&self) -> Vec<u8> {
        let nonce = quoted(&self.nonce);
        format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess").into_bytes()
    }

    /// Takes the client's response. `password_of` gives the password of a user, if there is that
    /// user. The result is the user for whom the client acts, and the token that proves to the
    /// client that this server knows the password. As Java's server does, it reads no `nc`, since
    /// each challenge is used once.
    pub fn answer(
        &self,
        response: &[u8],
        password_of: impl FnOnce(&str) -> Option<String>,
    ) -> Result<(String, Vec<u8>), Failure> {
        let response = Directives::parse(response, MAX_RESPONSE)?;
        let required =
            |name| response.one(name)?.ok_or(Malformed("a response that lacks a directive"));
        let (user, cnonce) = (required("username")?, required("cnonce")?);
        let is_for_this_challenge = required("nonce")? == self.nonce
            && response.one("realm")?.unwrap_or_default() == REALM
            && response.one("qop")?.unwrap_or("auth") == "auth"
            && response.one("charset")?.unwrap_or("utf-8") == "utf-8"
            && required("digest-uri")? == DIGEST_URI;
        if !is_for_this_challenge {
            return Err(Malformed("a response to another challenge").into());
        }
        let password = password_of(user).ok_or(Failure::Refused)?;
        let authzid = response.one("authzid")?;
        let login =
            Login { user, realm: REALM, password: &password, nonce: &self.nonce, cnonce, authzid };
        if required("response")? != login.hash(Side::Client) {
            return Err(Failure::Refused);
        }
        let proof = format!("rspauth={}", login.hash(Side::Server)).into_bytes();
        Ok((user.to_owned(), proof))
    }
}

/// The values of a login that both sides know.
struct Login<'a> {
    user: &'a str,
    realm: &'a str,
    password: &'a str,
    nonce: &'a str,
    cnonce: &'a str,
    /// The user for whom the client wants to act, if it names one.
    authzid: Option<&'a str>,
}

#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

impl Login<'_> {
    /// The hash with which this side proves that it knows the password (RFC 2831, 2.1.2.1).
    fn hash(&self, side: Side) -> String {
        let secret = [latin(self.user), latin(self.realm), latin(self.password)].join(&b':');
        let mut a1 = md5::compute(secret).0.to_vec();
        for part in [Some(self.nonce), Some(self.cnonce), self.authzid].into_iter().flatten() {
            a1.push(b':');
            a1.extend(part.as_bytes());
        }
        let method = match side {
            Side::Client => "AUTHENTICATE",
            Side::Server => "",
        };
        let a2 = format!("{method}:{DIGEST_URI}");
        let hash = format!(
            "{:x}:{}:{COUNT}:{}:auth:{:x}",
            md5::compute(a1),
            self.nonce,
            self.cnonce,
            md5::compute(a2),
        );
        format!("{:x}", md5::compute(hash))
    }
}

/// In ISO 8859-1, if all characters are of it; otherwise in UTF-8 (RFC 2831, 2.1.2.1).
fn latin(text: &str) -> Vec<u8> {
    let bytes: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    bytes.unwrap_or_else(|_| text.as_bytes().to_vec())
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The directives of a token: `name=value,name="quoted value"`.
struct Directives(Vec<(String, String)>);

impl Directives {
    fn parse(token: &[u8], longest: usize) -> Result<Self, Malformed> {
        const MALFORMED: Malformed = Malformed("a token that is not of SASL DIGEST-MD5");
        if token.len() > longest {
            return Err(Malformed("a token that is too long for SASL DIGEST-MD5"));
        }
        let mut rest = std::str::from_utf8(token).map_err(|_| MALFORMED)?;
        let mut found = Vec::new();
        loop {
            // The list may have empty elements, and space around each.
            rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
            if rest.is_empty() {
                return Ok(Directives(found));
            }
            let (name, after) = rest.split_once('=').ok_or(MALFORMED)?;
            let name = name.trim();
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                return Err(MALFORMED);
            }
            let (value, after) = value(after.trim_start()).ok_or(MALFORMED)?;
            found.push((name.to_ascii_lowercase(), value));
            rest = after.trim_start_matches([' ', '\t', '\r', '\n']);
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(MALFORMED);
            }
        }
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The value of a directive that may be there once.
    fn one(&self, name: &'static str) -> Result<Option<&str>, Malformed> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let value = values.next();
        match values.next() {
            None => Ok(value),
            Some(_) => Err(Malformed("a token that has a directive twice")),
        }
    }
}

/// The value with which this text begins, and the text behind it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t', '\r', '\n']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (!value.is_empty() && !value.contains('"')).then(|| (value.to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), inner.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return inner.get(at + 1..).map(|rest| (value, rest)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A whole login. `Err` is the client's or the server's failure.
    fn login(user: &str, given: &str, known: Option<&str>) -> Result<String, Failure> {
        let (mut client, server) = (Client::new(user, given, "c0"), Server::new("s0"));
        let Step::Send(response) = client.step(&server.challenge())? else {
            panic!("the client has sent no response")
        };
        let (user, proof) = server.answer(&response, |_| known.map(str::to_owned))?;
        assert_eq!(client.step(&proof)?, Step::Done);
        Ok(user)
    }

    /// The example of RFC 2831, section 4, with ZooKeeper's service in the place of its own.
    #[test]
    fn the_client_answers_the_example_of_the_rfc() {
        let mut client = Client::new("chris", "secret", "OA6MHXh6VqTrRk");
        let challenge = b"realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",qop=\"auth\",\
            algorithm=md5-sess,charset=utf-8";
        let Ok(Step::Send(response)) = client.step(challenge) else { panic!("no response") };
        let response = String::from_utf8(response).unwrap();
        assert!(
            response.contains("username=\"chris\",realm=\"elwood.innosoft.com\""),
            "{response}"
        );
        assert!(response.contains("response=3d53f3e841d45c8a4dcf0f37c4725582"), "{response}");
        assert_eq!(client.step(b"rspauth=8c55a82deadfa98cf2a60488be40c74d"), Ok(Step::Done));
    }

    /// What Java's `DigestMD5Client` and `DigestMD5Server` have said to each other.
    #[test]
    fn the_server_takes_what_javas_client_sends() {
        let server = Server::new("W+Ae2jCCS5iU2I7iW1D+JeT6+mozn/L2sdPCOZ3i");
        assert_eq!(
            String::from_utf8(server.challenge()).unwrap(),
            "realm=\"zk-sasl-md5\",nonce=\"W+Ae2jCCS5iU2I7iW1D+JeT6+mozn/L2sdPCOZ3i\",\
             charset=utf-8,algorithm=md5-sess"
        );
        let response = "charset=utf-8,username=\"chris\",realm=\"zk-sasl-md5\",\
             nonce=\"W+Ae2jCCS5iU2I7iW1D+JeT6+mozn/L2sdPCOZ3i\",nc=00000001,\
             cnonce=\"XFbmHZPmEoe6u7a8DpPEZ7GECzxrkUVRUPAI0owY\",\
             digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,\
             response=e764b9205d3f9a8baf9d3169d8c5fa03,qop=auth,authzid=\"chris\"";
        let answer = server.answer(response.as_bytes(), |_| Some("secret".into()));
        let proof = b"rspauth=558ab26962e03b3bc92609f0d4f79816".to_vec();
        assert_eq!(answer, Ok(("chris".into(), proof)));
    }

    #[test]
    fn the_right_password_lets_the_user_in_whatever_its_letters() {
        for (user, password) in
            [("alice", "secret"), ("a\"l\\i,ce", "p=w, \"x\\"), ("zoë", "käse"), ("錠", "ключ")]
        {
            assert_eq!(login(user, password, Some(password)), Ok(user.to_owned()));
        }
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_are_refused_alike() {
        assert_eq!(login("alice", "wrong", Some("secret")), Err(Failure::Refused));
        assert_eq!(login("alice", "secret", None), Err(Failure::Refused));
    }

    #[test]
    fn a_server_that_proves_nothing_is_not_trusted() {
        for proof in [&b""[..], b"rspauth=00000000000000000000000000000000", b"ok=yes"] {
            let mut client = Client::new("alice", "secret", "c0");
            assert!(client.step(&Server::new("s0").challenge()).is_ok());
            assert_eq!(client.step(proof), Err(Failure::NotProven));
        }
    }

    #[test]
    fn a_response_to_an_earlier_challenge_lets_nobody_in() {
        let (mut client, earlier) = (Client::new("alice", "secret", "c0"), Server::new("s0"));
        let Ok(Step::Send(response)) = client.step(&earlier.challenge()) else { panic!("none") };
        let answer = Server::new("s1").answer(&response, |_| Some("secret".into()));
        assert!(matches!(answer, Err(Failure::Malformed(_))), "{answer:?}");
    }

    #[test]
    fn what_is_not_the_mechanism_is_refused_with_a_reason() {
        for challenge in [
            &b""[..],
            b"nonce=\"s0\",algorithm=md5",
            b"nonce=\"s0\",algorithm=md5-sess,qop=\"auth-int,auth-conf\"",
            b"algorithm=md5-sess",
            b"nonce=\"\",algorithm=md5-sess",
            b"nonce=\"a\",nonce=\"b\",algorithm=md5-sess",
            b"nonce=\"s0",
            b"nonce=\"s0\"algorithm=md5-sess",
            b"\xff\xfe",
            b"= = =",
            &[b'a'; 1 << 16],
        ] {
            let mut client = Client::new("alice", "secret", "c0");
            let step = client.step(challenge);
            assert!(matches!(step, Err(Failure::Malformed(_))), "{challenge:?}: {step:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_nothing_panics(token in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut client = Client::new("alice", "secret", "c0");
            let _ = client.step(&token);
            let _ = client.step(&token);
            let _ = Server::new("s0").answer(&token, |_| Some("secret".into()));
        }

        #[test]
        fn whatever_the_directives_nothing_panics(token in "([a-z-]{0,8}[=, ]{1,2}\"?[a-z\\\\\"]{0,5}\"?,?){0,6}") {
            let mut client = Client::new("alice", "secret", "c0");
            let _ = client.step(token.as_bytes());
            let _ = Server::new("s0").answer(token.as_bytes(), |_| Some("secret".into()));
        }

        #[test]
        fn every_user_gets_in_with_his_password_alone(user in "\\PC{1,20}", password in "\\PC{0,20}", other in "\\PC{0,20}") {
            prop_assert_eq!(login(&user, &password, Some(&password)), Ok(user.clone()));
            if latin(&password) != latin(&other) {
                prop_assert_eq!(login(&user, &password, Some(&other)), Err(Failure::Refused));
            }
        }
    }
}
