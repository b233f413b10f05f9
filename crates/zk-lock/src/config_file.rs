//! The file that may have the connection's options: `zk-lock.toml`.
//!
//! Its keys are the names of the options. Nothing is looked for in the current directory: that of a
//! job may belong to somebody else, who could then send the job to a server of his own.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::cli::{self, SaslArg, Setting, Source};
use crate::exit::{Failure, lacks_resources};
use crate::{connect, time};

const NAME: &str = "zk-lock.toml";

/// The form of a value, which is checked here so that the error names the file.
#[derive(Clone, Copy)]
enum Form {
    Text,
    #[cfg(feature = "tls")]
    File,
    Time,
    Credentials,
    Sasl,
}

#[cfg(feature = "tls")]
const TLS_KEYS: &[(&str, Form)] =
    &[("tls-ca", Form::File), ("tls-cert", Form::File), ("tls-key", Form::File)];
#[cfg(not(feature = "tls"))]
const TLS_KEYS: &[(&str, Form)] = &[];

const KEYS: [(&str, Form); 5] = [
    ("connect", Form::Text),
    ("auth", Form::Credentials),
    ("sasl", Form::Sasl),
    ("sasl-server-host", Form::Text),
    ("connect-timeout", Form::Time),
];

/// The settings of the file that was given, or of the first default file that exists.
pub fn read(given: Option<&Path>) -> Result<Vec<Setting>, Failure> {
    if let Some(file) = given {
        return parse(file, &text(file).map_err(|e| failed(file, &e))?);
    }
    for file in default_files() {
        match text(&file) {
            Ok(text) => return parse(&file, &text),
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(failed(&file, &e)),
        }
    }
    Ok(Vec::new())
}

/// The file of this user, and that of the host.
fn default_files() -> Vec<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|directory| directory.is_absolute())
    };
    let own = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    own.into_iter().chain([PathBuf::from("/etc")]).map(|directory| directory.join(NAME)).collect()
}

fn is_missing(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(e.kind(), NotFound | NotADirectory)
}

fn failed(file: &Path, e: &std::io::Error) -> Failure {
    let text = format!("the file of settings {}: {e}", file.display());
    if lacks_resources(&text) { Failure::system(text) } else { Failure::usage(text) }
}

fn text(file: &Path) -> std::io::Result<String> {
    let mut open = std::fs::File::open(file)?;
    if !is_trusted(&open.metadata()?) {
        let why = "it belongs to another user, or everybody may write to it; it decides which \
                   servers are asked, so only root or you may";
        return Err(std::io::Error::other(why));
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut open, &mut text)?;
    Ok(text)
}

/// Whether nobody but this user and root can have written it. A pipe was made by the process that
/// has started this one, so it is trusted.
fn is_trusted(metadata: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    !metadata.is_file() || [0, own].contains(&metadata.uid()) && metadata.mode() & 0o002 == 0
}

fn parse(file: &Path, text: &str) -> Result<Vec<Setting>, Failure> {
    let wrong = |what: String| Failure::usage(format!("{}: {what}", file.display()));
    let table: Table = text.parse().map_err(|e: toml::de::Error| {
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        wrong(format!("line {}: {}", before.matches('\n').count() + 1, e.message()))
    })?;
    let known: Vec<(&str, Form)> = KEYS.iter().chain(TLS_KEYS).copied().collect();
    let setting = |(key, value): (&String, &Value)| {
        let Some((_, form)) = known.iter().find(|(name, _)| name == key) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no setting {key}; there are {}", names.join(", ")));
        };
        let values = values(*form, value).map_err(|what| format!("{key}: {what}"))?;
        Ok(Setting { name: key.clone(), values })
    };
    table.iter().map(setting).collect::<Result<_, String>>().map_err(wrong)
}

fn values(form: Form, value: &Value) -> Result<Vec<String>, String> {
    let all: Vec<String> = match (form, value) {
        (_, Value::String(text)) => vec![text.clone()],
        (Form::Time, Value::Integer(seconds)) => vec![seconds.to_string()],
        (Form::Credentials, Value::Array(all)) => {
            let text = |one: &Value| one.as_str().map(str::to_owned);
            all.iter().map(text).collect::<Option<_>>().ok_or("write each of them as text")?
        }
        _ => return Err("write it as text, between quotation marks".to_owned()),
    };
    for one in &all {
        match form {
            Form::Text if one.is_empty() => return Err("it is empty".to_owned()),
            Form::Text => {}
            #[cfg(feature = "tls")]
            Form::File => check_absolute(one)?,
            Form::Time => drop(time::parse(one)?),
            Form::Credentials => check_source(&cli::credentials(one)?.source)?,
            Form::Sasl => match cli::sasl(one)? {
                SaslArg::DigestMd5(source) => check_source(&source)?,
                SaslArg::Gssapi(_) | SaslArg::Unknown => {}
            },
        }
    }
    Ok(all)
}

fn check_source(source: &Source) -> Result<(), String> {
    match source {
        Source::File(path) => check_absolute(path),
        Source::Env(name) if connect::is_variable(name) => Ok(()),
        Source::Env(_) => Err(connect::NO_CREDENTIALS_HERE.to_owned()),
    }
}

/// A relative path would count from the directory in which a job runs, which the author of the file
/// does not know. So it is refused.
fn check_absolute(path: &str) -> Result<(), String> {
    if path.starts_with('/') {
        return Ok(());
    }
    Err(format!("{path} is no absolute path: write it from '/' on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
        let settings = parse(Path::new("/etc/zk-lock.toml"), text).map_err(|e| e.message)?;
        Ok(settings.into_iter().map(|one| (one.name, one.values)).collect())
    }

    #[test]
    fn a_setting_has_the_name_of_its_option() {
        let pair = |name: &str, values: &[&str]| {
            (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        };
        let file = "# the test servers\nconnect = 'a:1,b:2/app'\nconnect-timeout = 5\n\
                    auth = ['digest:/etc/zk.secret', 'digest:SECRET']\n";
        let wanted = [
            pair("auth", &["digest:/etc/zk.secret", "digest:SECRET"]),
            pair("connect", &["a:1,b:2/app"]),
            pair("connect-timeout", &["5"]),
        ];
        assert_eq!(read(file), Ok(wanted.to_vec()));
        assert_eq!(read("auth = 'digest:SECRET'"), Ok(vec![pair("auth", &["digest:SECRET"])]));
        let sasl = "sasl = 'gssapi:alice'\nsasl-server-host = 'zk1.example'";
        let wanted = [pair("sasl", &["gssapi:alice"]), pair("sasl-server-host", &["zk1.example"])];
        assert_eq!(read(sasl), Ok(wanted.to_vec()));
        assert_eq!(read(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_place() {
        for (file, says) in [
            ("server = 'a:1'", "/etc/zk-lock.toml: there is no setting server; there are connect,"),
            ("connect = ''", "/etc/zk-lock.toml: connect: it is empty"),
            ("connect = 7", "connect: write it as text"),
            ("\n\nconnect = a:1", "/etc/zk-lock.toml: line 3: "),
            ("connect = 'a'\nconnect = 'b'", "line 2: duplicate key"),
            ("connect-timeout = 'soon'", "connect-timeout: write a duration as"),
            ("auth = 'digest:secrets/zk'", "auth: secrets/zk is no absolute path"),
            ("auth = 'digest:orders:pass'", "auth: behind the scheme stands a file"),
            ("auth = [7]", "auth: write each of them as text"),
            ("sasl = 'digest-md5:secrets/zk'", "sasl: secrets/zk is no absolute path"),
            ("sasl = 'digest-md5:orders:pass'", "sasl: behind the scheme stands a file"),
            ("sasl = 'orders:pass'", "sasl: write digest-md5:FILE or digest-md5:VARIABLE"),
            ("sasl = ['gssapi']", "sasl: write it as text"),
            ("sasl-server-host = ''", "sasl-server-host: it is empty"),
            ("[tls]\nca = '/etc/ca.pem'", "there is no setting tls;"),
        ] {
            let said = read(file).expect_err(file);
            assert!(said.contains(says), "{file}: {said}");
        }
    }
}
