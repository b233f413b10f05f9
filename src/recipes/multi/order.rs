//! In which order the members are taken: the same in every process, so that no two multi-locks wait
//! for each other.

use std::collections::BTreeSet;

/// Where a member is. Ordered by ensemble, then path, then kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) ensemble: BTreeSet<String>,
    /// The full path, chroot included.
    pub(super) path: String,
    pub(super) kind: &'static str,
}

/// The order in which members are taken, by their numbers; or the number of one that is the same
/// lock as one before it.
pub(super) fn order(mut places: Vec<Place>) -> Result<Vec<usize>, usize> {
    let ensembles = ensembles(&places);
    for place in &mut places {
        if let Some(whole) = ensembles.iter().find(|hosts| hosts.is_superset(&place.ensemble)) {
            place.ensemble.clone_from(whole);
        }
    }
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&member| &places[member]);
    let is_same =
        |one: &Place, other: &Place| (&one.ensemble, &one.path) == (&other.ensemble, &other.path);
    match order.windows(2).find(|pair| is_same(&places[pair[0]], &places[pair[1]])) {
        Some(pair) => Err(pair[0].max(pair[1])),
        None => Ok(order),
    }
}

/// A server belongs to one ensemble: sessions that name one in common are on the same, however each
/// was written.
fn ensembles(places: &[Place]) -> Vec<BTreeSet<String>> {
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for Place { ensemble, .. } in places {
        let (mut apart, joined): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|hosts| hosts.is_disjoint(ensemble));
        apart.push(joined.into_iter().flatten().chain(ensemble.iter().cloned()).collect());
        found = apart;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(hosts: &str, path: &str, kind: &'static str) -> Place {
        let ensemble = hosts.split(',').map(str::to_owned).collect();
        Place { ensemble, path: path.to_owned(), kind }
    }

    #[test]
    fn by_ensemble_then_path() {
        let places = [("b:1", "/a"), ("a:1", "/z"), ("b:1", "/"), ("a:1", "/b/c"), ("a:1", "/b")]
            .map(|(hosts, path)| place(hosts, path, "mutex"));
        assert_eq!(order(places.into()), Ok(vec![4, 3, 1, 2, 0]));
    }

    #[test]
    fn one_path_is_one_lock_whatever_its_kind() {
        let places = |paths: [&str; 3]| {
            let kinds = ["mutex", "read", "write"];
            paths.iter().zip(kinds).map(|(path, kind)| place("a:1,b:1", path, kind)).collect()
        };
        assert_eq!(order(places(["/a", "/b", "/c"])), Ok(vec![0, 1, 2]));
        assert_eq!(order(places(["/a", "/b", "/a"])), Err(2));
        assert_eq!(order(places(["/c", "/a", "/a"])), Err(2));
        assert_eq!(order(places(["/a", "/a", "/c"])), Err(1));
    }

    #[test]
    fn one_path_on_two_ensembles_is_two_locks() {
        let places = [place("b:1", "/a", "mutex"), place("a:1", "/a", "mutex")];
        assert_eq!(order(places.into()), Ok(vec![1, 0]));
    }

    #[test]
    fn ensembles_that_name_a_server_in_common_are_one() {
        let one = place("a:1", "/z", "mutex");
        let other = place("c:1", "/a", "mutex");
        assert_eq!(order(vec![one.clone(), other.clone()]), Ok(vec![0, 1]));
        let between = place("b:1,c:1,a:1", "/m", "mutex");
        assert_eq!(order(vec![one.clone(), other, between]), Ok(vec![1, 2, 0]));
        assert_eq!(order(vec![one, place("b:1,a:1", "/z", "read")]), Err(1));
    }

    fn any_places() -> impl Strategy<Value = Vec<Place>> {
        let hosts = proptest::sample::select(vec!["a:1,b:1", "c:1", "d:1,e:1"]);
        let place = (hosts, "/[ab]{1,3}").prop_map(|(hosts, path)| place(hosts, &path, "mutex"));
        proptest::collection::vec(place, 1..8)
    }

    proptest! {
        #[test]
        fn any_two_sets_take_what_they_share_in_one_order(
            (places, shuffled) in any_places().prop_flat_map(|p| (Just(p.clone()), Just(p).prop_shuffle())),
            left_out in any::<proptest::sample::Index>(),
        ) {
            let taken = |places: &[Place]| {
                let order = order(places.to_vec());
                order.map(|order| order.into_iter().map(|i| places[i].clone()).collect::<Vec<_>>())
            };
            let Ok(mut all) = taken(&places) else {
                prop_assert!(taken(&shuffled).is_err());
                return Ok(());
            };
            let mut fewer = shuffled;
            let gone = fewer.remove(left_out.index(fewer.len()));
            all.retain(|place| *place != gone);
            prop_assert_eq!(taken(&fewer), Ok(all));
        }
    }
}
