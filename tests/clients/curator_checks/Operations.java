package checks;

import static checks.Harness.*;

import java.util.*;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.*;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.*;
import org.apache.zookeeper.data.*;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

/** Operations of Curator and of the Java client below it, with their answers and errors. */
final class Operations {
    private static byte[] bytes(String text) { return text.getBytes(); }

    private static ZooKeeper raw(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper();
    }

    static void createsNodesOfAllModes(Scene scene) throws Exception {
        CuratorFramework zk = scene.zk;
        String[] due = {"PERSISTENT", "PERSISTENT_SEQUENTIAL 0000000001", "EPHEMERAL",
                "EPHEMERAL_SEQUENTIAL 0000000003", "CONTAINER", "PERSISTENT_WITH_TTL",
                "PERSISTENT_SEQUENTIAL_WITH_TTL 0000000006"};
        for (int i = 0; i < due.length; i++) {
            String[] parts = due[i].split(" ");
            CreateMode mode = CreateMode.valueOf(parts[0]);
            String path = scene.at(parts[0] + "-");
            Stat stat = new Stat();
            String made = mode.isTTL()
                    ? zk.create().withTtl(3_600_000).storingStatIn(stat).withMode(mode).forPath(
                              path, bytes("x"))
                    : zk.create().storingStatIn(stat).withMode(mode).forPath(path, bytes("x"));
            equal(made, path + (parts.length > 1 ? parts[1] : ""), "the created path");
            equal(stat.getEphemeralOwner(), mode.isEphemeral() ? Scene.session(zk) : 0,
                    "the owner of a " + mode);
            equal(stat, zk.checkExists().forPath(made), "the Stat of create and of exists, " + mode);
        }
        raises(KeeperException.NoChildrenForEphemeralsException.class,
                () -> zk.create().forPath(scene.at("EPHEMERAL-/child")));
        String made = zk.create()
                              .creatingParentContainersIfNeeded()
                              .withProtection()
                              .withMode(CreateMode.EPHEMERAL_SEQUENTIAL)
                              .forPath(scene.at("made/on the way/p-"));
        yes(made.matches(".*/made/on the way/_c_[-0-9a-f]{36}-p-0000000000"), "with protection: " + made);
        zk.create().orSetData().forPath(scene.at("PERSISTENT-"), bytes("again"));
        equal(new String(zk.getData().forPath(scene.at("PERSISTENT-"))), "again", "orSetData");
        ZooKeeper own = raw(scene.client());
        own.create(scene.at("container"), null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER);
        own.create(scene.at("ephemeral"), null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        equal(own.getEphemerals(), List.of(scene.at("ephemeral")), "ephemerals of the session");
        equal(own.getEphemerals(scene.at("nowhere")), List.of(), "ephemerals below a path");
    }

    /** A server checks for them every minute, or as often as znode.container.checkIntervalMs says. */
    static void containersAndTtlNodesAreReaped(Scene scene) throws Exception {
        CuratorFramework zk = scene.zk;
        TransactionOp op = zk.transactionOp();
        zk.create().creatingParentContainersIfNeeded().forPath(scene.at("container/in one/x"));
        zk.create().withTtl(200).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(scene.at("ttl"));
        zk.transaction().forOperations(
                op.create().withMode(CreateMode.CONTAINER).forPath(scene.at("of a transaction")),
                op.create().withMode(CreateMode.EPHEMERAL).forPath(scene.at("of a transaction/x")),
                op.create()
                        .withTtl(200)
                        .withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)
                        .forPath(scene.at("ttl-")));
        zk.create().forPath(scene.at("plain"));
        zk.create()
                .withMode(CreateMode.CONTAINER)
                .forPath(scene.at("unused")); // stays because it never had a child
        zk.create().withTtl(3_600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(scene.at("later"));
        zk.create().withMode(CreateMode.CONTAINER).forPath(scene.at("in use"));
        zk.create().forPath(scene.at("in use/x"));
        zk.delete().forPath(scene.at("container/in one/x"));
        zk.delete().forPath(scene.at("of a transaction/x"));
        until("they are deleted", 150, () -> zk.getChildren().forPath(scene.path).size() <= 4);
        equal(new TreeSet<>(zk.getChildren().forPath(scene.path)),
                new TreeSet<>(List.of("plain", "unused", "later", "in use")), "the nodes that stay");
    }

    static void isToldTheRightErrors(Scene scene) throws Exception {
        CuratorFramework zk = scene.zk;
        String path = scene.at("node"), nowhere = scene.at("nowhere");
        zk.create().creatingParentsIfNeeded().forPath(path + "/child");
        raises(KeeperException.NodeExistsException.class, () -> zk.create().forPath(path));
        raises(KeeperException.NoNodeException.class, () -> zk.create().forPath(nowhere + "/child"));
        raises(KeeperException.NotEmptyException.class, () -> zk.delete().forPath(path));
        raises(KeeperException.BadVersionException.class,
                () -> zk.delete().withVersion(3).forPath(path + "/child"));
        raises(KeeperException.BadVersionException.class, () -> zk.setData().withVersion(3).forPath(path));
        raises(KeeperException.NoNodeException.class, () -> zk.getData().forPath(nowhere));
        raises(KeeperException.NoNodeException.class, () -> zk.setData().forPath(nowhere));
        raises(KeeperException.NoNodeException.class, () -> zk.getACL().forPath(nowhere));
        raises(KeeperException.NoNodeException.class, () -> zk.getChildren().forPath(nowhere));
        raises(KeeperException.NoNodeException.class, () -> zk.delete().forPath(nowhere));
        zk.delete().quietly().forPath(nowhere);
        zk.delete().guaranteed().deletingChildrenIfNeeded().forPath(path);
        equal(zk.checkExists().forPath(path), null, "a deleted node");
    }

    static void keepsDataAndItsStat(Scene scene) throws Exception {
        CuratorFramework zk = scene.zk;
        String path = scene.at("node");
        Stat stat = new Stat();
        zk.create().compressed().forPath(path, bytes("compressed"));
        equal(new String(zk.getData().decompressed().storingStatIn(stat).forPath(path)), "compressed",
                "data");
        equal(stat.getMzxid(), stat.getCzxid(), "zxids of a new node");
        Stat set = zk.setData().withVersion(0).forPath(path, bytes("12345"));
        equal(List.of(set.getVersion(), set.getDataLength(), set.getCzxid(), set.getCtime()),
                List.of(1, 5, stat.getCzxid(), stat.getCtime()), "version, length, czxid, ctime");
        yes(set.getMzxid() > set.getCzxid(), "the zxid of the change is " + set.getMzxid());
        zk.create().forPath(path + "/a");
        zk.create().forPath(path + "/b");
        equal(new TreeSet<>(zk.getChildren().storingStatIn(stat).forPath(path)),
                new TreeSet<>(List.of("a", "b")), "children");
        equal(List.of(stat.getNumChildren(), stat.getCversion(), stat.getPzxid()),
                List.of(2, 2, zk.checkExists().forPath(path + "/b").getCzxid()), "children, cversion, pzxid");
        equal(raw(zk).getAllChildrenNumber(scene.path), 3, "nodes below");
        zk.sync().forPath(path);
        byte[] much = new byte[900 << 10];
        new Random(1).nextBytes(much);
        zk.setData().forPath(path, much);
        yes(Arrays.equals(much, zk.getData().forPath(path)), "900 KiB were read back with a difference");
    }

    static void commitsATransactionWholeOrNotAtAll(Scene scene) throws Exception {
        CuratorFramework zk = scene.zk;
        String a = scene.at("a"), b = scene.at("b"), goes = scene.at("goes");
        zk.create().forPath(a);
        zk.create().forPath(goes);
        TransactionOp op = zk.transactionOp();
        List<CuratorTransactionResult> done = zk.transaction().forOperations(
                op.check().withVersion(0).forPath(a), op.create().forPath(b, bytes("new")),
                op.create().withMode(CreateMode.CONTAINER).forPath(scene.at("container")),
                op.create()
                        .withTtl(3_600_000)
                        .withMode(CreateMode.PERSISTENT_WITH_TTL)
                        .forPath(scene.at("ttl")),
                op.create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(b + "/e-"),
                op.setData().withVersion(0).forPath(a, bytes("set")), op.delete().forPath(goes));
        equal(done.stream().map(CuratorTransactionResult::getError).toList(), Collections.nCopies(7, 0),
                "errors");
        equal(done.get(4).getResultPath(), b + "/e-0000000000", "the created path");
        equal(done.get(5).getResultStat(), zk.checkExists().forPath(a), "the Stat of its setData");
        long zxid = done.get(5).getResultStat().getMzxid();
        for (String path : List.of(b, b + "/e-0000000000", scene.at("ttl")))
            equal(zk.checkExists().forPath(path).getCzxid(), zxid, "the zxid of " + path);
        equal(zk.checkExists().forPath(goes), null, "a node that it deletes");

        var failed = raises(KeeperException.BadVersionException.class,
                ()
                        -> zk.transaction().forOperations(op.setData().forPath(a, bytes("never")),
                                op.check().withVersion(7).forPath(b), op.delete().forPath(a)));
        equal(failed.getResults().stream().map(result -> ((OpResult.ErrorResult) result).getErr()).toList(),
                List.of(0, KeeperException.Code.BADVERSION.intValue(),
                        KeeperException.Code.RUNTIMEINCONSISTENCY.intValue()),
                "results");
        equal(new String(zk.getData().forPath(a)), "set", "data after a transaction that failed");

        // Each read fails by itself.
        List<OpResult> read =
                raw(zk).multi(List.of(Op.getData(a), Op.getChildren(scene.at("nowhere")), Op.getChildren(b)));
        equal(new String(((OpResult.GetDataResult) read.get(0)).getData()), "set", "data");
        equal(((OpResult.ErrorResult) read.get(1)).getErr(), KeeperException.Code.NONODE.intValue(),
                "an error");
        equal(((OpResult.GetChildrenResult) read.get(2)).getChildren(), List.of("e-0000000000"), "children");
    }

    static void keepsStrangersOutByAcls(Scene scene) throws Exception {
        String digest = DigestAuthenticationProvider.generateDigest("anna:secret"),
               path = scene.at("private");
        CuratorFramework stranger = scene.zk,
                         owner = scene.own(CuratorFrameworkFactory.builder()
                                         .connectString(scene.server)
                                         .sessionTimeoutMs(Scene.SESSION)
                                         .retryPolicy(new RetryOneTime(100))
                                         .authorization("digest", bytes("anna:secret"))
                                         .build());
        owner.start();
        List<ACL> acls = List.of(new ACL(ZooDefs.Perms.ALL, new Id("digest", digest)),
                new ACL(ZooDefs.Perms.READ, new Id("ip", "127.0.0.1")));
        owner.create().withACL(acls).forPath(path, bytes("data"));
        equal(owner.getACL().forPath(path), acls, "the ACLs");
        equal(new String(stranger.getData().forPath(path)), "data", "read by address");
        raises(KeeperException.NoAuthException.class, () -> stranger.setData().forPath(path));
        raises(KeeperException.NoAuthException.class, () -> stranger.create().forPath(path + "/child"));
        raises(KeeperException.NoAuthException.class,
                () -> stranger.setACL().withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath(path));
        owner.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath(path + "/mine");
        raises(KeeperException.NoAuthException.class, () -> stranger.getData().forPath(path + "/mine"));
        owner.delete().forPath(path + "/mine");
        equal(owner.setACL().withVersion(0).withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath(path).getAversion(),
                1, "aversion");
        raises(KeeperException.BadVersionException.class,
                () -> owner.setACL().withVersion(0).withACL(acls).forPath(path));
        stranger.setData().forPath(path, bytes("by a stranger"));
        raises(KeeperException.InvalidACLException.class,
                () -> stranger.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath(scene.at("x")));
        List<String> known =
                raw(owner).whoAmI().stream().map(who -> who.getAuthScheme() + " " + who.getUser()).toList();
        equal(new TreeSet<>(known), new TreeSet<>(List.of("digest anna", "ip 127.0.0.1")), "whoAmI");
    }
}
