//! The fuzz targets of the library: see [`zk_wire::fuzz`]. The tests below need nothing but stable
//! Rust.

mod names;
mod replies;

use crate::session::connection::machine::hostile;
use zk_wire::fuzz::Target;

/// Each target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("connect_answers", hostile::connect_answers),
    ("connect_strings", names::connect_strings),
    ("connection", hostile::connection),
    ("names", names::names),
    ("replies", replies::replies),
    ("watch_events", hostile::watch_events),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A test for each target, so that they run side by side and a failure names its target.
    macro_rules! hostile {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    let (_, target) = TARGETS.iter().find(|(of, _)| *of == stringify!($name)).unwrap();
                    zk_wire::fuzz::replay(stringify!($name), *target);
                }
            )*

            #[test]
            fn each_target_has_a_test() {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, [$(stringify!($name)),*]);
            }
        };
    }

    hostile! { connect_answers connect_strings connection names replies watch_events }
}
