"""kazoo's operations, their answers and errors. (kazoo has no containers and no TTL nodes.)"""

import time

from kazoo import exceptions as errors
from kazoo.protocol.states import EventType, KazooState
from kazoo.security import (
    OPEN_ACL_UNSAFE,
    Permissions,
    make_acl,
    make_digest_acl,
    make_digest_acl_credential,
)

from harness import SOON, Seen, check, cut_and_await, equal, raises, settle, states_of, true


@check
def creates_nodes_of_all_its_modes(scene):
    zk, at = scene.zk, scene.at
    equal(zk.create(at("plain"), b"data"), at("plain"))
    path, stat = zk.create(at("ephemeral"), b"mine", ephemeral=True, include_data=True)
    equal((path, stat.ephemeralOwner, stat.dataLength), (at("ephemeral"), zk.client_id[0], 4))
    equal(stat, zk.exists(path), "the Stat of create2 and of exists")
    equal(zk.exists(at("plain")).ephemeralOwner, 0)
    # The number is the parent's count of changes, and there were two before.
    equal(zk.create(at("s-"), sequence=True), at("s-0000000002"))
    equal(zk.create(at("e-"), sequence=True, ephemeral=True), at("e-0000000003"))
    zk.delete(at("s-0000000002"))
    equal(zk.create(at("s-"), sequence=True), at("s-0000000004"), "numbers are not used again")
    equal(zk.create(at("made/on/the/way"), makepath=True), at("made/on/the/way"))
    equal(zk.create(at("made/"), sequence=True), at("made/0000000001"))
    equal(zk.create(at("unicode-\u00e4\u2713"), "\u00e4".encode()), at("unicode-\u00e4\u2713"))
    equal(
        sorted(zk.get_children(scene.path)),
        sorted(
            ["plain", "ephemeral", "e-0000000003", "s-0000000004", "made", "unicode-\u00e4\u2713"]
        ),
    )


@check
def is_told_the_right_errors(scene):
    zk, at = scene.zk, scene.at
    zk.create(at("parent/child"), makepath=True)
    zk.create(at("mine"), ephemeral=True)
    raises(errors.NodeExistsError, zk.create, at("parent"))
    raises(errors.NoNodeError, zk.create, at("nowhere/child"))
    raises(errors.NoChildrenForEphemeralsError, zk.create, at("mine/child"))
    raises(errors.NotEmptyError, zk.delete, at("parent"))
    raises(errors.BadVersionError, zk.delete, at("parent/child"), 1)
    raises(errors.BadVersionError, zk.set, at("parent"), b"", 1)
    for call in (zk.get, zk.get_children, zk.delete, zk.get_acls):
        raises(errors.NoNodeError, call, at("nowhere"))
    raises(errors.NoNodeError, zk.set, at("nowhere"), b"")
    raises(errors.NoNodeError, zk.set_acls, at("nowhere"), OPEN_ACL_UNSAFE)
    raises(errors.BadArgumentsError, zk.delete, "/")
    equal(zk.exists(at("nowhere")), None)


@check
def keeps_data_and_its_stat(scene):
    zk, path = scene.zk, scene.at("node")
    before = time.time()
    zk.create(path, b"")
    first = zk.exists(path)
    equal(
        first, (first.czxid, first.czxid, first.ctime, first.ctime, 0, 0, 0, 0, 0, 0, first.czxid)
    )
    true(
        abs(first.created - before) < SOON,
        "created at %r by the server's clock, %r by ours" % (first.created, before),
    )
    second = zk.set(path, b"12345", 0)
    equal(second[:2] + second[4:], (first.czxid, second.mzxid, 1, 0, 0, 0, 5, 0, first.czxid))
    true(
        second.mzxid > first.mzxid and second.mtime >= first.mtime, "%r after %r" % (second, first)
    )
    zk.create(path + "/child")
    data, third = zk.get(path)
    equal((data, third.cversion, third.numChildren, third.mzxid), (b"12345", 1, 1, second.mzxid))
    equal(third.pzxid, zk.exists(path + "/child").czxid)
    equal(zk.get_children(path, include_data=True), (["child"], third))
    zk.delete(path + "/child")
    fourth = zk.exists(path)
    true(
        (fourth.cversion, fourth.numChildren) == (2, 0) and fourth.pzxid > third.pzxid,
        "after the delete: %r" % (fourth,),
    )
    equal(zk.sync(path), path)


@check
def carries_much_data_and_many_children(scene):
    zk, path = scene.zk, scene.at("much")
    data = bytes(range(256)) * 3600  # 900 KiB: near the 1 MiB that a packet may have
    zk.create(path, data)
    equal(zk.get(path)[0], data, "900 KiB")
    made = [zk.create_async(path + "/pipelined-", sequence=True) for _ in range(300)]
    equal(
        [one.get(timeout=SOON) for one in made],
        ["%s/pipelined-%010d" % (path, i) for i in range(300)],
    )
    equal(sorted(zk.get_children(path)), ["pipelined-%010d" % i for i in range(300)])


@check
def commits_a_transaction_whole_or_not_at_all(scene):
    zk, at, seen = scene.zk, scene.at, Seen()
    zk.create(at("a"), b"old")
    zk.create(at("goes"))
    zk.get_children(scene.path, watch=seen.put)
    batch = zk.transaction()
    batch.check(at("a"), 0)
    batch.create(at("b"), b"new")
    batch.create(at("b/s-"), sequence=True)
    batch.create(at("mine"), ephemeral=True)
    batch.set_data(at("a"), b"set", 0)
    batch.delete(at("goes"))
    done = batch.commit()
    equal(
        (done[0], done[1], done[2], done[3], done[5]),
        (True, at("b"), at("b/s-0000000000"), at("mine"), True),
    )
    equal(done[4], zk.exists(at("a")), "the Stat of its setData")
    equal(
        len(
            {zk.exists(at(name)).czxid for name in ("b", "b/s-0000000000", "mine")}
            | {done[4].mzxid}
        ),
        1,
        "zxids",
    )
    settle(zk)
    equal([event.type for event in seen.all()], [EventType.CHILD])

    before = zk.get(at("a")), sorted(zk.get_children(scene.path))
    batch = zk.transaction()
    batch.set_data(at("a"), b"never")
    batch.create(at("c"))
    batch.check(at("a"), 7)
    batch.delete(at("b"))
    kinds = [type(result) for result in batch.commit()]
    equal(
        kinds,
        [
            errors.RolledBackError,
            errors.RolledBackError,
            errors.BadVersionError,
            errors.RuntimeInconsistency,
        ],
    )
    equal((zk.get(at("a")), sorted(zk.get_children(scene.path))), before)


@check
def keeps_strangers_out_by_acls(scene):
    owner, stranger, at = scene.zk, scene.client(), scene.at
    scheme, secret = "digest", "anna:secret"
    acls = [make_digest_acl("anna", "secret", all=True), make_acl("world", "anyone", create=True)]
    owner.create(at("private"), b"data", acl=acls)
    for call in (owner.get, owner.get_children, owner.get_acls):
        raises(errors.NoAuthError, call, at("private"))
    raises(errors.NoAuthError, owner.set, at("private"), b"")
    true(owner.add_auth(scheme, secret), "add_auth was refused")
    equal((owner.get(at("private"))[0], owner.get_acls(at("private"))[0]), (b"data", acls))
    raises(errors.NoAuthError, stranger.get, at("private"))
    raises(errors.NoAuthError, stranger.set_acls, at("private"), OPEN_ACL_UNSAFE)
    stranger.create(at("private/by a stranger"))
    raises(errors.NoAuthError, stranger.delete, at("private/by a stranger"))

    opened = [make_acl("ip", "127.0.0.1", read=True), *acls]
    stat = owner.set_acls(at("private"), opened, 0)
    equal((stat.aversion, stat.version), (1, 0))
    raises(errors.BadVersionError, owner.set_acls, at("private"), opened, 0)
    equal(stranger.get(at("private"))[0], b"data", "read by address")
    shown = [entry.id.id for entry in stranger.get_acls(at("private"))[0]]
    equal(shown, ["127.0.0.1", "anna:x", "anyone"], "digests are shown to an admin only")

    raises(
        errors.InvalidACLError, stranger.create, at("x"), acl=[make_acl("nonsense", "x", all=True)]
    )
    raises(errors.InvalidACLError, stranger.create, at("x"), acl=[make_acl("auth", "", all=True)])
    owner.create(at("auth"), acl=[make_acl("auth", "", read=True, admin=True)])
    (entry,) = owner.get_acls(at("auth"))[0]
    equal((entry.perms, entry.id.scheme), (Permissions.READ | Permissions.ADMIN, "digest"))
    equal(entry.id.id, make_digest_acl_credential("anna", "secret"))
    cut_and_await(owner)  # kazoo sends its credentials again
    equal(owner.get(at("private"))[0], b"data", "after a reconnect")


@check
def is_refused_with_a_wrong_scheme(scene):
    client = scene.client()
    states = states_of(client)
    raises(errors.AuthFailedError, client.add_auth, "nonsense", "secret")
    states.skip_to(KazooState.LOST)


@check
def works_below_a_chroot(scene):
    inside, seen = scene.client(hosts=scene.hosts + scene.path), Seen()
    inside.get_children("/", watch=seen.put)
    equal(inside.create("/a/b", b"x", makepath=True), "/a/b")
    equal(inside.create("/a/s-", sequence=True), "/a/s-0000000001")
    equal(scene.zk.get(scene.at("a/b"))[0], b"x")
    equal([seen.next().path, inside.get_children("/")], ["/", ["a"]])
    batch = inside.transaction()
    batch.create("/t")
    equal(batch.commit(), ["/t"])
    true(scene.zk.exists(scene.at("t")), "the transaction did not stay below the chroot")
