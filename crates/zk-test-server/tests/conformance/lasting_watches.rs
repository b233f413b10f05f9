//! addWatch: watches that fire again and again, of one node or of all nodes below it; and
//! removeWatches and checkWatches.
use super::{
    answers::{Body, Event, changed, children, created, deleted},
    checks::*,
    client::Client,
    requests::*,
};
use std::slice::from_ref;
use zk_test_support::{Shared, Test, scenarios};

/// What watches of several modes on one node do to each other has changed with 3.9.
pub fn tests() -> Vec<Test> {
    let mut all = scenarios![@list
        a_persistent_watch_fires_for_data_and_children,
        a_recursive_watch_fires_for_all_below_but_not_for_children,
        watches_of_several_kinds_on_one_node,
        add_watch_needs_no_node_and_a_known_mode,
        a_lasting_watch_is_filtered_by_permission,
    ];
    let of_38 = scenarios![@list
        the_later_mode_takes_the_place_of_the_former,
        a_one_shot_watch_takes_the_place_of_a_lasting_one,
        watches_are_removed_by_kind,
        a_check_succeeds_by_the_watch_of_another_connection,
        removed_watches_are_silent,
    ];
    let of_39 = scenarios![@list
        modes_stand_beside_each_other,
        each_mode_is_removed_by_itself,
        a_check_sees_only_the_clients_own_watches,
    ];
    all.extend(if is_39() { of_39 } else { of_38 });
    all
}

/// Makes each write, and compares the events that the client gets after it.
#[track_caller]
fn after_each(client: &mut Client, other: &mut Client, writes: &[(Req, Vec<Event>)]) {
    for (write, events) in writes {
        other.good(write);
        assert_eq!(client.events(), *events, "{write:?}");
    }
}

fn a_persistent_watch_fires_for_data_and_children() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    assert_eq!(client.body(&add_watch("/p", PERSISTENT_WATCH)), Body::Number(0));
    for _ in 0..2 {
        after_each(
            &mut client,
            &mut other,
            &[
                (create("/p"), vec![created("/p")]),
                (set_data("/p", b"1"), vec![changed("/p")]),
                (set_data("/p", b"2"), vec![changed("/p")]),
                (create("/p/c"), vec![children("/p")]),
                (create("/p/c/d"), vec![]),
                (set_data("/p/c", b""), vec![]),
                (set_acl("/p", &open()), vec![]),
                (delete("/p/c/d"), vec![]),
                (delete("/p/c"), vec![children("/p")]),
                (delete("/p"), vec![deleted("/p")]),
            ],
        );
    }
}

fn a_recursive_watch_fires_for_all_below_but_not_for_children() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    for _ in 0..2 {
        after_each(
            &mut client,
            &mut other,
            &[
                (create("/pp"), vec![]),
                (create("/p"), vec![created("/p")]),
                (set_data("/p", b"1"), vec![changed("/p")]),
                (create("/p/c"), vec![created("/p/c")]),
                (create("/p/c/d"), vec![created("/p/c/d")]),
                (set_data("/p/c/d", b""), vec![changed("/p/c/d")]),
                (set_acl("/p/c", &open()), vec![]),
                (delete("/p/c/d"), vec![deleted("/p/c/d")]),
                (delete("/p/c"), vec![deleted("/p/c")]),
                (delete("/p"), vec![deleted("/p")]),
                (delete("/pp"), vec![]),
            ],
        );
    }
    client.good(&add_watch("/", RECURSIVE_WATCH));
    after_each(
        &mut client,
        &mut other,
        &[(create("/x"), vec![created("/x")]), (create("/p"), vec![created("/p")])],
    );
}

fn watches_of_several_kinds_on_one_node() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p", "/p/c"]);
    // A recursive watch above, and one-shot watches below: one event for each change of a node.
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    client.good(&watch_data("/p/c"));
    client.good(&watch_children("/p/c"));
    after_each(
        &mut client,
        &mut other,
        &[
            (set_data("/p/c", b""), vec![changed("/p/c")]),
            (create("/p/c/d"), vec![created("/p/c/d"), children("/p/c")]),
            (create("/p/c/e"), vec![created("/p/c/e")]),
            (delete("/p/c/e"), vec![deleted("/p/c/e")]),
        ],
    );
    // A recursive watch above, and a persistent one below.
    client.good(&add_watch("/p/c", PERSISTENT_WATCH));
    after_each(
        &mut client,
        &mut other,
        &[
            (set_data("/p/c", b""), vec![changed("/p/c")]),
            (delete("/p/c/d"), vec![deleted("/p/c/d"), children("/p/c")]),
            (delete("/p/c"), vec![deleted("/p/c")]),
            (create("/p/c"), vec![created("/p/c")]),
        ],
    );
    // Two recursive watches.
    client.good(&add_watch("/p/c", RECURSIVE_WATCH));
    // In 3.9 the persistent one stands beside them.
    let with_children = |event| if is_39() { vec![event, children("/p/c")] } else { vec![event] };
    after_each(
        &mut client,
        &mut other,
        &[
            (create("/p/c/d"), with_children(created("/p/c/d"))),
            (delete("/p/c/d"), with_children(deleted("/p/c/d"))),
        ],
    );
}

fn the_later_mode_takes_the_place_of_the_former() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    client.good(&add_watch("/p", PERSISTENT_WATCH));
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    after_each(&mut client, &mut other, &[(create("/p/c"), vec![created("/p/c")])]);
    client.good(&add_watch("/p", PERSISTENT_WATCH));
    after_each(
        &mut client,
        &mut other,
        &[(delete("/p/c"), vec![children("/p")]), (create("/p/c"), vec![children("/p")])],
    );
}

fn a_one_shot_watch_takes_the_place_of_a_lasting_one() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    // Data and child watches each have their own mode.
    client.good(&add_watch("/p", PERSISTENT_WATCH));
    client.good(&watch_data("/p"));
    after_each(
        &mut client,
        &mut other,
        &[
            (set_data("/p", b""), vec![changed("/p")]),
            (set_data("/p", b""), vec![]),
            (create("/p/c"), vec![children("/p")]),
            (create("/p/d"), vec![children("/p")]),
        ],
    );
    client.good(&watch_children("/p"));
    after_each(
        &mut client,
        &mut other,
        &[
            (delete("/p/c"), vec![children("/p")]),
            (delete("/p/d"), vec![]),
            (create("/p/c"), vec![]),
        ],
    );
    // The half of a recursive watch that sees deleted nodes as parents is left.
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    client.good(&watch_exists("/p"));
    after_each(
        &mut client,
        &mut other,
        &[
            (set_data("/p/c", b""), vec![]),
            (set_data("/p", b""), vec![changed("/p")]),
            (create("/p/d"), vec![]),
            (delete("/p/d"), vec![deleted("/p/d")]),
            (delete("/p/c"), vec![deleted("/p/c")]),
            (delete("/p"), vec![deleted("/p")]),
        ],
    );
}

fn add_watch_needs_no_node_and_a_known_mode() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    other.good(&create("/locked").acl(&[acl(2, "world", "anyone")]));
    codes(
        &mut client,
        &[
            (add_watch("/nothing", PERSISTENT_WATCH), 0),
            (add_watch("/locked", PERSISTENT_WATCH), 0),
            (add_watch("no-path", RECURSIVE_WATCH), 0),
            (add_watch("", PERSISTENT_WATCH), 0),
            (add_watch("/bad//", RECURSIVE_WATCH), 0),
            (add_watch("/m", 2), MARSHALLING),
            (add_watch("/m", -1), MARSHALLING),
        ],
    );
    after_each(
        &mut client,
        &mut other,
        &[
            (create("/nothing"), vec![created("/nothing")]),
            (create("/m"), vec![]),
            (set_data("/m", b""), vec![]),
        ],
    );
}

fn watches_are_removed_by_kind() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    let kinds = [CHILD_WATCHES, DATA_WATCHES, ANY_WATCHES];
    codes(&mut client, &kinds.map(|kind| (remove_watches("/p", kind), NO_WATCHER)));
    codes(&mut client, &kinds.map(|kind| (check_watches("/p", kind), NO_WATCHER)));
    codes(&mut client, &kinds.map(|kind| (remove_watches("/nothing", kind), NO_WATCHER)));
    for kind in [0, 4, -1, 5] {
        codes(
            &mut client,
            &[(remove_watches("/p", kind), MARSHALLING), (check_watches("/p", kind), MARSHALLING)],
        );
    }
    let lasting = add_watch("/p", PERSISTENT_WATCH);
    let recursive = add_watch("/p", RECURSIVE_WATCH);
    let one_shot = [watch_data("/p"), watch_children("/p")];
    // The watches that are set, the kind that is removed, and whether data and child watches are
    // left.
    for (set, removed, data_left, children_left) in [
        (&one_shot[..1], DATA_WATCHES, false, false),
        (&one_shot[1..], CHILD_WATCHES, false, false),
        (&one_shot, DATA_WATCHES, false, true),
        (&one_shot, CHILD_WATCHES, true, false),
        (&one_shot, ANY_WATCHES, false, false),
        (&one_shot[..1], ANY_WATCHES, false, false),
        (&one_shot[1..], ANY_WATCHES, false, false),
        (from_ref(&lasting), DATA_WATCHES, false, true),
        (from_ref(&lasting), CHILD_WATCHES, true, false),
        (from_ref(&lasting), ANY_WATCHES, false, false),
        (from_ref(&recursive), DATA_WATCHES, false, true),
        (from_ref(&recursive), CHILD_WATCHES, true, false),
        (from_ref(&recursive), ANY_WATCHES, false, false),
    ] {
        for watch in set {
            client.good(watch);
        }
        client.good(&remove_watches("/p", removed));
        assert_eq!(client.code(&remove_watches("/p", removed)), NO_WATCHER, "{set:?}, {removed}");
        let left = |left| if left { 0 } else { NO_WATCHER };
        codes(
            &mut client,
            &[
                (check_watches("/p", DATA_WATCHES), left(data_left)),
                (check_watches("/p", CHILD_WATCHES), left(children_left)),
                (check_watches("/p", ANY_WATCHES), left(data_left || children_left)),
            ],
        );
        // If one half of a removal fails, the other half still works.
        client.code(&remove_watches("/p", ANY_WATCHES));
        other.good(&set_data("/p", b""));
        heard(&mut client, &[]);
    }
}

/// `checkWatches` finds the watches of any connection on the path. Only for lasting watches it
/// uses the asking connection's own.
fn a_check_succeeds_by_the_watch_of_another_connection() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p", "/p/c"]);
    other.good(&watch_data("/p"));
    codes(
        &mut client,
        &[
            (check_watches("/p", DATA_WATCHES), 0),
            (check_watches("/p", ANY_WATCHES), 0),
            (check_watches("/p", CHILD_WATCHES), NO_WATCHER),
            (check_watches("/p/c", DATA_WATCHES), NO_WATCHER),
            (remove_watches("/p", DATA_WATCHES), NO_WATCHER),
        ],
    );
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    codes(
        &mut client,
        &[
            (check_watches("/p", CHILD_WATCHES), 0),
            (check_watches("/p/c", ANY_WATCHES), NO_WATCHER),
        ],
    );
}

fn a_lasting_watch_is_filtered_by_permission() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    let no_read = [acl(30, "world", "anyone")];
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    other.good(&add_watch("/p", PERSISTENT_WATCH));
    after_each(
        &mut client,
        &mut other,
        &[
            (create("/p/hidden").acl(&no_read), vec![]),
            (set_data("/p/hidden", b""), vec![]),
            (create("/p/hidden/seen"), vec![created("/p/hidden/seen")]),
            (set_acl("/p", &no_read), vec![]),
            (set_data("/p", b""), vec![]),
            (create("/p/seen"), vec![created("/p/seen")]),
            (delete("/p/seen"), vec![deleted("/p/seen")]),
            (delete("/p/hidden/seen"), vec![deleted("/p/hidden/seen")]),
            (delete("/p/hidden"), vec![]),
            (set_acl("/p", &open()), vec![]),
            (delete("/p"), vec![deleted("/p")]),
        ],
    );
    heard(&mut other, &[children("/p"), deleted("/p")]);
}

fn removed_watches_are_silent() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    client.good(&remove_watches("/p", CHILD_WATCHES));
    // The events of the data half.
    after_each(
        &mut client,
        &mut other,
        &[
            (create("/p/c"), vec![created("/p/c")]),
            (set_data("/p/c", b""), vec![changed("/p/c")]),
            (delete("/p/c"), vec![deleted("/p/c")]),
        ],
    );
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    client.good(&remove_watches("/p", DATA_WATCHES));
    // The events of the child half.
    after_each(
        &mut client,
        &mut other,
        &[
            (create("/p/c"), vec![]),
            (set_data("/p/c", b""), vec![]),
            (delete("/p/c"), vec![deleted("/p/c")]),
            (delete("/p"), vec![deleted("/p")]),
        ],
    );
    client.good(&remove_watches("/p", ANY_WATCHES));
    after_each(&mut client, &mut other, &[(create("/p"), vec![]), (delete("/p"), vec![])]);
}

fn modes_stand_beside_each_other() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    client.good(&add_watch("/p", PERSISTENT_WATCH));
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    client.good(&watch_data("/p"));
    client.good(&watch_children("/p"));
    // One event for each change; the one-shot watches go, and the others stay.
    for _ in 0..2 {
        after_each(
            &mut client,
            &mut other,
            &[
                (set_data("/p", b""), vec![changed("/p")]),
                (create("/p/c"), vec![created("/p/c"), children("/p")]),
                (set_data("/p/c", b""), vec![changed("/p/c")]),
                (delete("/p/c"), vec![deleted("/p/c"), children("/p")]),
            ],
        );
    }
    after_each(&mut client, &mut other, &[(delete("/p"), vec![deleted("/p")])]);
}

fn each_mode_is_removed_by_itself() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    let kinds = [CHILD_WATCHES, DATA_WATCHES, ANY_WATCHES, PERSISTENT_WATCHES, RECURSIVE_WATCHES];
    for kind in kinds {
        codes(
            &mut client,
            &[
                (remove_watches("/p", kind), NO_WATCHER),
                (check_watches("/p", kind), NO_WATCHER),
                (remove_watches("/nothing", kind), NO_WATCHER),
            ],
        );
    }
    for kind in [0, -1, 6] {
        codes(
            &mut client,
            &[(remove_watches("/p", kind), MARSHALLING), (check_watches("/p", kind), MARSHALLING)],
        );
    }
    let set = [
        (CHILD_WATCHES, watch_children("/p")),
        (DATA_WATCHES, watch_data("/p")),
        (PERSISTENT_WATCHES, add_watch("/p", PERSISTENT_WATCH)),
        (RECURSIVE_WATCHES, add_watch("/p", RECURSIVE_WATCH)),
    ];
    for removed in kinds {
        for (_, watch) in &set {
            client.good(watch);
        }
        client.good(&remove_watches("/p", removed));
        assert_eq!(client.code(&remove_watches("/p", removed)), NO_WATCHER, "{removed}");
        for (kind, _) in &set {
            let is_left = removed != ANY_WATCHES && removed != *kind;
            let code = if is_left { 0 } else { NO_WATCHER };
            assert_eq!(client.code(&check_watches("/p", *kind)), code, "{kind} after {removed}");
        }
        let any = if removed == ANY_WATCHES { NO_WATCHER } else { 0 };
        codes(&mut client, &[(check_watches("/p", ANY_WATCHES), any)]);
        codes(&mut client, &[(remove_watches("/p", ANY_WATCHES), any)]);
        other.good(&set_data("/p", b""));
        heard(&mut client, &[]);
    }
}

fn a_check_sees_only_the_clients_own_watches() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p", "/p/c"]);
    other.good(&watch_data("/p"));
    other.good(&add_watch("/p", RECURSIVE_WATCH));
    let kinds = [CHILD_WATCHES, DATA_WATCHES, ANY_WATCHES, PERSISTENT_WATCHES, RECURSIVE_WATCHES];
    codes(&mut client, &kinds.map(|kind| (check_watches("/p", kind), NO_WATCHER)));
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    codes(
        &mut client,
        &[
            (check_watches("/p", RECURSIVE_WATCHES), 0),
            (check_watches("/p", ANY_WATCHES), 0),
            (check_watches("/p", CHILD_WATCHES), NO_WATCHER),
            (check_watches("/p", DATA_WATCHES), NO_WATCHER),
            (check_watches("/p", PERSISTENT_WATCHES), NO_WATCHER),
            (check_watches("/p/c", ANY_WATCHES), NO_WATCHER),
        ],
    );
}
