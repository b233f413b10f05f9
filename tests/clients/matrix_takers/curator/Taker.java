package matrix;

import curator.Connection;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.*;
import org.apache.curator.framework.recipes.locks.*;

/**
 * Curator as a client of the matrix (tests/clients/matrix): Taker HOST:PORT.
 * interop/src/taker/main.rs has the orders and the answers.
 */
final class Taker {
    private final CuratorFramework client;
    private final Map<String, CountDownLatch> releases = new HashMap<>();

    private Taker(CuratorFramework client) { this.client = client; }

    private static synchronized void say(String id, String what) {
        System.out.println(id + " " + what.replace('\n', ' '));
        System.out.flush();
    }

    /** The lock is held until it is to be released. */
    private static void keep(String id, CountDownLatch release) throws InterruptedException {
        say(id, "held");
        release.await();
    }

    private void take(String id, String recipe, String path, CountDownLatch release)
            throws Exception {
        switch (recipe) {
            case "InterProcessMutex" -> keep(id, new InterProcessMutex(client, path), release);
            case "InterProcessSemaphoreMutex" ->
                keep(id, new InterProcessSemaphoreMutex(client, path), release);
            case "readLock" ->
                keep(id, new InterProcessReadWriteLock(client, path).readLock(), release);
            case "writeLock" ->
                keep(id, new InterProcessReadWriteLock(client, path).writeLock(), release);
            case "InterProcessSemaphoreV2" -> {
                try (Lease lease = new InterProcessSemaphoreV2(client, path, 1).acquire()) {
                    keep(id, release);
                }
            }
            case "LeaderLatch" -> {
                try (LeaderLatch latch = new LeaderLatch(client, path, id)) {
                    latch.start();
                    latch.await();
                    keep(id, release);
                }
            }
            case "LeaderSelector" -> {
                CountDownLatch led = new CountDownLatch(1);
                LeaderSelectorListener listener = new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework client) throws Exception {
                        keep(id, release);
                        led.countDown();
                    }
                };
                try (LeaderSelector selector = new LeaderSelector(client, path, listener)) {
                    selector.start();
                    led.await();
                }
            }
            default -> throw new IllegalArgumentException("Curator has no recipe " + recipe);
        }
        say(id, "released");
    }

    private static void keep(String id, InterProcessLock lock, CountDownLatch release)
            throws Exception {
        lock.acquire();
        keep(id, release);
        lock.release();
    }

    private void obey(String line) {
        String[] words = line.split(" ");
        if (words[0].equals("release")) {
            releases.get(words[1]).countDown();
            return;
        }
        CountDownLatch release = new CountDownLatch(1);
        releases.put(words[1], release);
        Thread thread = new Thread(() -> {
            try {
                take(words[1], words[2], words[3], release);
            } catch (Throwable e) {
                say(words[1], "failed " + e);
            }
        });
        thread.setDaemon(true); // a lock that is never had must not keep the process
        thread.start();
    }

    public static void main(String[] words) throws Exception {
        Taker taker = new Taker(Connection.to(words[0]));
        new BufferedReader(new InputStreamReader(System.in)).lines().forEach(taker::obey);
        System.exit(0);
    }
}
