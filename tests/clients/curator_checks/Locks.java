package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.*;

/** Curator's locks, unchanged. */
final class Locks {
    private static InterProcessMutex mutex(CuratorFramework client, Scene scene) {
        return new InterProcessMutex(client, scene.at("lock"));
    }

    static boolean inVain(InterProcessLock lock) throws Exception {
        return !lock.acquire(SHORT, TimeUnit.MILLISECONDS);
    }

    static void get(InterProcessLock lock) throws Exception {
        yes(lock.acquire(SOON, TimeUnit.SECONDS), "a lock was not granted");
    }

    /** Each lock passes through the section so often, in a thread of its own. */
    private static void contend(List<? extends InterProcessLock> locks, int rounds, Section section)
            throws Exception {
        List<Body> bodies = new ArrayList<>();
        for (InterProcessLock lock : locks)
            bodies.add(() -> {
                for (int i = 0; i < rounds; i++) {
                    get(lock);
                    try {
                        section.pass();
                    } finally {
                        lock.release();
                    }
                }
            });
        together(bodies);
    }

    /** A thread that waits for the lock, reports when it gets it, and releases it. */
    static Future<Void> queueUp(Scene scene, InterProcessLock lock, Seen<Integer> order, int i)
            throws Exception {
        int before = scene.children("lock").size();
        Future<Void> task = start(() -> {
            get(lock);
            order.add(i);
            lock.release();
        });
        until(i + " waits", () -> scene.children("lock").size() == before + 1);
        return task;
    }

    static void mutexCountsExactlyUnderContention(Scene scene) throws Exception {
        Section section = new Section();
        List<InterProcessMutex> locks = new ArrayList<>();
        for (CuratorFramework client : scene.clients(3))
            for (int i = 0; i < 3; i++) locks.add(mutex(client, scene));
        contend(locks, 10, section);
        equal(section.count(), 90, "the counter");
        equal(scene.children("lock"), List.of(), "nodes left");
    }

    static void mutexCountsExactlyWhileConnectionsDrop(Scene scene) throws Exception {
        Section section = new Section();
        List<Proxy> proxies = List.of(scene.proxy(), scene.proxy(), scene.proxy());
        List<Body> bodies = new ArrayList<>();
        for (Proxy proxy : proxies) {
            CuratorFramework client = scene.client(proxy);
            for (int i = 0; i < 2; i++) bodies.add(() -> contend(List.of(mutex(client, scene)), 6, section));
        }
        CountDownLatch done = new CountDownLatch(1);
        AtomicInteger cuts = new AtomicInteger();
        Future<Void> dropping = start(() -> {
            while (cuts.get() < 12 && !done.await(30, TimeUnit.MILLISECONDS))
                proxies.get(cuts.getAndIncrement() % 3).cut();
        });
        try {
            together(bodies);
        } finally {
            done.countDown();
        }
        result(dropping);
        equal(section.count(), 36, "the counter");
        yes(cuts.get() >= 3, "only " + cuts + " connections dropped");
        until("its nodes are deleted", () -> scene.children("lock").isEmpty());
    }

    static void mutexIsReentrantAndOfItsThread(Scene scene) throws Exception {
        InterProcessMutex lock = mutex(scene.zk, scene), other = mutex(scene.client(), scene);
        get(lock);
        get(lock);
        List<String> nodes = scene.children("lock");
        equal(nodes.size(), 1, "nodes of a lock held twice");
        yes(nodes.get(0).matches("_c_[-0-9a-f]{36}-lock-0000000000"), "its name: " + nodes);
        raises(IllegalMonitorStateException.class, other::release);
        raises(IllegalMonitorStateException.class, () -> result(start(lock::release)));
        lock.release();
        yes(lock.isOwnedByCurrentThread() && inVain(other), "after one release it is free");
        lock.release();
        get(other);
        other.release();
    }

    static void mutexServesWhoCameFirst(Scene scene) throws Exception {
        InterProcessMutex holder = mutex(scene.zk, scene);
        get(holder);
        Seen<Integer> order = new Seen<>();
        List<Future<Void>> line = new ArrayList<>();
        int next = 0;
        for (CuratorFramework client : scene.clients(4))
            line.add(queueUp(scene, mutex(client, scene), order, next++));
        equal(holder.getParticipantNodes().size(), 5, "participants");
        equal(order.all(), List.of(), "a waiter got it while it was held");
        holder.release();
        for (Future<Void> task : line) result(task);
        equal(order.all(), List.of(0, 1, 2, 3), "the order in which they got it");
    }

    static void mutexWaitersTimeOutAndDoNotBlockOthers(Scene scene) throws Exception {
        InterProcessMutex holder = mutex(scene.zk, scene);
        Seen<Integer> order = new Seen<>();
        get(holder);
        yes(inVain(mutex(scene.client(), scene)), "a held lock was granted");
        equal(scene.children("lock").size(), 1, "a waiter that gave up has no node");
        Future<Boolean> timed = task(() -> inVain(mutex(scene.client(), scene)));
        until("it waits", () -> scene.children("lock").size() >= 2 || timed.isDone());
        Future<Void> last = start(() -> {
            InterProcessMutex lock = mutex(scene.client(), scene);
            get(lock);
            order.add(1);
            lock.release();
        });
        yes(result(timed), "a held lock was granted");
        until("only one waiter is left", () -> scene.children("lock").size() == 2);
        equal(order.all(), List.of(), "a waiter got it while it was held");
        holder.release();
        result(last);
    }

    static void mutexPassesOnWhenItsHolderIsGone(Scene scene) throws Exception {
        Proxy proxy = scene.proxy();
        CuratorFramework closes = scene.client(), expires = scene.client(proxy);
        get(mutex(closes, scene));
        InterProcessMutex second = mutex(expires, scene);
        Seen<Integer> order = new Seen<>();
        Future<Void> waits = start(() -> get(second));
        until("it waits", () -> scene.children("lock").size() == 2);
        Future<Void> last = queueUp(scene, mutex(scene.client(), scene), order, 3);
        closes.close();
        result(waits);
        equal(order.all(), List.of(), "a waiter got it while it was held");
        scene.expire(proxy, expires);
        result(last);
    }

    static void mutexIsKeptAndAwaitedOverADroppedConnection(Scene scene) throws Exception {
        Proxy one = scene.proxy(), two = scene.proxy();
        CuratorFramework first = scene.client(one), second = scene.client(two);
        InterProcessMutex holder = mutex(first, scene);
        Seen<Integer> order = new Seen<>();
        get(holder);
        Future<Void> waits = queueUp(scene, mutex(second, scene), order, 1);
        List<String> nodes = scene.children("lock");
        Scene.cutAndAwait(one, first);
        Scene.cutAndAwait(two, second);
        Scene.cutAndAwait(one, first);
        equal(new TreeSet<>(scene.children("lock")), new TreeSet<>(nodes), "its nodes");
        equal(order.all(), List.of(), "a waiter got it while it was held");
        holder.release();
        result(waits);
    }

    static void mutexCanBeAskedBack(Scene scene) throws Exception {
        InterProcessMutex lock = mutex(scene.client(), scene);
        CountDownLatch asked = new CountDownLatch(1);
        lock.makeRevocable(l -> asked.countDown());
        get(lock);
        Revoker.attemptRevoke(scene.zk, scene.at("lock/" + scene.children("lock").get(0)));
        yes(asked.await(SOON, TimeUnit.SECONDS), "its holder is not notified of the revocation");
        lock.release();
    }

    static void semaphoreNeverGivesMoreLeasesThanItHas(Scene scene) throws Exception {
        List<CuratorFramework> clients = scene.clients(3);
        List<InterProcessSemaphoreV2> all =
                clients.stream().map(c -> new InterProcessSemaphoreV2(c, scene.at("semaphore"), 3)).toList();
        List<Lease> leases = new ArrayList<>(all.get(0).acquire(2, SOON, TimeUnit.SECONDS));
        leases.add(all.get(1).acquire(SOON, TimeUnit.SECONDS));
        equal(all.get(2).acquire(SHORT, TimeUnit.MILLISECONDS), null, "a fourth lease of three");
        equal(all.get(2).getParticipantNodes().size(), 3, "lease nodes");
        Future<Lease> fourth = task(() -> all.get(2).acquire(SOON, TimeUnit.SECONDS));
        until("it waits", () -> scene.children("semaphore/leases").size() == 4);
        yes(!fourth.isDone(), "a fourth lease of three was given");
        clients.get(1).close(); // a lease ends with its session
        Lease last = result(fourth);
        yes(last != null, "a released lease was not granted");
        all.get(0).returnAll(leases.subList(0, 2));
        all.get(2).returnLease(last);

        Gauge gauge = new Gauge();
        List<Body> bodies = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            InterProcessSemaphoreV2 semaphore = all.get(i % 2 * 2);
            bodies.add(() -> {
                for (int round = 0; round < 5; round++) {
                    Lease lease = semaphore.acquire(SOON, TimeUnit.SECONDS);
                    yes(lease != null, "a lease was not granted");
                    gauge.pass();
                    semaphore.returnLease(lease);
                }
            });
        }
        together(bodies);
        yes(gauge.most() <= 3, gauge.most() + " threads held a lease at once");
        equal(gauge.total(), 40, "leases given");
        equal(scene.children("semaphore/leases"), List.of(), "nodes left");
    }

    static void otherLocksExcludeToo(Scene scene) throws Exception {
        CuratorFramework client = scene.client();
        InterProcessLock one = new InterProcessSemaphoreMutex(scene.zk, scene.at("lock")),
                         two = new InterProcessSemaphoreMutex(client, scene.at("lock"));
        get(one);
        yes(inVain(two), "two hold a semaphore's mutex");
        one.release();
        get(two);
        two.release();
        InterProcessLock both = new InterProcessMultiLock(scene.zk, List.of(scene.at("a"), scene.at("b")));
        InterProcessLock b = new InterProcessMutex(client, scene.at("b"));
        get(b);
        yes(inVain(both), "a multi-lock was granted while a member was held");
        b.release();
        get(both);
        yes(inVain(b), "a member of a held multi-lock was granted");
        both.release();
    }
}
