//! The runner: cargo test's usual face (libtest_mimic), each scenario in a child process so that
//! what it leaves can be counted.
#[cfg(feature = "tls")]
use super::pki;
use super::{
    brand, child, residue, sasl, scratch, shared, tls,
    variant::{self, On, Variant},
};
use crossbeam_channel::{Receiver, Sender, bounded};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;
use std::{
    cmp::Reverse,
    collections::HashSet,
    env, fs,
    io::Read,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Scenarios mostly wait, so more of them run than most machines have cores.
const THREADS: usize = 14;
/// At most so many of them run on the real ZooKeeper. It needs processor time, and a scenario whose
/// server is slow shows nothing.
const REAL_AT_ONCE: usize = 6;
/// How much of the end of a failed child's output is shown, in bytes.
const SHOWN: usize = 200_000;

/// One scenario, made by `scenarios![..]`.
pub struct Test {
    /// Begins with the crate's name, as `module_path!()` does.
    pub module: String,
    pub name: &'static str,
    pub run: Box<dyn Fn() + Send + Sync>,
    /// The servers on which it runs.
    pub on: On,
    /// The time after which the child is killed.
    pub within: Duration,
}

impl Test {
    /// Its modules and its name, as they stand behind the server's name.
    pub fn full_name(&self) -> String {
        let module = self.module.split_once("::").map_or(&*self.module, |(_, rest)| rest);
        format!("{module}::{}", self.name)
    }

    fn name_on(&self, variant: Variant) -> String {
        format!("{}::{}", variant.name(), self.full_name())
    }
}

/// The table of a module's scenarios: `scenarios![name, other_name on real, slow_name within 300]`
/// (seconds; the default is 240).
///
/// A scenario runs on both servers, as `real::module::name` and `embedded::module::name`, unless it
/// is `on real`, `on embedded` or `on none` (it needs no server, and runs once as
/// `none::module::name`). `scenarios![on real; name, other_name]` applies this to all scenarios.
/// The table is a function, `tests()`; `scenarios![@list ..]` is its value, for a module with more
/// scenarios.
#[macro_export]
macro_rules! scenarios {
    (@limit) => { 240 };
    (@limit $seconds:literal) => { $seconds };
    (@on) => { $crate::On::Both };
    (@on real) => { $crate::On::Only($crate::Variant::Real) };
    (@on embedded) => { $crate::On::Only($crate::Variant::Embedded) };
    (@on none) => { $crate::On::Only($crate::Variant::None) };
    (on $all:ident; $($name:ident $(within $seconds:literal)?),+ $(,)?) => {
        $crate::scenarios![$($name on $all $(within $seconds)?),+];
    };
    (@test $name:ident $(on $variant:ident)? $(within $seconds:literal)?) => {
        $crate::Test {
            module: module_path!().to_owned(),
            name: stringify!($name),
            run: Box::new($name),
            on: $crate::scenarios!(@on $($variant)?),
            within: std::time::Duration::from_secs($crate::scenarios!(@limit $($seconds)?)),
        }
    };
    (@list $($name:ident $(on $variant:ident)? $(within $seconds:literal)?),+ $(,)?) => {
        vec![$($crate::scenarios!(@test $name $(on $variant)? $(within $seconds)?)),+]
    };
    ($($name:ident $(on $variant:ident)? $(within $seconds:literal)?),+ $(,)?) => {
        /// The scenarios of this module.
        pub fn tests() -> Vec<$crate::Test> {
            $crate::scenarios![@list $($name $(on $variant)? $(within $seconds)?),+]
        }
    };
}

/// `tables![one, other]`: the scenarios of these modules, as those of the calling module.
#[macro_export]
macro_rules! tables {
    ($($(#[$meta:meta])* $module:ident),+ $(,)?) => {
        /// The scenarios of this module.
        pub fn tests() -> Vec<$crate::Test> {
            let mut all = Vec::new();
            $($(#[$meta])* all.extend($module::tests());)+
            all
        }
    };
}

/// The state of a run that its tests share.
struct Run {
    scratch: scratch::Scratch,
    shared: shared::Keeper,
    /// How long each scenario took.
    took: Mutex<Vec<(Duration, String)>>,
    /// Has one message for each scenario that runs on the real ZooKeeper. Its capacity limits their
    /// number.
    real: (Sender<()>, Receiver<()>),
}

/// The place of one scenario among those that run on the real ZooKeeper at once, freed on drop.
struct Slot<'r>(&'r Run);

impl Slot<'_> {
    /// Waits for a free place.
    fn take(run: &Run) -> Slot<'_> {
        let _ = run.real.0.send(());
        Slot(run)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let _ = self.0.real.1.try_recv();
    }
}

pub use child::VAR as TEST_VAR;

/// The number of slowest scenarios that are listed with their times at the end.
const SLOWEST_VAR: &str = "ZK_TEST_SLOWEST";

/// If it is set, the runner runs the traps instead: scenarios that must fail.
pub const TRAPS_VAR: &str = "ZK_MUTEX_TEST_TRAPS";

pub fn main(tests: fn() -> Vec<Test>, traps: fn() -> Vec<Test>) -> ExitCode {
    let tests = if env::var_os(TRAPS_VAR).is_some() { traps() } else { tests() };
    let tests: Vec<_> = tests.into_iter().map(Arc::new).collect();
    if let Ok(name) = env::var(child::VAR) {
        let test = tests.iter().find(|test| test.full_name() == name);
        return child::main(test.unwrap_or_else(|| panic!("no scenario is named {name}")));
    }
    let mut names = HashSet::new();
    for test in &tests {
        assert!(names.insert(test.full_name()), "{} is in the table twice", test.full_name());
    }
    let variants = match Variant::chosen() {
        Ok(variants) => variants,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let refused = tls::refusal(!variants.contains(&Variant::Real)).or_else(sasl::refusal);
    if let Some(why) = refused.map(str::to_owned).or_else(|| brand::chosen().err()) {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    let mut args = Arguments::from_args();
    let wanted = env::var("RUST_TEST_THREADS").ok().and_then(|n| n.parse().ok());
    args.test_threads = args.test_threads.or(wanted).or(Some(THREADS));
    let scratch = scratch::Scratch::new("run");
    #[cfg(feature = "tls")]
    if tls::is_on() {
        pki::Pki::make_shared(scratch.path());
    }
    let run = Arc::new(Run {
        shared: shared::Keeper::start(scratch.path()),
        scratch,
        took: Mutex::default(),
        real: bounded(REAL_AT_ONCE),
    });
    let of_variant = |variant: Variant| {
        let run = &run;
        tests.iter().filter(move |test| test.on.runs(variant)).map(move |test| {
            let (run, test) = (Arc::clone(run), Arc::clone(test));
            let name = test.name_on(variant);
            Trial::test(name.clone(), move || run_child(&test, variant, &name, &run))
        })
    };
    let trials = mixed(variants.iter().copied().map(of_variant).map(Iterator::collect).collect());
    let left_out = left_out(&tests, &variants, &args);
    let conclusion = libtest_mimic::run(&args, trials);
    run.shared.stop();
    for line in slowest(&run.took.lock()).iter().chain(&left_out) {
        eprintln!("{line}");
    }
    if !args.list && conclusion.num_passed + conclusion.num_failed == 0 {
        // Other arguments may be meant for the tests of another binary: `cargo test` gives them to
        // all.
        let means_scenarios = args.filter.is_none() || !left_out.is_empty();
        if means_scenarios {
            eprintln!("no scenario was run");
            return ExitCode::FAILURE;
        }
    }
    // The code is returned, not exited with, so that `run` is dropped and removes its directory.
    conclusion.exit_code()
}

/// Merges the lists, so that each part of the result has its share of each list. A scenario on the
/// real ZooKeeper needs the processor, and one on the embedded server mostly waits: mixed, they end
/// sooner.
fn mixed(lists: Vec<Vec<Trial>>) -> Vec<Trial> {
    let mut all: Vec<(f64, Trial)> = Vec::new();
    for list in lists {
        let step = 1.0 / list.len().max(1) as f64;
        all.extend(list.into_iter().enumerate().map(|(i, trial)| (i as f64 * step, trial)));
    }
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    all.into_iter().map(|(_, trial)| trial).collect()
}

/// For each server that is left out, the number of scenarios that the arguments select and that
/// need it.
fn left_out(tests: &[Arc<Test>], chosen: &[Variant], args: &Arguments) -> Vec<String> {
    let names =
        |part: &str, name: &str| if args.exact { name == part } else { name.contains(part) };
    let is_named = |name: &str| {
        args.filter.iter().all(|part| names(part, name))
            && !args.skip.iter().any(|part| names(part, name))
    };
    let line = |variant: &Variant| {
        let needs = |test: &&Arc<Test>| test.on.runs(*variant) && is_named(&test.name_on(*variant));
        let count = tests.iter().filter(needs).count();
        let server = match variant {
            Variant::Real => "the real ZooKeeper",
            _ => "the embedded server",
        };
        let hint = format!("`tests/run` runs them too ({}=both)", variant::SWITCH);
        (count > 0).then(|| format!("not run here: {count} scenarios on {server}; {hint}"))
    };
    variant::ALL.iter().filter(|variant| !chosen.contains(variant)).filter_map(line).collect()
}

/// The slowest scenarios, as many as `ZK_TEST_SLOWEST` says.
fn slowest(took: &[(Duration, String)]) -> Vec<String> {
    let wanted = env::var(SLOWEST_VAR).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut took: Vec<_> = took.iter().collect();
    took.sort_by_key(|(time, _)| Reverse(*time));
    let line = |(time, name): &(Duration, String)| format!("{:6.1} s {name}", time.as_secs_f64());
    took.into_iter().take(wanted).map(line).collect()
}

fn run_child(test: &Test, variant: Variant, name: &str, run: &Run) -> Result<(), Failed> {
    let _slot = (variant == Variant::Real).then(|| Slot::take(run));
    let said = run.scratch.path().join(format!("{}.out", name.replace("::", ".")));
    let file = || fs::File::options().create(true).append(true).open(&said);
    let exe = env::current_exe()?;
    let mut child = Command::new(exe)
        .env(child::VAR, test.full_name())
        .env(variant::VAR, variant.name())
        .env(scratch::VAR, run.scratch.path())
        .env(shared::VAR, run.shared.address().to_string())
        .env("RUST_BACKTRACE", env::var("RUST_BACKTRACE").unwrap_or_else(|_| "1".into()))
        .stdin(Stdio::piped())
        .stdout(file()?)
        .stderr(file()?)
        .process_group(0)
        .spawn()?;
    let start = Instant::now();
    let ended = wait(&mut child, test.within)?;
    run.took.lock().push((start.elapsed(), name.to_owned()));
    let verdict = match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(match status.signal() {
            Some(signal) => format!("the scenario's process died of signal {signal}"),
            None => format!("failed ({status})"),
        }),
        None => Err(format!("timeout: still running after {:?}, killed", test.within)),
    };
    end_group(&mut child);
    let verdict = verdict.map_err(|why| Failed::from(format!("{why}; it said:\n{}", tail(&said))));
    let _ = fs::remove_file(&said);
    verdict
}

/// Waits for the child's end; None if it does not end in time.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills the rest of the child's process group, and returns when it is gone.
fn end_group(child: &mut Child) {
    let group = child.id();
    // A process whose parent is gone may stay a zombie if process 1 does not reap it.
    let ended = || {
        residue::group(group).into_iter().all(|pid| matches!(residue::state(pid), None | Some('Z')))
    };
    if ended() {
        return;
    }
    let _ = Command::new("sh").args(["-c", "kill -KILL -$0", &group.to_string()]).status();
    let _ = child.wait();
    let end = Instant::now() + Duration::from_secs(5);
    while !ended() && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
}

fn tail(path: &Path) -> String {
    let mut said = Vec::new();
    let _ = fs::File::open(path).and_then(|mut file| file.read_to_end(&mut said));
    let start = said.len().saturating_sub(SHOWN);
    let cut =
        if start > 0 { format!("(the first {start} bytes are left out)\n") } else { String::new() };
    cut + &String::from_utf8_lossy(&said[start..])
}
