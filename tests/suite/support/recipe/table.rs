//! Tables of scenarios that run over recipes.

/// As `scenarios!`, for functions of a `Recipe`: each runs over each recipe, as
/// `module::mutex::name`, `module::read::name` and so on. With the mutex it runs on both servers;
/// with the others, which stand on the same queue and session, on the embedded one. Behind `|
/// locks:` come those that are about no candidate, which stands again by itself; behind `| rows:`
/// those where each who waits has a node in one row with the others, which a semaphore's waiters
/// have not; behind a `;` those of the module that are about no recipe.
macro_rules! per_recipe {
    (@test $recipe:ident $module:literal ($($on:tt)*) $name:ident $($seconds:literal)?) => {
        $crate::support::Test {
            module: concat!(module_path!(), "::", $module),
            name: stringify!($name),
            run: || $name($crate::support::Recipe::$recipe),
            on: $crate::support::scenarios!(@on $($on)*),
            within: std::time::Duration::from_secs($crate::support::scenarios!(@limit $($seconds)?)),
        }
    };
    ($($name:ident $(within $seconds:literal)?),+ $(,)?
     $(| locks: $($lock:ident $(within $lock_seconds:literal)?),+ $(,)?)?
     $(| rows: $($row:ident $(within $row_seconds:literal)?),+ $(,)?)?
     $(; $($plain:ident $(on $variant:ident)? $(within $limit:literal)?),+ $(,)?)?) => {
        pub const TESTS: &[$crate::support::Test] = &[
            $(
                $crate::support::per_recipe!(@test Mutex "mutex" () $name $($seconds)?),
                $crate::support::per_recipe!(@test Herd "herd" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Permit "permit" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Leader "leader" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Multi "multi" (embedded) $name $($seconds)?),
            )+
            $($(
                $crate::support::per_recipe!(@test Mutex "mutex" () $lock $($lock_seconds)?),
                $crate::support::per_recipe!(@test Herd "herd" (embedded) $lock $($lock_seconds)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $lock $($lock_seconds)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $lock $($lock_seconds)?),
                $crate::support::per_recipe!(@test Permit "permit" (embedded) $lock $($lock_seconds)?),
                $crate::support::per_recipe!(@test Multi "multi" (embedded) $lock $($lock_seconds)?),
            )+)?
            $($(
                $crate::support::per_recipe!(@test Mutex "mutex" () $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Herd "herd" (embedded) $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Leader "leader" (embedded) $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Multi "multi" (embedded) $row $($row_seconds)?),
            )+)?
            $($($crate::support::scenarios!(@test $plain $(on $variant)? $(within $limit)?)),+)?
        ];
    };
}
pub(crate) use per_recipe;

/// A second table, of those of the module's scenarios that run over the exclusive lock too.
macro_rules! over_exclusive {
    ($($name:ident),+ $(,)?) => {
        pub const EXCLUSIVE: &[$crate::support::Test] =
            &[$($crate::support::per_recipe!(@test Exclusive "exclusive" (embedded) $name)),+];
    };
}
pub(crate) use over_exclusive;
