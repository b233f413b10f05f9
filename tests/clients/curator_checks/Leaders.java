package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.*;

/** Curator's elections, unchanged. */
final class Leaders {
    private static LeaderLatch latch(Scene scene, CuratorFramework client, String name, Seen<String> told)
            throws Exception {
        LeaderLatch latch = new LeaderLatch(client, scene.at("latch"), name);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                told.add(name + " leads");
            }

            @Override
            public void notLeader() {
                told.add(name + " does not lead");
            }
        });
        int before = scene.children("latch").size();
        latch.start();
        until(name + " stands", () -> scene.children("latch").size() == before + 1);
        return latch;
    }

    private static List<String> participants(LeaderLatch latch) throws Exception {
        return latch.getParticipants().stream().map(p -> p.getId() + (p.isLeader() ? " leads" : "")).toList();
    }

    static void latchHasOneLeaderAndThenTheNext(Scene scene) throws Exception {
        Proxy proxy = scene.proxy();
        List<CuratorFramework> clients =
                List.of(scene.client(), scene.client(proxy), scene.client(), scene.client());
        Seen<String> told = new Seen<>();
        List<LeaderLatch> latches = new ArrayList<>();
        for (String name : List.of("a", "b", "c", "d"))
            latches.add(latch(scene, clients.get(latches.size()), name, told));
        LeaderLatch a = latches.get(0), b = latches.get(1), c = latches.get(2), d = latches.get(3);
        told.next("a leads", "a leader");
        equal(latches.stream().filter(LeaderLatch::hasLeadership).count(), 1L, "leaders");
        equal(participants(d), List.of("a leads", "b", "c", "d"), "participants");
        yes(!d.await(SHORT, TimeUnit.MILLISECONDS), "two lead");

        a.close(LeaderLatch.CloseMode.NOTIFY_LEADER); // the leader steps down
        // It deletes its node before it reports this.
        equal(Set.of(told.next("the end of its term"), told.next("the next leader")),
                Set.of("a does not lead", "b leads"), "the reports when the leader steps down");
        equal(d.getLeader().getId(), "b", "the leader");
        scene.expire(proxy, clients.get(1)); // the leader's session ends; it joins again, as the last
        told.next("b does not lead", "the end of its term");
        told.next("c leads", "the next leader");
        until("b has joined again", () -> participants(d).equals(List.of("c leads", "d", "b")));
        clients.get(2).close(); // the leader closes its client
        told.skipTo("d leads");
        yes(d.await(SOON, TimeUnit.SECONDS), "the leader does not lead");
        equal(participants(d), List.of("d leads", "b"), "participants");
        b.close();
        d.close();
        until("their nodes are deleted", () -> scene.children("latch").isEmpty()); // deleted in the background
    }

    static void latchKeepsItsLeaderOverADroppedConnection(Scene scene) throws Exception {
        Proxy proxy = scene.proxy();
        CuratorFramework client = scene.client(proxy);
        Seen<String> told = new Seen<>();
        LeaderLatch one = scene.own(latch(scene, client, "one", told)),
                    two = scene.own(latch(scene, scene.client(), "two", told));
        told.next("one leads", "a leader");
        Scene.cutAndAwait(proxy, client);
        // Without a connection it does not rely on its leadership, but its node is still the first.
        told.next("one does not lead", "the end of its leadership");
        told.next("one leads", "its new leadership");
        equal(List.of(one.hasLeadership(), two.hasLeadership(), told.all()), List.of(true, false, List.of()),
                "the leaders and the reports");
    }

    static void selectorLetsEachLeadAlone(Scene scene) throws Exception {
        Gauge leaders = new Gauge();
        Seen<Integer> led = new Seen<>();
        for (int i = 0; i < 3; i++) {
            int number = i;
            LeaderSelector selector = scene.own(new LeaderSelector(
                    scene.client(), scene.at("selector"), new LeaderSelectorListenerAdapter() {
                        @Override
                        public void takeLeadership(CuratorFramework client) throws InterruptedException {
                            leaders.pass();
                            led.add(number);
                        }
                    }));
            selector.autoRequeue();
            selector.start();
        }
        Set<Integer> all = new HashSet<>();
        for (int terms = 0; terms < 12 || all.size() < 3; terms++) all.add(led.next("a leader"));
        equal(leaders.most(), 1, "leaders at a time");
    }
}
