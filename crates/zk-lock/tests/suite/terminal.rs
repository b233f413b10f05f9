//! zk-lock in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use zk_test_server::TestServer;

use crate::support::{
    LIMIT, Notes, Raw, Running, children, is_alive, server, until, wait_children, zk_lock,
};

const LOCK: &str = "/locks/orders";

/// A program that has a terminal of its own, and what it shows there.
pub struct Terminal {
    child: Option<Child>,
    keys: File,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    pub fn start(server: &TestServer, program: &[&str]) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal");
        let name = ptsname(&ours, Vec::new()).expect("its name").into_string().expect("text");
        let theirs = || -> OwnedFd {
            File::options().read(true).write(true).open(&name).expect("the terminal").into()
        };
        // `setsid -c` makes it the controlling terminal. `env` undoes what a shell in the
        // background or `nohup` ignores.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,QUIT,TERM", "setsid", "-c"]).args(program);
        command.env("ZK_CONNECT", server.connect_string()).env("ZK_LOCK_CONFIG", "/dev/null");
        command.env("ZK_LOCK", env!("CARGO_BIN_EXE_zk-lock")).env("PS1", "$ ").env("TERM", "dumb");
        command.stdin(theirs()).stdout(theirs()).stderr(theirs());
        let child = command.spawn().expect("setsid runs");
        drop(command); // with its ends of the terminal
        let keys = File::from(ours);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut screen, text) = (keys.try_clone().expect("a file"), shown.clone());
        std::thread::spawn(move || {
            let mut some = [0; 1024];
            while let Ok(count @ 1..) = screen.read(&mut some) {
                text.lock().expect("no panic").push_str(&String::from_utf8_lossy(&some[..count]));
            }
        });
        Terminal { child: Some(child), keys, shown }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Waits until this is shown, behind what was waited for before.
    pub fn expect(&self, text: &str) {
        let end = std::time::Instant::now() + LIMIT;
        loop {
            let mut shown = self.shown.lock().expect("no panic");
            if let Some(at) = shown.find(text) {
                shown.replace_range(..at + text.len(), "");
                return;
            }
            assert!(std::time::Instant::now() < end, "no {text:?} in {shown:?}");
            drop(shown);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn end(mut self) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        until("the program ends", LIMIT, || child.try_wait().expect("it can be asked")).code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const ZK_LOCK: &str = env!("CARGO_BIN_EXE_zk-lock");

#[test]
fn ctrl_c_ends_a_wait_which_says_for_whom() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done");
    let holder = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("began");
    let mut terminal = Terminal::start(&server, &[ZK_LOCK, "run", LOCK, "--", "true"]);
    terminal.expect("waiting for /locks/orders, held by ");
    assert_eq!(children(&server, LOCK).len(), 2);
    terminal.press(CTRL_C);
    terminal.expect("ended by SIGINT");
    assert_eq!(terminal.end(), Some(130));
    assert_eq!(children(&server, LOCK).len(), 1);
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(holder.end().code, 0);
}

#[test]
fn ctrl_c_goes_to_the_command_which_may_refuse() {
    let server = server();
    let script = "trap 'echo asked; n=$((n+1)); [ $n -lt 2 ] || exit 7' INT; n=0; echo ready; \
                  while :; do sleep 0.05; done";
    let mut terminal = Terminal::start(&server, &[ZK_LOCK, "run", LOCK, "--", "sh", "-c", script]);
    terminal.expect("ready");
    terminal.press(CTRL_C);
    terminal.expect("asked");
    assert_eq!(children(&server, LOCK).len(), 1, "it goes on");
    terminal.press(CTRL_C);
    terminal.expect("asked");
    assert_eq!(terminal.end(), Some(7));
    assert_eq!(children(&server, LOCK), [""; 0]);
}

#[test]
fn the_command_reads_from_the_terminal_which_goes_back_in_the_end() {
    let server = server();
    let script = "$ZK_LOCK run /locks/orders -- sh -c 'read x; echo \"inside $x\"'; \
                  $ZK_LOCK run --max-hold 300ms --grace 200ms /locks/orders -- \
                      sh -c 'trap \"\" TERM; stty -echo; echo deaf; read y'; \
                  echo ne\"\"xt; read z; echo \"outside $z\"; stty -a";
    let mut terminal = Terminal::start(&server, &["sh", "-c", script]);
    terminal.press("one\n");
    terminal.expect("inside one");
    terminal.expect("deaf");
    terminal.expect("SIGKILL to the command's process group");
    // Only now it is dead, and what is typed is the script's.
    terminal.expect("next");
    terminal.press("two\n");
    terminal.expect("outside two");
    terminal.expect(" echo "); // as it was before
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_lost_session_ends_the_command_in_the_terminal() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("trap '' TERM INT; echo $$ > $D/child; while :; do sleep 0.05; done");
    let terminal = Terminal::start(&server, &[ZK_LOCK, "run", LOCK, "--", "sh", "-c", &script]);
    let child = notes.wait_pid("child");
    assert!(server.expire_session(server.sessions()[0].id));
    terminal.expect("/locks/orders is lost");
    assert_eq!(terminal.end(), Some(123));
    assert!(!is_alive(child));
}

#[test]
fn ctrl_z_stops_the_command_and_fg_continues_it() {
    let server = server();
    let mut terminal = Terminal::start(&server, &["bash", "--norc", "-i"]);
    terminal
        .press("$ZK_LOCK run /locks/orders -- sh -c 'echo rea\"\"dy; read x; echo \"got $x\"'\n");
    terminal.expect("ready");
    terminal.press(CTRL_Z);
    terminal.expect("Stopped");
    assert_eq!(children(&server, LOCK).len(), 1, "the lock is held meanwhile");
    terminal.press("echo sh\"\"ell\n");
    terminal.expect("shell");
    terminal.press("fg\n");
    terminal.press("three\n");
    terminal.expect("got three");
    wait_children(&server, LOCK, 0);
    terminal.press("exit 5\n");
    assert_eq!(terminal.end(), Some(5));
}

#[test]
fn a_pipeline_keeps_the_terminal_until_the_command_wants_it() {
    let server = server();
    let notes = Notes::new();
    let mut terminal = Terminal::start(&server, &["bash", "--norc", "-i"]);
    // The command does not read: ctrl-z stops zk-lock and the command, ctrl-c ends both.
    std::fs::write(
        notes.path("ticks"),
        notes.script("echo $$ > $D/child; while :; do echo tick; sleep 0.05; done"),
    )
    .expect("a script");
    let ticks = notes.path("ticks").display().to_string();
    terminal.press(&format!("$ZK_LOCK run {LOCK} -- sh {ticks} | sed 's/^/seen /'\n"));
    terminal.expect("seen tick");
    terminal.press(CTRL_Z);
    terminal.expect("Stopped");
    let child = notes.wait_pid("child");
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // A shell that waits for a child it has just forked, which is stopped, is in state D.
        (stat.contains(") T ") || stat.contains(") D ")).then_some(())
    };
    until("the command is stopped", LIMIT, is_stopped);
    terminal.press("fg\n");
    terminal.expect("seen tick");
    terminal.press(CTRL_C);
    wait_children(&server, LOCK, 0);
    assert!(!is_alive(child));
    // The command reads: it gets the terminal then.
    let reads = format!("$ZK_LOCK run {LOCK} -- sh -c 'read x; echo \"got $x\"' | cat\n");
    terminal.press(&reads);
    wait_children(&server, LOCK, 1);
    terminal.press("four\n");
    terminal.expect("got four");
    wait_children(&server, LOCK, 0);
    terminal.press("exit 5\n");
    assert_eq!(terminal.end(), Some(5));
}

#[test]
fn a_command_in_the_background_that_reads_is_stopped_with_zk_lock() {
    let server = server();
    let mut terminal = Terminal::start(&server, &["bash", "--norc", "-i"]);
    terminal.press(&format!("$ZK_LOCK run {LOCK} -- sh -c 'read x; echo \"got $x\"' &\n"));
    wait_children(&server, LOCK, 1);
    // The shell tells of it with its next prompt.
    until("the shell sees it stopped", LIMIT, || {
        terminal.press("\n");
        std::thread::sleep(Duration::from_millis(50));
        terminal.shown.lock().expect("no panic").contains("Stopped").then_some(())
    });
    terminal.press("fg\n");
    terminal.press("five\n");
    terminal.expect("got five");
    wait_children(&server, LOCK, 0);
    terminal.press("exit 5\n");
    assert_eq!(terminal.end(), Some(5));
}

#[test]
fn watch_draws_the_queue_anew_with_each_change() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    let mut terminal = Terminal::start(&server, &[ZK_LOCK, "watch", LOCK]);
    terminal.expect("nobody holds it");
    for text in ["1 holds it, 0 wait", "1 holds it, 1 wait"] {
        let path = format!("{LOCK}/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-");
        raw.create(&path, b"h7:1", zk_test_support::raw::EPHEMERAL_SEQUENTIAL).expect("a node");
        terminal.expect(text);
        terminal.expect("(ctrl-c ends)");
    }
    terminal.press(CTRL_C);
    assert_eq!(terminal.end(), Some(130));
}

#[test]
fn an_overview_is_drawn_anew_and_fits_the_screen() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let all = ["ls", "--watch", "--every", "100ms", "/locks"];
    let mut terminal = Terminal::start(&server, &[&[ZK_LOCK], &all[..]].concat());
    terminal.expect("no lock is in use below /locks");
    for i in 10..40 {
        raw.mkdirs(&format!("/locks/{i}")).expect("folders");
        let path = format!("/locks/{i}/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-");
        raw.create(&path, b"h7:1", zk_test_support::raw::EPHEMERAL_SEQUENTIAL).expect("a node");
        if i == 10 {
            terminal.expect("/locks/10  mutex  h7:1");
        }
    }
    // This terminal has no size, so it counts as one of 24 rows.
    terminal.expect("and 11 more");
    terminal.expect("(ctrl-c ends)");
    terminal.press(CTRL_C);
    assert_eq!(terminal.end(), Some(130));
}

#[test]
fn break_asks_before_it_deletes() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    let path = format!("{LOCK}/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-");
    let made = raw.create(&path, b"h7:1", zk_test_support::raw::EPHEMERAL_SEQUENTIAL);
    let made = made.expect("a node");
    let node = made.rsplit('/').next().expect("a name");
    for (answer, code, left) in [("n\n", 1, 1), ("\n", 1, 1), ("y\n", 0, 0)] {
        let mut terminal = Terminal::start(&server, &[ZK_LOCK, "break", LOCK, "--node", node]);
        terminal.expect("This contender HOLDS the lock");
        terminal.expect("after its session timeout, which is ");
        terminal.expect("[y/N]");
        terminal.press(answer);
        assert_eq!(terminal.end(), Some(code), "{answer:?}");
        assert_eq!(children(&server, LOCK).len(), left);
    }
}
