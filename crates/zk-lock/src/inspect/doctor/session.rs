//! The session: its timeout against the servers' tick and limits, whether its connection is
//! encrypted, and as whom the servers know it.

use std::time::Duration;

use zk_mutex::zk_session::{AclEntry, CreateMode, Error};
use zk_mutex::{Acl, ZkSession};

use super::ensemble::{Hosts, value};
use super::nodes::own_name;
use super::report::{Findings, Level};
use crate::cli::{Common, DoctorArgs};
use crate::exit::Failure;
use crate::time::show;
use crate::{connect, zk};

/// The granted timeout, the servers' tick, and whether all servers have the same limits.
pub fn timeouts(session: &ZkSession, args: &DoctorArgs, hosts: &Hosts, findings: &mut Findings) {
    let Hosts { settings, no_settings, .. } = hosts;
    for key in ["tickTime=", "minSessionTimeout=", "maxSessionTimeout="] {
        let mut told = settings.iter().filter_map(|(host, conf)| Some((host, value(conf, key)?)));
        let Some((first, wanted)) = told.next() else { continue };
        if let Some((other, has)) = told.find(|(_, has)| *has != wanted) {
            findings.add(
                "timeout",
                Level::Fault,
                format!("{first} has {key}{wanted}, and {other} has {key}{has}"),
                "give all servers the same: a session that moves to a server with a shorter \
                 timeout may end before its lease, and then two could hold a lock",
            );
        }
    }
    let granted = session.status().timeout;
    if granted == args.session {
        findings.ok("timeout", format!("a session timeout of {} is granted", show(granted)));
    } else {
        findings.add(
            "timeout",
            Level::Warning,
            format!(
                "a session timeout of {} was asked for, and {} is granted",
                show(args.session),
                show(granted)
            ),
            "ask for what the servers grant, or change minSessionTimeout or maxSessionTimeout in \
             zoo.cfg",
        );
    }
    if granted < Duration::from_secs(4) {
        findings.add(
            "timeout",
            Level::Warning,
            format!("with a session timeout of {} a short pause loses locks", show(granted)),
            "10 s or more suit most programs",
        );
    }
    let setting = |key: &str| -> Option<Duration> {
        let found = settings.iter().find_map(|(_, conf)| value(conf, key))?;
        found.parse().ok().map(Duration::from_millis)
    };
    let (Some(tick), least) = (setting("tickTime="), setting("minSessionTimeout=")) else {
        findings.add(
            "tick",
            Level::Note,
            match no_settings {
                Some(why) => format!("no server tells its tick ({why})"),
                None => "no server tells its tick".to_owned(),
            },
            "see that the session timeout is at least two ticks: tickTime in zoo.cfg, or tick_time \
             from the server's admin port (curl http://HOST:8080/commands/configuration)",
        );
        return;
    };
    if tick * 2 > granted {
        findings.add(
            "tick",
            Level::Fault,
            format!(
                "the tick is {}, more than half of the session timeout, {}: two could hold a lock",
                show(tick),
                show(granted)
            ),
            "ask for a session timeout of two ticks or more, or state the tick \
             (Config::server_tick)",
        );
    } else if least.is_some_and(|least| least < tick * 2) {
        findings.add(
            "tick",
            Level::Warning,
            format!(
                "minSessionTimeout ({}) is below two ticks ({})",
                show(least.unwrap_or_default()),
                show(tick * 2)
            ),
            "a program that asks for less than two ticks is not safe unless it states the tick; \
             remove minSessionTimeout",
        );
    } else {
        findings.ok("tick", format!("the tick is {}", show(tick)));
    }
}

/// Whether the connection is encrypted, and whether the client has a certificate.
pub fn encryption(common: &Common, findings: &mut Findings) {
    #[cfg(feature = "tls")]
    if connect::is_encrypted(common) {
        let text = match &common.tls.tls_cert {
            Some(file) => format!(
                "connections are encrypted; this client has the certificate {}",
                file.display()
            ),
            None => "connections are encrypted; this client has no certificate".to_owned(),
        };
        return findings.ok("tls", text);
    }
    #[cfg(not(feature = "tls"))]
    let _ = common;
    findings.add(
        "tls",
        Level::Note,
        "connections are not encrypted: everybody on the way can read and change what is sent",
        "give the servers a secureClientPort and connect to it with --tls-ca, or keep ZooKeeper in \
         a network of its own",
    );
}

/// The identities that the servers know this client by; `None` if they cannot be found out. A node
/// that only its creator may use shows them.
pub fn identities(
    common: &Common,
    session: &ZkSession,
    folder: &str,
    findings: &mut Findings,
) -> Result<Option<Vec<AclEntry>>, Failure> {
    if !connect::has_identity(common) {
        return Ok(Some(Vec::new()));
    }
    let requests = session.zookeeper().requests();
    let path = zk::join(folder, &own_name());
    let known = match requests.create(&path, b"", CreateMode::Ephemeral, &Acl::CreatorAll) {
        Ok(_) => {
            let known = zk::acl(session, &path)?.unwrap_or_default();
            let _ = requests.delete(&path, None); // else the end of the session deletes it
            known
        }
        Err(Error::Server { code, .. }) if code == "InvalidACL" => Vec::new(),
        Err(_) => return Ok(None), // that has its own finding
    };
    let names = known.iter().map(name).collect::<Vec<_>>().join(", ");
    if known.iter().any(|entry| entry.scheme == "x509") || !has_certificate(common) {
        findings.ok("identity", format!("the servers know this client as {names}"));
    } else {
        let but = match names.as_str() {
            "" => String::new(),
            names => format!(", but as {names}"),
        };
        findings.add(
            "identity",
            Level::Warning,
            format!("the servers do not know this client by its certificate{but}"),
            "no ACL can name it so: let the servers ask for certificates (ssl.clientAuth in \
             zoo.cfg), and see that they have the authProvider for x509",
        );
    }
    Ok(Some(known))
}

fn has_certificate(common: &Common) -> bool {
    #[cfg(feature = "tls")]
    if common.tls.tls_cert.is_some() {
        return true;
    }
    let _ = common;
    false
}

/// An identity without what the scheme keeps secret.
fn name(entry: &AclEntry) -> String {
    let id = match entry.scheme.as_str() {
        "digest" => entry.id.split(':').next().unwrap_or_default(),
        _ => &entry.id,
    };
    format!("{}:{id}", entry.scheme)
}
