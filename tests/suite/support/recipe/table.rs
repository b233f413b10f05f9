//! Scenarios that run over recipes: which scenario runs over which recipe.
use super::{
    super::{On, Test, Variant},
    Recipe,
};
use std::{sync::Arc, time::Duration};

/// The property that a scenario needs of a recipe, such as [`Recipe::queues`].
pub type Needs = fn(Recipe) -> bool;

/// A scenario that runs over each recipe with the property.
pub struct Row {
    name: &'static str,
    needs: Needs,
    run: Arc<dyn Fn(Recipe) + Send + Sync>,
}

impl Row {
    pub fn new(
        name: &'static str,
        needs: Needs,
        run: impl Fn(Recipe) + Send + Sync + 'static,
    ) -> Row {
        Row { name, needs, run: Arc::new(run) }
    }
}

/// Rows of functions of a recipe: `rows![Recipe::any => name, other; Recipe::queues => third]`.
macro_rules! rows {
    ($($needs:expr => $($name:ident),+ $(,)?);+ $(;)?) => {
        vec![$($($crate::support::recipe::Row::new(stringify!($name), $needs, $name)),+),+]
    };
}
pub(crate) use rows;

/// Combines scenarios and recipes: each scenario runs over each recipe with the needed property, as
/// `module::mutex::name`, `module::read::name` and so on. `on` applies to the mutex. The other
/// recipes use the same session and nearly the same queue, so they run only on the embedded server.
pub fn over_recipes(module: &str, on: On, rows: Vec<Row>) -> Vec<Test> {
    let test = |row: &Row, (recipe, name): (Recipe, &str)| {
        let run = Arc::clone(&row.run);
        Test {
            module: format!("{module}::{name}"),
            name: row.name,
            run: Box::new(move || run(recipe)),
            on: if recipe == Recipe::Mutex { on } else { On::Only(Variant::Embedded) },
            within: Duration::from_secs(240),
        }
    };
    let of_row = |row: &Row| {
        let fits = Recipe::ALL.into_iter().filter(|(recipe, _)| (row.needs)(*recipe));
        fits.map(|recipe| test(row, recipe)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}
