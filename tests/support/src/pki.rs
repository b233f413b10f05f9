//! Certificates: a CA of the test's own, and what it signs, as PEM files.
use super::scratch;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// In the runner's process.
static SHARED: OnceLock<Pki> = OnceLock::new();

/// A CA, with its certificate and its key in a directory.
#[derive(Clone)]
pub struct Pki {
    dir: PathBuf,
    name: String,
}

/// A certificate and its private key.
#[derive(Clone, Debug)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Both in one file.
    pub both: PathBuf,
}

/// What a certificate is to say.
#[derive(Clone)]
pub struct Leaf {
    /// The subject's common name; its organization is `Example`.
    pub subject: String,
    /// Host names and addresses.
    pub names: Vec<String>,
    pub has_expired: bool,
}

impl Leaf {
    pub fn server(names: &[&str]) -> Leaf {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Leaf { subject: "server".to_owned(), names, has_expired: false }
    }

    pub fn client(subject: &str) -> Leaf {
        Leaf { subject: subject.to_owned(), names: Vec::new(), has_expired: false }
    }

    pub fn expired(self) -> Leaf {
        Leaf { has_expired: true, ..self }
    }
}

impl Pki {
    /// Makes a CA of this name, with its files in this directory.
    pub fn new(dir: &Path, name: &str) -> Pki {
        let pki = Pki { dir: dir.to_owned(), name: name.to_owned() };
        let key = KeyPair::generate().expect("a key");
        let certificate = pki.params().self_signed(&key).expect("a CA");
        write(&pki.ca_file(), &certificate.pem());
        write(&pki.ca_key(), &key.serialize_pem());
        pki
    }

    /// Makes the CA that all processes of this run share.
    pub fn make_shared(run: &Path) {
        SHARED.get_or_init(|| Pki::new(run, "run"));
    }

    /// The CA that all processes of this run share.
    pub fn shared() -> Pki {
        if let Some(pki) = SHARED.get() {
            return pki.clone();
        }
        let run = env::var_os(scratch::VAR).expect("scenarios are run by the runner");
        Pki { dir: run.into(), name: "run".to_owned() }
    }

    pub fn ca_file(&self) -> PathBuf {
        self.dir.join(format!("{}-ca.pem", self.name))
    }

    fn ca_key(&self) -> PathBuf {
        self.dir.join(format!("{}-ca.key", self.name))
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&format!("{} CA", self.name));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Signs a certificate with a new key; in the place of former files of this name.
    pub fn issue(&self, file: &str, leaf: &Leaf) -> Files {
        let mut params = CertificateParams::new(leaf.names.clone()).expect("names");
        params.distinguished_name = subject(&leaf.subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match leaf.names.is_empty() {
            true => ExtendedKeyUsagePurpose::ClientAuth,
            false => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        if leaf.has_expired {
            params.not_after = date_time_ymd(2020, 1, 2);
        }
        let ca = fs::read_to_string(self.ca_key()).expect("the key of the CA");
        let issuer = Issuer::new(self.params(), KeyPair::from_pem(&ca).expect("a key"));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
        let path = |end: &str| self.dir.join(format!("{}-{file}.{end}", self.name));
        let files = Files { certificate: path("pem"), key: path("key"), both: path("both.pem") };
        write(&files.certificate, &certificate);
        write(&files.key, &key.serialize_pem());
        write(&files.both, &(key.serialize_pem() + &certificate));
        files
    }
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Example");
    subject.push(DnType::CommonName, name);
    subject
}

/// Replaces the file as a whole.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).expect("a file of the CA");
}
