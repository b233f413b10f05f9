package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.*;
import org.apache.curator.framework.recipes.barriers.*;
import org.apache.curator.framework.recipes.cache.*;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.*;
import org.apache.curator.retry.RetryNTimes;

/** Curator's other recipes, unchanged. */
final class Recipes {
    private static byte[] bytes(String text) { return text.getBytes(); }

    static void curatorCacheMirrorsATree(Scene scene) throws Exception {
        Proxy proxy = scene.proxy();
        CuratorFramework client = scene.client(proxy), zk = scene.zk;
        String path = scene.at("tree"), a = path + "/a", b = a + "/b";
        Seen<String> seen = new Seen<>();
        zk.create().creatingParentsIfNeeded().forPath(b, bytes("b"));
        CuratorCache cache = scene.own(CuratorCache.build(client, path));
        cache.listenable().addListener(CuratorCacheListener.builder()
                        .forCreates(node -> seen.add("+" + node.getPath()))
                        .forChanges(
                                (old, node)
                                        -> seen.add("=" + node.getPath() + " " + new String(node.getData())))
                        .forDeletes(node -> seen.add("-" + node.getPath()))
                        .forInitialized(() -> seen.add("ready"))
                        .build());
        cache.start();
        seen.skipTo("ready");
        equal(new String(cache.get(b).orElseThrow().getData()), "b", "data");
        equal(cache.size(), 3, "nodes");
        seen.clear();
        zk.setData().forPath(b, bytes("new"));
        seen.next("=" + b + " new", "the change");
        zk.create().forPath(a + "/c");
        seen.next("+" + a + "/c", "the new node");
        zk.delete().forPath(b);
        seen.next("-" + b, "the deletion");
        var states = Scene.states(client);
        proxy.refuse();
        states.skipTo(org.apache.curator.framework.state.ConnectionState.SUSPENDED);
        zk.setData().forPath(a, bytes("meanwhile"));
        proxy.admit();
        seen.skipTo("=" + a + " meanwhile");
        zk.setData().forPath(a, bytes("after"));
        seen.skipTo("=" + a + " after");
    }

    @SuppressWarnings("deprecation")
    static void olderCachesFollowTheirNodes(Scene scene) throws Exception {
        String path = scene.at("node");
        Seen<String> node = new Seen<>(), children = new Seen<>(), tree = new Seen<>();
        NodeCache one = scene.own(new NodeCache(scene.client(), path));
        one.getListenable().addListener(
                ()
                        -> node.add(one.getCurrentData() == null
                                        ? "none"
                                        : new String(one.getCurrentData().getData())));
        one.start(true);
        PathChildrenCache many = scene.own(new PathChildrenCache(scene.client(), path, true));
        many.getListenable().addListener(
                (c, event)
                        -> children.add(event.getType()
                                + (event.getData() == null ? "" : " " + event.getData().getPath())));
        TreeCache all = scene.own(new TreeCache(scene.client(), path));
        all.getListenable().addListener(
                (c, event)
                        -> tree.add(event.getType()
                                + (event.getData() == null ? "" : " " + event.getData().getPath())));
        all.start();
        tree.skipTo("INITIALIZED");
        scene.zk.create().forPath(path, bytes("1"));
        node.next("1", "the node");
        tree.skipTo("NODE_ADDED " + path);
        many.start(PathChildrenCache.StartMode.POST_INITIALIZED_EVENT);
        children.skipTo("INITIALIZED");
        scene.zk.create().forPath(path + "/a");
        children.next("CHILD_ADDED " + path + "/a", "a child");
        tree.next("NODE_ADDED " + path + "/a", "a child");
        scene.zk.setData().forPath(path + "/a", bytes("x"));
        children.next("CHILD_UPDATED " + path + "/a", "its change");
        tree.next("NODE_UPDATED " + path + "/a", "its change");
        scene.zk.delete().forPath(path + "/a");
        children.next("CHILD_REMOVED " + path + "/a", "its end");
        tree.next("NODE_REMOVED " + path + "/a", "its end");
        scene.zk.setData().forPath(path, bytes("2"));
        node.next("2", "the change");
        many.close(); // it would create its node again
        scene.zk.delete().forPath(path);
        node.next("none", "the end");
    }

    static void countersAddUp(Scene scene) throws Exception {
        List<CuratorFramework> clients = scene.clients(3);
        List<Body> bodies = new ArrayList<>();
        for (CuratorFramework client : clients) {
            DistributedAtomicLong counter =
                    new DistributedAtomicLong(client, scene.at("counter"), new RetryNTimes(200, 2));
            bodies.add(() -> {
                for (int i = 0; i < 15; i++) yes(counter.increment().succeeded(), "an increment fails");
            });
        }
        together(bodies);
        equal(new DistributedAtomicLong(scene.zk, scene.at("counter"), new RetryNTimes(1, 1))
                        .get()
                        .postValue(),
                45L, "the counter");

        SharedCount one = scene.own(new SharedCount(clients.get(0), scene.at("shared"), 7)),
                    two = scene.own(new SharedCount(clients.get(1), scene.at("shared"), 7));
        Seen<Integer> seen = new Seen<>();
        two.addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader count, int value) {
                seen.add(value);
            }

            @Override
            public void stateChanged(
                    CuratorFramework c, org.apache.curator.framework.state.ConnectionState state) {}
        });
        one.start();
        two.start();
        VersionedValue<Integer> old = one.getVersionedValue();
        yes(one.trySetCount(old, 8), "a count was not set");
        seen.skipTo(8);
        yes(two.trySetCount(two.getVersionedValue(), 9), "a count was not set");
        yes(!one.trySetCount(old, 10), "a count replaced a newer one");
        seen.skipTo(9);
    }

    static void barriersHoldAndLetGo(Scene scene) throws Exception {
        List<CuratorFramework> clients = scene.clients(2);
        DistributedBarrier set = new DistributedBarrier(clients.get(0), scene.at("barrier")),
                           waits = new DistributedBarrier(clients.get(1), scene.at("barrier"));
        set.setBarrier();
        yes(!waits.waitOnBarrier(SHORT, TimeUnit.MILLISECONDS), "a barrier lets a thread through");
        Future<Boolean> waiting = task(() -> waits.waitOnBarrier(SOON, TimeUnit.SECONDS));
        set.removeBarrier();
        yes(result(waiting), "a barrier is not removed");

        DistributedDoubleBarrier one = new DistributedDoubleBarrier(clients.get(0), scene.at("double"), 2),
                                 two = new DistributedDoubleBarrier(clients.get(1), scene.at("double"), 2);
        Future<Boolean> first = task(() -> one.enter(SOON, TimeUnit.SECONDS));
        until("the first has come", () -> scene.children("double").size() == 1);
        yes(!first.isDone(), "entered alone");
        yes(two.enter(SOON, TimeUnit.SECONDS) && result(first), "both do not enter");
        Future<Boolean> leaves = task(() -> one.leave(SOON, TimeUnit.SECONDS));
        yes(two.leave(SOON, TimeUnit.SECONDS) && result(leaves), "both do not leave");
    }

    static void groupsKnowTheirMembers(Scene scene) throws Exception {
        CuratorFramework leaving = scene.client();
        GroupMember one = scene.own(new GroupMember(scene.client(), scene.at("group"), "one", bytes("1")));
        GroupMember two = new GroupMember(leaving, scene.at("group"), "two", bytes("2"));
        one.start();
        two.start();
        until("both are members", () -> one.getCurrentMembers().keySet().equals(Set.of("one", "two")));
        until("both know", () -> two.getCurrentMembers().keySet().equals(Set.of("one", "two")));
        leaving.close();
        until("one has left", () -> one.getCurrentMembers().keySet().equals(Set.of("one")));
    }

    static void queuesGiveEachEntryOnce(Scene scene) throws Exception {
        SimpleDistributedQueue one = new SimpleDistributedQueue(scene.client(), scene.at("queue")),
                               two = new SimpleDistributedQueue(scene.client(), scene.at("queue"));
        Future<byte[]> waits = task(one::take);
        until("it waits", () -> scene.exists("queue"));
        yes(two.offer(bytes("first")), "an offer is refused");
        equal(new String(result(waits)), "first", "taken");
        for (int i = 0; i < 20; i++) two.offer(bytes(Integer.toString(100 + i)));
        Queue<String> got = new ConcurrentLinkedQueue<>();
        Body drain = () -> {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(scene.zk, scene.at("queue"));
            for (byte[] entry; (entry = queue.poll()) != null;) got.add(new String(entry));
        };
        together(List.of(drain, drain));
        List<String> sorted = new ArrayList<>(got);
        Collections.sort(sorted);
        equal(sorted.size() + sorted.get(0) + sorted.get(19), "20100119", "entries");
        equal(new HashSet<>(sorted).size(), 20, "different entries");
    }
}
