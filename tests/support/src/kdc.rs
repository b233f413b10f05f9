//! A Kerberos KDC on loopback, of Debian's MIT Kerberos. Its database, its configuration and its
//! keys are in a directory of the test; nothing of /etc and no system service is used.
use super::{Scratch, own_loopback, program::Program, until};
use parking_lot::Mutex;
use std::{
    env,
    ffi::OsString,
    fs,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub const REALM: &str = "ZK.TEST";
/// Below it only root may listen.
const PORT: u16 = 8800;
const START_LIMIT: Duration = Duration::from_secs(30);
const INSTALL: &str =
    "apt-get install -y --no-install-recommends krb5-kdc krb5-admin-server krb5-user libfaketime";

/// A KDC of the realm ZK.TEST that serves UDP and TCP. On drop it ends, and its files are deleted.
pub struct Kdc {
    address: SocketAddr,
    running: Mutex<Option<Program>>,
    dir: Scratch, // the last field: removed after the KDC is gone
}

impl Kdc {
    /// A KDC that serves, without principals of users and services.
    #[track_caller]
    pub fn start() -> Kdc {
        let address = SocketAddr::from((own_loopback(), PORT));
        let kdc = Kdc { address, running: Mutex::new(None), dir: Scratch::new("kdc") };
        fs::write(kdc.configuration(), client_side(address)).expect("krb5.conf");
        fs::write(kdc.path("kdc.conf"), kdc.server_side()).expect("kdc.conf");
        kdc.tool("kdb5_util", &["create", "-s", "-r", REALM, "-P", "master"]);
        kdc.run(&[]);
        kdc
    }

    /// The realm's krb5.conf for clients and services: it names this KDC, and DNS plays no part.
    pub fn configuration(&self) -> PathBuf {
        self.path("krb5.conf")
    }

    /// What a client needs in its environment: where the KDC is, and an empty credential cache of
    /// its own. Add `KRB5_CLIENT_KTNAME`, or fill the cache with [`Kdc::kinit`].
    ///
    /// GSSAPI reads the environment of its process, so a client with another environment is another
    /// process.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let cache = format!("ccache-{}", uuid::Uuid::new_v4().simple());
        vec![("KRB5_CONFIG", self.configuration().into()), ("KRB5CCNAME", self.path(&cache).into())]
    }

    /// The environment of a client that logs in by the keytab of this principal, whenever it has no
    /// valid ticket.
    #[track_caller]
    pub fn environment_with_keytab(&self, principal: &str) -> Vec<(&'static str, OsString)> {
        let mut all = self.environment();
        all.push(("KRB5_CLIENT_KTNAME", self.keytab(principal).into()));
        all
    }

    /// The environment of a client with a ticket of this principal that lives so long, and without
    /// a keytab.
    #[track_caller]
    pub fn environment_with_ticket(
        &self,
        principal: &str,
        life: Duration,
    ) -> Vec<(&'static str, OsString)> {
        let all = self.environment();
        let cache = all.iter().find(|(name, _)| *name == "KRB5CCNAME");
        self.kinit(principal, Path::new(&cache.expect("the cache").1), life);
        all
    }

    /// Adds a principal with a random key, such as `alice` or `zookeeper/localhost`.
    #[track_caller]
    pub fn add(&self, principal: &str) {
        self.tool("kadmin.local", &["addprinc", "-randkey", principal]);
    }

    /// The principal's file of keys, with its key of the first call. Adds the principal if there is
    /// none.
    #[track_caller]
    pub fn keytab(&self, principal: &str) -> PathBuf {
        let path = self.path(&format!("{}.keytab", principal.replace('/', "_")));
        if path.exists() {
            return path;
        }
        let known = self.tool("kadmin.local", &["listprincs"]);
        if !known.lines().any(|line| line == format!("{principal}@{REALM}")) {
            self.add(principal);
        }
        self.add_key(principal, &path);
        path
    }

    #[track_caller]
    fn add_key(&self, principal: &str, keytab: &Path) {
        let file = keytab.to_str().expect("a path in UTF-8");
        self.tool("kadmin.local", &["ktadd", "-k", file, "-norandkey", principal]);
    }

    /// Gives the principal a new key: its keytab is stale.
    #[track_caller]
    pub fn rekey(&self, principal: &str) {
        self.tool("kadmin.local", &["cpw", "-randkey", principal]);
    }

    /// Gives the principal a new key, and adds that to its keytab, beside the old one.
    #[track_caller]
    pub fn rekey_with_keytab(&self, principal: &str) {
        let keytab = self.keytab(principal);
        self.rekey(principal);
        self.add_key(principal, &keytab);
    }

    /// The KDC gives the principal a ticket only if the request shows that it has the key, as most
    /// KDCs do.
    #[track_caller]
    pub fn require_preauthentication(&self, principal: &str) {
        self.tool("kadmin.local", &["modprinc", "+requires_preauth", principal]);
    }

    /// Deletes the principal. Its keytabs and tickets stay.
    #[track_caller]
    pub fn delete(&self, principal: &str) {
        self.tool("kadmin.local", &["delprinc", "-force", principal]);
    }

    /// The tickets of the principal live no longer than so many seconds. If it is a service, so do
    /// the tickets to it.
    #[track_caller]
    pub fn limit_life(&self, principal: &str, life: Duration) {
        let life = format!("{} seconds", life.as_secs());
        self.tool("kadmin.local", &["modprinc", "-maxlife", &life, principal]);
    }

    /// Gets a ticket for the principal, which lives so many seconds, into this credential cache.
    #[track_caller]
    pub fn kinit(&self, principal: &str, cache: &Path, life: Duration) {
        let keytab = self.keytab(principal);
        let [keytab, cache] = [&keytab, cache].map(|path| path.to_str().expect("a path in UTF-8"));
        let life = format!("{}s", life.as_secs());
        self.tool("kinit", &["-l", &life, "-k", "-t", keytab, "-c", cache, principal]);
    }

    /// One of Kerberos' tools, such as kvno, with this KDC in its environment. It speaks English.
    pub fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(find(tool));
        command.envs(self.server_variables()).env("LC_ALL", "C");
        command
    }

    /// What the credential cache has, as klist shows it; None if it has no valid ticket.
    pub fn klist(&self, cache: &Path) -> Option<String> {
        let is_valid =
            self.command("klist").arg("-s").arg(cache).status().is_ok_and(|s| s.success());
        let said = self.command("klist").arg(cache).output().ok().filter(|_| is_valid)?;
        Some(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// SIGSTOP: the KDC answers nothing, over UDP and over TCP, and its ports stay bound. A client
    /// of MIT Kerberos 1.20 waits for 27 s.
    pub fn pause(&self) {
        self.running.lock().as_ref().expect("the KDC runs").pause();
    }

    /// SIGCONT: the KDC answers what has arrived meanwhile.
    pub fn resume(&self) {
        self.running.lock().as_ref().expect("the KDC runs").resume();
    }

    /// SIGKILL: its ports refuse clients at once.
    pub fn stop(&self) {
        drop(self.running.lock().take());
    }

    /// Starts the KDC again, with the time of the machine.
    #[track_caller]
    pub fn restart(&self) {
        self.stop();
        self.run(&[]);
    }

    /// Starts the KDC again, and its clock is so many seconds ahead of the machine's, or behind it
    /// if the number is negative. Kerberos accepts five minutes.
    ///
    /// A client that has a ticket from before is refused: "Clock skew too great" or "Ticket not yet
    /// valid". A client that logs in anew takes over the KDC's clock, and notices nothing here.
    #[track_caller]
    pub fn shift_clock(&self, seconds: i64) {
        self.stop();
        self.run(&shifted_clock(seconds));
    }

    /// A way to this KDC on which each datagram to the KDC takes so long. TCP is refused there.
    #[track_caller]
    pub fn delayed(&self, delay: Duration) -> Detour {
        Detour::start(self, delay)
    }

    /// What the KDC has logged: each request and its answer.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("kdc.log")).unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn server_side(&self) -> String {
        let (dir, address) = (self.dir.path().display(), self.address);
        format!(
            "[kdcdefaults]\n\
             kdc_listen = {address}\n\
             kdc_tcp_listen = {address}\n\
             [realms]\n\
             {REALM} = {{\n\
             database_name = {dir}/principals\n\
             key_stash_file = {dir}/stash\n\
             max_life = 10h\n\
             supported_enctypes = aes256-cts:normal\n\
             }}\n\
             [logging]\n\
             kdc = FILE:{dir}/kdc.log\n"
        )
    }

    #[track_caller]
    fn run(&self, variables: &[(&str, OsString)]) {
        let _ = fs::remove_file(self.path("kdc.log"));
        let mut all = self.server_variables();
        all.extend(variables.iter().cloned());
        let arguments = ["-n", "-r", REALM].map(OsString::from);
        let said = self.path("kdc.out");
        let program = Program::start(&find("krb5kdc"), &arguments, &all, &said)
            .unwrap_or_else(|why| panic!("{why}"));
        until("the KDC serves", START_LIMIT, || {
            let said = || fs::read_to_string(&said).unwrap_or_default();
            assert!(program.alive(), "the KDC ended at its start:\n{}{}", said(), self.log());
            self.log().contains("commencing operation").then_some(())
        });
        *self.running.lock() = Some(program);
    }

    fn server_variables(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("KRB5_CONFIG", self.configuration().into()),
            ("KRB5_KDC_PROFILE", self.path("kdc.conf").into()),
        ]
    }

    /// Runs one of Kerberos' tools to its end, and returns what it says.
    #[track_caller]
    fn tool(&self, tool: &str, arguments: &[&str]) -> String {
        let done = self.command(tool).args(arguments).output();
        let done = done.unwrap_or_else(|e| panic!("{tool}: {e}; install it with\n    {INSTALL}"));
        let [said, errors] =
            [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(done.status.success(), "{tool} {arguments:?}: {}: {said}{errors}", done.status);
        said
    }
}

/// The variables that give a program a clock which is so many seconds ahead of the machine's.
#[track_caller]
pub(super) fn shifted_clock(seconds: i64) -> [(&'static str, OsString); 2] {
    let library = fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("faketime/libfaketime.so.1"))
        .find(|path| path.exists());
    let library =
        library.unwrap_or_else(|| panic!("libfaketime is missing; install it with\n    {INSTALL}"));
    [("LD_PRELOAD", library.into()), ("FAKETIME", format!("{seconds:+}").into())]
}

/// Where the program is. Debian has the servers' programs in a directory that is in the path of
/// root only.
fn find(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|file| file.exists())
        .unwrap_or_else(|| program.into())
}

fn client_side(address: SocketAddr) -> String {
    format!(
        "[libdefaults]\n\
         default_realm = {REALM}\n\
         dns_lookup_kdc = false\n\
         dns_lookup_realm = false\n\
         dns_canonicalize_hostname = false\n\
         rdns = false\n\
         [realms]\n\
         {REALM} = {{\n\
         kdc = {address}\n\
         }}\n\
         [domain_realm]\n\
         localhost = {REALM}\n"
    )
}

/// A slow way to a KDC over UDP; it ends on drop.
pub struct Detour {
    configuration: PathBuf,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Detour {
    #[track_caller]
    fn start(kdc: &Kdc, delay: Duration) -> Detour {
        let address = SocketAddr::from((own_loopback(), PORT));
        let socket = UdpSocket::bind(address).expect("a port for the detour");
        let configuration = kdc.path(&format!("detour-{}.conf", uuid::Uuid::new_v4().simple()));
        fs::write(&configuration, client_side(address)).expect("a krb5.conf");
        let ends = Arc::new(AtomicBool::new(false));
        let (target, is_over) = (kdc.address, Arc::clone(&ends));
        let pass = move || pass_on(&socket, target, delay, &is_over);
        Detour { configuration, ends, thread: Some(thread::spawn(pass)) }
    }

    /// A krb5.conf that names this way in the place of the KDC.
    pub fn configuration(&self) -> &Path {
        &self.configuration
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Carries datagrams to the KDC, each after the delay, and its answers back at once.
fn pass_on(socket: &UdpSocket, kdc: SocketAddr, delay: Duration, is_over: &AtomicBool) {
    const STEP: Duration = Duration::from_millis(5);
    let mut under_way: Vec<(Instant, SocketAddr, Vec<u8>)> = Vec::new();
    let mut asked: Vec<(SocketAddr, UdpSocket)> = Vec::new();
    let mut buffer = vec![0; 65_536];
    socket.set_read_timeout(Some(STEP)).expect("a timeout for the detour");
    while !is_over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, client)) => {
                under_way.push((Instant::now() + delay, client, buffer[..length].to_vec()));
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => panic!("the detour to the KDC: {e}"),
        }
        let now = Instant::now();
        let (due, later) = under_way.drain(..).partition(|(time, _, _)| *time <= now);
        under_way = later;
        let due: Vec<_> = due;
        for (_, client, question) in due {
            let way = UdpSocket::bind((own_loopback(), 0)).expect("a port to the KDC");
            way.set_nonblocking(true).expect("a socket that does not block");
            let _ = way.send_to(&question, kdc);
            asked.push((client, way));
        }
        asked.retain(|(client, way)| match way.recv(&mut buffer) {
            Ok(length) => {
                let _ = socket.send_to(&buffer[..length], client);
                false
            }
            Err(_) => true,
        });
    }
}
