//! Which login each server asks for.
//!
//! No server tells it in words, so each is tried: with a session that has no credentials, no
//! password and a request that reads. The session begins a login by SASL, and goes no further than
//! the server's first answer:
//!
//! | the server has | its answer to an empty token |
//! | --- | --- |
//! | DIGEST-MD5 | the challenge |
//! | GSSAPI | a refusal: no token of Kerberos is empty |
//! | no SASL | no token |
//!
//! Then it reads a node, which a server that requires a login refuses (`enforce.auth.enabled`,
//! `sessionRequireClientSASLAuth`).
//!
//! It costs each server a session, two writes, a line in its log if it has no SASL, and one if it
//! requires a login. A server with GSSAPI writes two warnings, the first with a stack trace, and is
//! perhaps asked twice.

use std::io;
use std::time::Duration;

use zk_wire::code::{err, op};
use zk_wire::record::{ConnectReply, ConnectRequest, Reader, ReplyHeader, Writer};

use super::super::words::{Stream, Words};
use super::ensemble::Hosts;
use super::report::{Findings, Level};
use crate::cli::{Common, SaslArg};
use crate::connect;

/// The session's timeout. A server that refuses the session closes the connection, and takes no
/// close of the session, which ends by this then.
const SESSION: Duration = Duration::from_secs(4);
/// The longest frame of an answer.
const LONGEST: usize = 64 << 10;
/// The xid of each request.
const XID: i32 = 1;

/// The login that a server asks for, as far as it could be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Login {
    is_required: Option<bool>,
    sasl: Option<Sasl>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sasl {
    DigestMd5,
    Gssapi,
    Nothing,
}

/// Finds out what each server asks for, and whether this client has it. False: it has no login, and
/// each server requires one. A session would be refused then, and stay at the servers until its
/// timeout, because they take no close without a login either.
pub fn check(common: &Common, hosts: &Hosts, findings: &mut Findings) -> bool {
    let words = Words::new(common);
    let mut known: Vec<(&str, Login)> = Vec::new();
    for host in &hosts.serving {
        let silent = hosts.silent.iter().find(|(of, _)| of == host).map(|(_, why)| why.clone());
        match silent.map_or_else(|| login_at(&words, host), Err) {
            Ok(login) => {
                tell(common, host, login, findings);
                known.push((host, login));
            }
            Err(why) => {
                findings.ok("login", format!("which login {host} asks for is not known: {why}"));
            }
        }
    }
    differences(&known, findings);
    own(common, findings);
    let is_kept_out = !connect::has_identity(common)
        && !known.is_empty()
        && known.len() == hosts.serving.len()
        && known.iter().all(|(_, login)| login.is_required == Some(true));
    if is_kept_out {
        let text = "no server serves this client without a login";
        findings.add("session", Level::Fault, text, "nothing else can be checked without one");
    }
    !is_kept_out
}

fn tell(common: &Common, host: &str, login: Login, findings: &mut Findings) {
    let text = format!("{host} {}", words(login));
    let other = match (&common.sasl, login.sasl) {
        (Some(SaslArg::Gssapi(_)), Some(Sasl::DigestMd5)) => Some("GSSAPI"),
        (Some(SaslArg::DigestMd5(_)), Some(Sasl::Gssapi | Sasl::Nothing)) => Some("DIGEST-MD5"),
        _ => None,
    };
    if let Some(other) = other {
        let text = format!("{text}, and this client logs in by SASL {other}");
        let advice = match login.sasl {
            Some(Sasl::DigestMd5) => "give --sasl digest-md5:FILE",
            Some(Sasl::Gssapi) => "give --sasl gssapi",
            _ => {
                "leave --sasl out, or give the server a section Server in a JAAS file and the \
                 authProvider for sasl"
            }
        };
        return findings.add("login", Level::Fault, text, advice);
    }
    if login.is_required == Some(true) && !connect::has_identity(common) {
        let advice = match login.sasl {
            Some(Sasl::DigestMd5) => {
                "give --sasl digest-md5:FILE, or --auth if it enforces another scheme \
                 (enforce.auth.schemes in zoo.cfg)"
            }
            Some(Sasl::Gssapi) => {
                "give --sasl gssapi, or --auth if it enforces another scheme \
                 (enforce.auth.schemes in zoo.cfg)"
            }
            _ => "give --auth with a scheme that it enforces (enforce.auth.schemes in zoo.cfg)",
        };
        return findings.add("login", Level::Fault, text, advice);
    }
    findings.ok("login", text);
}

fn words(Login { is_required, sasl }: Login) -> String {
    let required = match is_required {
        Some(true) => "requires a login",
        Some(false) => "requires no login",
        None => "does not show whether it requires a login",
    };
    let sasl = match sasl {
        Some(Sasl::DigestMd5) => "offers SASL DIGEST-MD5",
        Some(Sasl::Gssapi) => "offers SASL GSSAPI (Kerberos)",
        Some(Sasl::Nothing) => "has no SASL that it shows",
        None => "does not show whether it has SASL",
    };
    format!("{required}, and {sasl}")
}

/// A session may come to each server.
fn differences(known: &[(&str, Login)], findings: &mut Findings) {
    let Some((first, login)) = known.first() else { return };
    for (other, of_other) in known.iter().filter(|(_, one)| one != login) {
        findings.add(
            "login",
            Level::Warning,
            format!("the servers differ: {first} {}; {other} {}", words(*login), words(*of_other)),
            "give all servers the same JAAS file, authProvider and enforce.auth settings: a \
             session that comes to a server which refuses its login has to go on to another, and \
             loses its locks if none takes it",
        );
    }
}

/// How this client logs in.
fn own(common: &Common, findings: &mut Findings) {
    match &common.sasl {
        Some(SaslArg::DigestMd5(_)) if !connect::is_encrypted(common) => findings.add(
            "login",
            Level::Note,
            "this client logs in by SASL DIGEST-MD5 without TLS: the password itself is not sent, \
             but everybody on the way can try passwords against what is sent",
            "connect over TLS (--tls-ca), and let the password be long and random",
        ),
        Some(SaslArg::DigestMd5(_)) => {
            findings.ok("login", "this client logs in by SASL DIGEST-MD5, over TLS");
        }
        Some(SaslArg::Gssapi(_)) => findings.ok("login", "this client logs in by SASL GSSAPI"),
        Some(SaslArg::Unknown) | None => {}
    }
}

fn login_at(words: &Words, host: &str) -> Result<Login, String> {
    let mut asked = Asked::open(words, host)?;
    let (sasl, mut is_required) = match asked.begins_sasl() {
        Ok((err::OK, token)) => (Some(of_token(&token)), None),
        // Where SASL itself is required, the refusal of a token says so.
        Ok((err::REQUIRES_AUTH, _)) => (Some(Sasl::Gssapi), Some(true)),
        Ok((err::AUTH_FAILED, _)) => (Some(Sasl::Gssapi), None),
        Ok(_) | Err(_) => (None, None),
    };
    if !matches!(sasl, Some(Sasl::DigestMd5 | Sasl::Nothing)) && is_required.is_none() {
        asked = Asked::open(words, host)?; // that connection is closed
    }
    if is_required.is_none() {
        is_required =
            Some(asked.reads().map_err(|e| words.silence(&e).why())? == err::REQUIRES_AUTH);
    }
    asked.closes();
    Ok(Login { is_required, sasl })
}

/// What a server has that answers a first, empty token with this.
fn of_token(token: &[u8]) -> Sasl {
    let is_challenge = token.windows(10).any(|part| part == b"algorithm=");
    if is_challenge { Sasl::DigestMd5 } else { Sasl::Nothing }
}

/// A session of its own, on one connection.
struct Asked(Box<dyn Stream>);

impl Asked {
    fn open(words: &Words, host: &str) -> Result<Asked, String> {
        let mut asked = Asked(words.open(host).map_err(|silence| silence.why())?);
        let begin = || -> io::Result<ConnectReply> {
            let request = ConnectRequest {
                last_zxid: 0,
                timeout_ms: i32::try_from(SESSION.as_millis()).unwrap_or(i32::MAX),
                session_id: 0,
                password: &[0; 16],
            };
            let answer = asked.exchange(&request.frame())?;
            ConnectReply::read(&answer).map_err(|_| garbled())
        };
        match { begin }() {
            Ok(reply) if reply.session_id != 0 => Ok(asked),
            Ok(_) => Err("it gives no session".to_owned()),
            Err(e) => Err(words.silence(&e).why()),
        }
    }

    /// The code of the answer to an empty token, and the server's token.
    fn begins_sasl(&mut self) -> io::Result<(i32, Vec<u8>)> {
        let (code, body) = self.asks(Writer::request(XID, op::SASL).buffer(&[]))?;
        let token = Reader::new(&body).nullable_buffer().ok().flatten().unwrap_or_default();
        Ok((code, token.to_vec()))
    }

    /// The code of the answer to a read.
    fn reads(&mut self) -> io::Result<i32> {
        let request = Writer::request(XID, op::EXISTS).buffer(b"/").bool(false);
        self.asks(request).map(|(code, _)| code)
    }

    /// Ends the session, if the server takes that.
    fn closes(&mut self) {
        let _ = self.asks(Writer::request(XID, op::CLOSE));
    }

    fn asks(&mut self, request: Writer) -> io::Result<(i32, Vec<u8>)> {
        let answer = self.exchange(&request.frame())?;
        let (header, body) = ReplyHeader::read(&answer).map_err(|_| garbled())?;
        if header.xid == XID { Ok((header.err, body.to_vec())) } else { Err(garbled()) }
    }

    fn exchange(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(frame)?;
        self.0.flush()?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).map_err(|_| garbled())?;
        if length > LONGEST {
            return Err(garbled());
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }
}

fn garbled() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_known_by_its_algorithm() {
        let challenge = zk_wire::digest_md5::Server::new("nonce".to_owned()).challenge();
        assert_eq!(of_token(&challenge), Sasl::DigestMd5);
        assert_eq!(of_token(b""), Sasl::Nothing);
    }

    #[test]
    fn servers_that_differ_are_told_and_those_that_are_alike_are_not() {
        let has = |is_required, sasl| Login { is_required: Some(is_required), sasl: Some(sasl) };
        let found = |known: &[(&str, Login)]| {
            let mut findings = Findings::default();
            differences(known, &mut findings);
            findings.len()
        };
        let digest = has(false, Sasl::DigestMd5);
        assert_eq!(found(&[]), 0);
        assert_eq!(found(&[("a:1", digest), ("b:1", digest)]), 0);
        assert_eq!(found(&[("a:1", digest), ("b:1", has(false, Sasl::Nothing))]), 1);
        assert_eq!(found(&[("a:1", digest), ("b:1", has(true, Sasl::DigestMd5))]), 1);
    }
}
