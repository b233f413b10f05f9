package mixed;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.*;

/** All sections of a thread, by recipe. The recipes are Curator's, unchanged. */
final class Recipes {
    interface Recipe {
        void sections(CuratorFramework client, Member.Task task, int thread, Ledger ledger) throws Exception;
    }

    /** Whether this is Curator 5.5 or later. */
    private static final boolean DOWNGRADES = Boolean.getBoolean("curator.downgrades");

    static Recipe of(Member.Task task) {
        return switch (task.text("recipe")) {
            case "mutex" -> Recipes::mutex;
            case "rwlock" -> Recipes::rwlock;
            case "semaphore" -> Recipes::semaphore;
            case "semaphore-mutex" -> Recipes::semaphoreMutex;
            case "election" -> Recipes::election;
            default ->
                throw new IllegalArgumentException("Curator has no recipe " + task.text("recipe"));
        };
    }

    /** The node of a mutex, which only its subclasses can read. */
    private static String node(InterProcessMutex lock) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(lock);
    }

    private static void mutex(CuratorFramework client, Member.Task task, int thread, Ledger ledger)
            throws Exception {
        InterProcessMutex lock = new InterProcessMutex(client, task.text("path"));
        for (int i = 0; i < task.number("sections"); i++) {
            lock.acquire();
            ledger.write(node(lock));
            lock.release();
        }
    }

    private static void rwlock(CuratorFramework client, Member.Task task, int thread, Ledger ledger)
            throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, task.text("path"));
        for (int i = 0; i < task.number("sections"); i++) {
            if (Member.Task.writes(i, thread)) {
                lock.writeLock().acquire();
                ledger.write(node(lock.writeLock()));
                // Becomes a reader on its way out, where no writer can come in between.
                if (DOWNGRADES) lock.readLock().acquire();
                lock.writeLock().release();
                if (DOWNGRADES) lock.readLock().release();
            } else {
                lock.readLock().acquire();
                ledger.read(node(lock.readLock()));
                lock.readLock().release();
            }
        }
    }

    private static void semaphore(CuratorFramework client, Member.Task task, int thread, Ledger ledger)
            throws Exception {
        InterProcessSemaphoreV2 semaphore =
                new InterProcessSemaphoreV2(client, task.text("path"), task.number("leases"));
        for (int i = 0; i < task.number("sections"); i++) {
            try (Lease lease = semaphore.acquire()) {
                ledger.read(lease.getNodeName());
            }
        }
    }

    /** The lease of the mutex, which is private. */
    private static Lease lease(InterProcessSemaphoreMutex lock) throws Exception {
        Field lease = InterProcessSemaphoreMutex.class.getDeclaredField("lease");
        lease.setAccessible(true);
        return (Lease) lease.get(lock);
    }

    private static void semaphoreMutex(
            CuratorFramework client, Member.Task task, int thread, Ledger ledger) throws Exception {
        InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(client, task.text("path"));
        for (int i = 0; i < task.number("sections"); i++) {
            lock.acquire();
            ledger.write(lease(lock).getNodeName());
            lock.release();
        }
    }

    /** Joins the election anew for each section, and leaves after it. */
    private static void election(CuratorFramework client, Member.Task task, int thread, Ledger ledger)
            throws Exception {
        for (int i = 0; i < task.number("sections"); i++) {
            try (LeaderLatch latch = new LeaderLatch(client, task.text("path"), ledger.who)) {
                latch.start();
                latch.await();
                ledger.write(latch.getOurPath());
            }
        }
    }
}
