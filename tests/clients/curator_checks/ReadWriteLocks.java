package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.*;

/** Curator's InterProcessReadWriteLock, unchanged. */
final class ReadWriteLocks {
    static void readersShareAndAWriterIsAlone(Scene scene) throws Exception {
        List<CuratorFramework> clients = scene.clients(3);
        List<InterProcessReadWriteLock> locks =
                clients.stream().map(c -> new InterProcessReadWriteLock(c, scene.at("lock"))).toList();
        CyclicBarrier meet = new CyclicBarrier(3);
        List<Body> readers = new ArrayList<>();
        for (InterProcessReadWriteLock lock : locks)
            readers.add(() -> {
                Locks.get(lock.readLock());
                meet.await(10, TimeUnit.SECONDS); // passes only if all three are inside
                lock.readLock().release();
            });
        together(readers);

        Seen<Integer> order = new Seen<>();
        Locks.get(locks.get(0).readLock());
        yes(Locks.inVain(locks.get(1).writeLock()), "a writer entered beside a reader");
        Future<Void> writer = Locks.queueUp(scene, locks.get(1).writeLock(), order, 1);
        yes(Locks.inVain(locks.get(2).readLock()), "a reader overtook a waiting writer");
        Future<Void> late = Locks.queueUp(scene, locks.get(2).readLock(), order, 2);
        equal(order.all(), List.of(), "a waiter got it while it was held");
        locks.get(0).readLock().release();
        result(writer);
        result(late);
        equal(order.all(), List.of(1, 2), "the order in which they got it");
    }

    static void aWriterMayReadAndKeepReading(Scene scene) throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(scene.zk, scene.at("lock"));
        InterProcessReadWriteLock other = new InterProcessReadWriteLock(scene.client(), scene.at("lock"));
        Locks.get(lock.writeLock());
        Locks.get(lock.readLock());
        yes(Locks.inVain(other.readLock()), "a reader entered beside a writer");
        lock.writeLock().release();
        Locks.get(other.readLock());
        yes(Locks.inVain(other.writeLock()), "a reader became a writer beside a reader");
        other.readLock().release();
        lock.readLock().release();
        Locks.get(other.writeLock());
        other.writeLock().release();
        equal(scene.children("lock"), List.of(), "nodes left");
    }

    static void readersNeverSeeWhatAWriterDoes(Scene scene) throws Exception {
        int[] pair = {0, 0};
        Section section = new Section();
        List<Body> bodies = new ArrayList<>();
        for (CuratorFramework client : scene.clients(3)) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, scene.at("lock"));
            bodies.add(() -> {
                for (int i = 0; i < 6; i++) {
                    Locks.get(lock.writeLock());
                    section.pass();
                    pair[0]++;
                    Thread.sleep(2);
                    pair[1]++;
                    lock.writeLock().release();
                }
            });
            bodies.add(() -> {
                for (int i = 0; i < 12; i++) {
                    Locks.get(lock.readLock());
                    int first = pair[0];
                    Thread.sleep(1);
                    equal(List.of(pair[0], pair[1]), List.of(first, first), "seen by a reader");
                    lock.readLock().release();
                }
            });
        }
        together(bodies);
        equal(List.of(pair[0], pair[1], section.count()), List.of(18, 18, 18), "the counters");
    }
}
