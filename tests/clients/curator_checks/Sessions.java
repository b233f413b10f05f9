package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.*;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.Watcher.WatcherType;

/** Sessions and watches, also under faults. */
final class Sessions {
    static void connectsAndGetsASessionOfItsOwn(Scene scene) throws Exception {
        Set<Long> sessions = new HashSet<>();
        for (CuratorFramework client : scene.clients(3)) {
            ZooKeeper zk = client.getZookeeperClient().getZooKeeper();
            yes(zk.getSessionId() > 0 && zk.getSessionPasswd().length == 16, "the session is " + zk);
            sessions.add(zk.getSessionId());
        }
        equal(sessions.size(), 3, "different sessions");
        Function<Integer, Integer> granted = timeout -> {
            try {
                CuratorFramework client = scene.client(scene.server, timeout);
                return client.getZookeeperClient().getZooKeeper().getSessionTimeout();
            } catch (Exception e) {
                throw new Failed("no session with " + timeout + " ms: " + e);
            }
        };
        equal(granted.apply(10_000), 10_000, "granted");
        int least = granted.apply(200), most = granted.apply(1_000_000_000);
        yes(200 < least && least < 10_000, "200 ms asked, " + least + " granted");
        yes(10_000 < most && most < 1_000_000_000, "1,000,000 s asked, " + most + " ms granted");
    }

    private static CuratorWatcher to(Seen<String> seen) {
        return event -> {
            if (event.getType() != EventType.None) seen.add(event.getType() + " " + event.getPath());
        };
    }

    /** The events that came, when everything that the server has sent so far is handled. */
    private static List<String> came(CuratorFramework client, Seen<String> seen) throws Exception {
        // Callbacks and watchers use one thread: a callback runs after the events that were sent before
        // its answer.
        Seen<Boolean> answered = new Seen<>();
        client.checkExists().inBackground((c, event) -> answered.add(true)).forPath("/");
        answered.next("an answer");
        return seen.all();
    }

    static void isSentEachWatchOnce(Scene scene) throws Exception {
        CuratorFramework zk = scene.client(), other = scene.zk;
        String path = scene.at("node");
        Seen<String> seen = new Seen<>();
        CuratorWatcher watcher = to(seen);
        zk.checkExists().usingWatcher(watcher).forPath(path);
        other.create().forPath(path, "1".getBytes());
        other.setData().forPath(path, "2".getBytes());
        equal(came(zk, seen), List.of("NodeCreated " + path), "events");
        zk.getData().usingWatcher(watcher).forPath(path);
        other.setData().forPath(path, "3".getBytes());
        other.setData().forPath(path, "4".getBytes());
        equal(came(zk, seen), List.of("NodeDataChanged " + path), "events");
        zk.getChildren().usingWatcher(watcher).forPath(path);
        other.setData().forPath(path, "5".getBytes());
        other.create().forPath(path + "/child");
        equal(came(zk, seen), List.of("NodeChildrenChanged " + path), "events");
        other.delete().forPath(path + "/child");
        zk.getData().usingWatcher(watcher).forPath(path);
        zk.getChildren().usingWatcher(watcher).forPath(path);
        other.delete().forPath(path);
        equal(came(zk, seen), List.of("NodeDeleted " + path), "one event for a watcher of data and children");
    }

    static void persistentWatchesStayAndReachAsFarAsTold(Scene scene) throws Exception {
        // Two clients: with two modes on one path, a server keeps the later one for both.
        CuratorFramework zk = scene.client(), recursive = scene.client(), other = scene.zk;
        String path = scene.at("node"), child = path + "/child", deep = child + "/deep";
        Seen<String> own = new Seen<>(), tree = new Seen<>();
        CuratorWatcher here = to(own), below = to(tree);
        zk.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(here).forPath(path);
        recursive.watchers()
                .add()
                .withMode(AddWatchMode.PERSISTENT_RECURSIVE)
                .usingWatcher(below)
                .forPath(path);
        Body changes = () -> {
            other.create().forPath(path);
            other.setData().forPath(path, "1".getBytes());
            other.create().forPath(child);
            other.create().forPath(deep);
            other.setData().forPath(deep, "1".getBytes());
            other.delete().forPath(deep);
            other.delete().forPath(child);
            other.delete().forPath(path);
        };
        for (int round = 0; round < 2; round++) {
            changes.run();
            equal(came(zk, own),
                    List.of("NodeCreated " + path, "NodeDataChanged " + path, "NodeChildrenChanged " + path,
                            "NodeChildrenChanged " + path, "NodeDeleted " + path),
                    "persistent");
            equal(came(recursive, tree),
                    List.of("NodeCreated " + path, "NodeDataChanged " + path, "NodeCreated " + child,
                            "NodeCreated " + deep, "NodeDataChanged " + deep, "NodeDeleted " + deep,
                            "NodeDeleted " + child, "NodeDeleted " + path),
                    "persistent and recursive");
        }
        zk.watchers().remove(here).forPath(path);
        recursive.watchers().remove(below).ofType(WatcherType.Any).forPath(path);
        raises(KeeperException.NoWatcherException.class, () -> zk.watchers().remove(here).forPath(path));
        // The client tells the watchers of the removal, too.
        came(zk, own);
        came(recursive, tree);
        own.clear();
        tree.clear();
        changes.run();
        equal(came(zk, own), List.of(), "events of a removed watch");
        equal(came(recursive, tree), List.of(), "events of a removed watch");
    }

    static void oneShotWatchesCanBeRemoved(Scene scene) throws Exception {
        CuratorFramework zk = scene.client();
        Seen<String> seen = new Seen<>();
        CuratorWatcher data = to(seen), children = to(seen);
        String path = scene.path;
        zk.getData().usingWatcher(data).forPath(path);
        zk.getChildren().usingWatcher(children).forPath(path);
        raises(KeeperException.NoWatcherException.class,
                () -> zk.watchers().remove(children).ofType(WatcherType.Data).forPath(path));
        zk.watchers().remove(data).ofType(WatcherType.Data).forPath(path);
        seen.next("DataWatchRemoved " + path, "the report of the removal");
        scene.zk.setData().forPath(path, "1".getBytes());
        scene.zk.create().forPath(scene.at("child"));
        equal(came(zk, seen), List.of("NodeChildrenChanged " + path), "events after the removal");
        zk.getData().usingWatcher(data).forPath(path);
        zk.checkExists().usingWatcher(children).forPath(path);
        zk.watchers().removeAll().ofType(WatcherType.Data).forPath(path);
        seen.next("DataWatchRemoved " + path, "the report of the removal");
        seen.next("DataWatchRemoved " + path, "the report of the other removal");
        scene.zk.setData().forPath(path, "2".getBytes());
        equal(came(zk, seen), List.of(), "events after the removal of all watches");
    }

    static void watchesSurviveADroppedConnection(Scene scene) throws Exception {
        watchesSurvive(scene, false); // setWatches
    }

    static void persistentWatchesSurviveADroppedConnection(Scene scene) throws Exception {
        watchesSurvive(scene, true); // setWatches2
    }

    private static void watchesSurvive(Scene scene, boolean persistent) throws Exception {
        Proxy proxy = scene.proxy();
        CuratorFramework zk = scene.client(proxy), other = scene.zk;
        Seen<ConnectionState> states = Scene.states(zk);
        Map<String, Seen<String>> seen = new TreeMap<>();
        for (String name : List.of("changed", "deleted", "created", "parent", "looked at", "quiet", "missing",
                     "kept", "tree")) {
            seen.put(name, new Seen<>());
            if (!Set.of("created", "missing").contains(name)) other.create().forPath(scene.at(name));
        }
        long session = Scene.session(zk);
        if (persistent) {
            zk.watchers()
                    .add()
                    .withMode(AddWatchMode.PERSISTENT)
                    .usingWatcher(to(seen.get("kept")))
                    .forPath(scene.at("kept"));
            zk.watchers()
                    .add()
                    .withMode(AddWatchMode.PERSISTENT_RECURSIVE)
                    .usingWatcher(to(seen.get("tree")))
                    .forPath(scene.at("tree"));
        }
        for (String name : List.of("changed", "deleted", "quiet"))
            zk.getData().usingWatcher(to(seen.get(name))).forPath(scene.at(name));
        for (String name : List.of("created", "looked at", "missing"))
            zk.checkExists().usingWatcher(to(seen.get(name))).forPath(scene.at(name));
        zk.getChildren().usingWatcher(to(seen.get("parent"))).forPath(scene.at("parent"));

        proxy.refuse();
        states.skipTo(ConnectionState.SUSPENDED);
        other.setData().forPath(scene.at("changed"), "1".getBytes());
        other.delete().forPath(scene.at("deleted"));
        other.create().forPath(scene.at("created"));
        other.create().forPath(scene.at("parent/child"));
        other.delete().forPath(scene.at("looked at"));
        proxy.admit();
        states.skipTo(ConnectionState.RECONNECTED);
        equal(Scene.session(zk), session, "the session");
        for (String[] due : new String[][] {{"changed", "NodeDataChanged"}, {"deleted", "NodeDeleted"},
                     {"created", "NodeCreated"}, {"parent", "NodeChildrenChanged"},
                     {"looked at", "NodeDeleted"}})
            seen.get(due[0]).next(due[1] + " " + scene.at(due[0]), "the change during the outage");

        other.setData().forPath(scene.at("quiet"), "1".getBytes());
        other.create().forPath(scene.at("missing"));
        seen.get("quiet").next("NodeDataChanged " + scene.at("quiet"), "a watch that was set again");
        seen.get("missing").next("NodeCreated " + scene.at("missing"), "a watch that was set again");
        String kept = scene.at("kept"), tree = scene.at("tree");
        for (String path : List.of(kept, tree)) {
            other.create().forPath(path + "/child");
            other.setData().forPath(path + "/child", "1".getBytes());
            other.setData().forPath(path, "1".getBytes());
        }
        Map<String, List<String>> last = new TreeMap<>();
        for (String name : seen.keySet()) last.put(name, came(zk, seen.get(name)));
        if (persistent) {
            equal(last.remove("kept"), List.of("NodeChildrenChanged " + kept, "NodeDataChanged " + kept),
                    "persistent");
            equal(last.remove("tree"),
                    List.of("NodeCreated " + tree + "/child", "NodeDataChanged " + tree + "/child",
                            "NodeDataChanged " + tree),
                    "persistent and recursive");
        }
        last.values().removeIf(List::isEmpty);
        equal(last, Map.of(), "more events");
    }

    static void anExpiredSessionTakesItsNodesAlong(Scene scene) throws Exception {
        Proxy proxy = scene.proxy();
        CuratorFramework zk = scene.client(proxy);
        Seen<String> gone = new Seen<>();
        zk.create().withMode(CreateMode.EPHEMERAL).forPath(scene.at("mine"));
        PersistentNode kept =
                scene.own(new PersistentNode(zk, CreateMode.EPHEMERAL, false, scene.at("kept"), new byte[0]));
        kept.start();
        until("the persistent node exists", () -> scene.exists("kept"));
        scene.zk.checkExists().usingWatcher(to(gone)).forPath(scene.at("mine"));
        scene.expire(proxy, zk);
        gone.next("NodeDeleted " + scene.at("mine"), "the deletion of the ephemeral node");
        until("the persistent node exists again", () -> {
            var stat = scene.zk.checkExists().forPath(scene.at("kept"));
            return stat != null && stat.getEphemeralOwner() == Scene.session(zk);
        });
    }

    static void aClosedClientTakesItsNodesAlong(Scene scene) throws Exception {
        CuratorFramework leaving = scene.client(), other = scene.client();
        Seen<String> seen = new Seen<>();
        leaving.create().withMode(CreateMode.EPHEMERAL).forPath(scene.at("mine"));
        leaving.create().forPath(scene.at("stays"));
        other.checkExists().usingWatcher(to(seen)).forPath(scene.at("mine"));
        other.getChildren().usingWatcher(to(seen)).forPath(scene.path);
        leaving.close();
        equal(came(other, seen),
                List.of("NodeDeleted " + scene.at("mine"), "NodeChildrenChanged " + scene.path), "events");
        equal(other.getChildren().forPath(scene.path), List.of("stays"), "the remaining nodes");
    }
}
