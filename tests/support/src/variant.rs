//! Which server a scenario meets: a scenario runs once on each that its table names, and asks here
//! which one it is this time.
use std::env;

/// Names the variant to the scenario's process.
pub const VAR: &str = "ZK_MUTEX_TEST_VARIANT";
/// The one switch: on which server scenarios run, `embedded` (unless told), `real` or `both`.
pub const SWITCH: &str = "ZK_TEST_SERVER";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// ZooKeeper itself, in Java.
    Real,
    /// The library's own `TestServer`.
    Embedded,
    /// No server: what the scenario needs it makes itself.
    None,
}

/// On which servers a scenario runs, as its `scenarios![..]` table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Both,
    Only(Variant),
}

/// The quick ones first.
pub const ALL: [Variant; 3] = [Variant::None, Variant::Embedded, Variant::Real];

impl Variant {
    /// The first part of the scenario's name.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Real => "real",
            Variant::Embedded => "embedded",
            Variant::None => "none",
        }
    }

    fn named(name: &str) -> Option<Variant> {
        ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// That of this process's scenario.
    #[track_caller]
    pub fn current() -> Variant {
        let name = env::var(VAR).expect("scenarios are run by the runner");
        Variant::named(&name).unwrap_or_else(|| panic!("{VAR} is {name:?}"))
    }

    /// Those that the switch lets run.
    pub fn chosen() -> Result<Vec<Variant>, String> {
        let word = env::var_os(SWITCH).unwrap_or_default();
        match word.to_str() {
            Some("" | "embedded") => Ok(vec![Variant::None, Variant::Embedded]),
            Some("real") => Ok(vec![Variant::None, Variant::Real]),
            Some("both") => Ok(ALL.to_vec()),
            _ => Err(format!("{SWITCH} is {word:?}; it takes embedded, real or both")),
        }
    }
}

impl On {
    pub fn runs(self, variant: Variant) -> bool {
        match self {
            On::Both => variant != Variant::None,
            On::Only(only) => only == variant,
        }
    }
}
