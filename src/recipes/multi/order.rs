//! The order in which a multi-lock takes its members. It is the same in every process, so that no
//! two multi-locks wait for each other.

use std::collections::BTreeSet;

use crate::local::registry::LockKey;

/// Where a member is, and of what kind. Ordered by ensemble, then path, then kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberKey {
    pub(super) lock: LockKey,
    pub(super) kind: &'static str,
}

/// The order in which the members are taken, as indices. The error is the index of a member that is
/// the same lock as a member before it.
pub(super) fn order(mut keys: Vec<MemberKey>) -> Result<Vec<usize>, usize> {
    let ensembles = ensembles(&keys);
    for MemberKey { lock, .. } in &mut keys {
        if let Some(whole) = ensembles.iter().find(|hosts| hosts.is_superset(&lock.ensemble)) {
            lock.ensemble.clone_from(whole);
        }
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|&member| &keys[member]);
    match order.windows(2).find(|pair| keys[pair[0]].lock == keys[pair[1]].lock) {
        Some(pair) => Err(pair[0].max(pair[1])),
        None => Ok(order),
    }
}

/// The ensembles of these members, each with all hosts that any session names for it. Two sessions
/// of one ensemble may name no common host, while a third one names hosts of both.
fn ensembles(keys: &[MemberKey]) -> Vec<BTreeSet<String>> {
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for MemberKey { lock, .. } in keys {
        let (mut apart, joined): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|hosts| hosts.is_disjoint(&lock.ensemble));
        apart.push(joined.into_iter().flatten().chain(lock.ensemble.iter().cloned()).collect());
        found = apart;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(hosts: &str, path: &str, kind: &'static str) -> MemberKey {
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        MemberKey { lock: LockKey::new(&hosts, path), kind }
    }

    #[test]
    fn by_ensemble_then_path() {
        let keys = [("b:1", "/a"), ("a:1", "/z"), ("b:1", "/"), ("a:1", "/b/c"), ("a:1", "/b")]
            .map(|(hosts, path)| key(hosts, path, "mutex"));
        assert_eq!(order(keys.into()), Ok(vec![4, 3, 1, 2, 0]));
    }

    #[test]
    fn one_path_is_one_lock_whatever_its_kind() {
        let keys = |paths: [&str; 3]| {
            let kinds = ["mutex", "read", "write"];
            paths.iter().zip(kinds).map(|(path, kind)| key("a:1,b:1", path, kind)).collect()
        };
        assert_eq!(order(keys(["/a", "/b", "/c"])), Ok(vec![0, 1, 2]));
        assert_eq!(order(keys(["/a", "/b", "/a"])), Err(2));
        assert_eq!(order(keys(["/c", "/a", "/a"])), Err(2));
        assert_eq!(order(keys(["/a", "/a", "/c"])), Err(1));
    }

    #[test]
    fn one_path_on_two_ensembles_is_two_locks() {
        let keys = [key("b:1", "/a", "mutex"), key("a:1", "/a", "mutex")];
        assert_eq!(order(keys.into()), Ok(vec![1, 0]));
    }

    #[test]
    fn ensembles_that_name_a_server_in_common_are_one() {
        let one = key("a:1", "/z", "mutex");
        let other = key("c:1", "/a", "mutex");
        assert_eq!(order(vec![one.clone(), other.clone()]), Ok(vec![0, 1]));
        let between = key("b:1,c:1,a:1", "/m", "mutex");
        assert_eq!(order(vec![one.clone(), other, between]), Ok(vec![1, 2, 0]));
        assert_eq!(order(vec![one, key("b:1,a:1", "/z", "read")]), Err(1));
    }

    fn any_keys() -> impl Strategy<Value = Vec<MemberKey>> {
        let hosts = proptest::sample::select(vec!["a:1,b:1", "c:1", "d:1,e:1"]);
        let key = (hosts, "/[ab]{1,3}").prop_map(|(hosts, path)| key(hosts, &path, "mutex"));
        proptest::collection::vec(key, 1..8)
    }

    proptest! {
        #[test]
        fn any_two_sets_take_what_they_share_in_one_order(
            (keys, shuffled) in any_keys().prop_flat_map(|p| (Just(p.clone()), Just(p).prop_shuffle())),
            left_out in any::<proptest::sample::Index>(),
        ) {
            let taken = |keys: &[MemberKey]| {
                let order = order(keys.to_vec());
                order.map(|order| order.into_iter().map(|i| keys[i].clone()).collect::<Vec<_>>())
            };
            let Ok(mut all) = taken(&keys) else {
                prop_assert!(taken(&shuffled).is_err());
                return Ok(());
            };
            let mut fewer = shuffled;
            let gone = fewer.remove(left_out.index(fewer.len()));
            all.retain(|key| *key != gone);
            prop_assert_eq!(taken(&fewer), Ok(all));
        }
    }
}
