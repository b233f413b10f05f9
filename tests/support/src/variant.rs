//! The server variant of a scenario: a scenario runs once on each variant that its table names, and
//! can query the current one here.
use std::env;

/// Names the variant to the scenario's process.
pub const VAR: &str = "ZK_MUTEX_TEST_VARIANT";
/// The switch that chooses the servers of a run: `embedded` (default), `real` or `both`.
pub const SWITCH: &str = "ZK_TEST_SERVER";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// ZooKeeper itself, in Java.
    Real,
    /// The library's own `TestServer`.
    Embedded,
    /// No server: the scenario makes all that it needs.
    None,
}

/// The servers on which a scenario runs, by its `scenarios![..]` table.
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
