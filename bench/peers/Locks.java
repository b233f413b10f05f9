package peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's locks as a peer of bench/compare; bench/src/protocol.rs says what the two agree on.
 * Each thread has a lock object of its own, or with shared=1 all have one.
 */
final class Locks {
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));
    private static final int SESSION = 30_000, CONNECT = 15_000; // milliseconds
    /** More cycles than other peers have, for so long: Java compiles what has run often. */
    private static final long WARM = 3000, WARMING = 3_000_000_000L; // ns
    private static final long SETTLE = 300; // milliseconds

    private final Map<String, String> settings = new HashMap<>();
    private final List<CuratorFramework> clients = new ArrayList<>();
    private final ExecutorService pool = Executors.newCachedThreadPool();
    private final String hosts, workload, path;
    private final int threads;
    /** Only the lock protects it. */
    private int counter;

    /** One acquire and release: when each was called, and had returned. */
    private record Cycle(long acquire, long acquired, long release, long released) {}

    private Locks(String[] words) {
        hosts = words[0];
        workload = words[1];
        for (String word : Arrays.copyOfRange(words, 2, words.length)) {
            String[] setting = word.split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        path = settings.getOrDefault("path", "/bench/lock");
        threads = (int) number("threads", 1);
    }

    public static void main(String[] words) throws Exception {
        Locks locks = new Locks(words);
        switch (locks.workload) {
            case "uncontended", "contended", "readers" -> locks.loop();
            case "waiters" -> locks.drain();
            case "reentrant" -> locks.reenter();
            default -> System.exit(3);
        }
        System.out.println("DONE");
        while (IN.readLine() != null) {}
        // Otherwise the servers would end them during the next measurement.
        locks.clients.parallelStream().forEach(CuratorFramework::close);
        System.exit(0);
    }

    private long number(String key, long otherwise) {
        return settings.containsKey(key) ? Long.parseLong(settings.get(key)) : otherwise;
    }

    private static void mark(String name) throws IOException {
        System.out.println("MARK " + name);
        IN.readLine();
    }

    private CuratorFramework connect() throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                hosts, SESSION, CONNECT, new ExponentialBackoffRetry(100, 5));
        client.start();
        if (!client.blockUntilConnected(CONNECT, TimeUnit.MILLISECONDS))
            throw new IllegalStateException("no connection to " + hosts);
        clients.add(client);
        return client;
    }

    private InterProcessMutex lock(CuratorFramework client, String path) {
        return workload.equals("readers")
                ? new InterProcessReadWriteLock(client, path).readLock()
                : new InterProcessMutex(client, path);
    }

    private Cycle cycle(InterProcessMutex lock, boolean counts) throws Exception {
        long acquire = System.nanoTime();
        lock.acquire();
        long acquired = System.nanoTime();
        if (counts) counter++;
        long release = System.nanoTime();
        lock.release();
        return new Cycle(acquire, acquired, release, System.nanoTime());
    }

    private void warm(CuratorFramework client) throws Exception {
        InterProcessMutex lock = lock(client, path + "-warm-" + ProcessHandle.current().pid());
        long end = System.nanoTime() + WARMING;
        for (long left = number("warm", WARM); left > 0 && System.nanoTime() < end; left--)
            cycle(lock, false);
    }

    private void loop() throws Exception {
        boolean reads = workload.equals("readers"), shares = number("shared", 0) == 1;
        CuratorFramework client = connect();
        InterProcessMutex shared = lock(client, path);
        warm(client);
        mark("ready");
        long start = System.nanoTime(), max = number("max", Long.MAX_VALUE);
        long end = start + TimeUnit.MILLISECONDS.toNanos(number("ms", 3_600_000));
        List<Future<List<Cycle>>> loops = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++)
            loops.add(pool.submit(() -> {
                InterProcessMutex lock = shares ? shared : lock(client, path);
                List<Cycle> cycles = new ArrayList<>();
                while (cycles.size() < max && System.nanoTime() < end)
                    cycles.add(cycle(lock, !reads));
                return cycles;
            }));
        List<Cycle> cycles = gather(loops);
        report(cycles, start, reads ? "" : ",\"exact\":" + (counter == cycles.size()));
    }

    /** A holder and many waiters with one cycle each. The holder has a session of its own. */
    private void drain() throws Exception {
        int sessions = (int) Math.min(number("sessions", 8), threads);
        for (int number = 0; number < sessions; number++) connect();
        CuratorFramework holding = connect();
        warm(holding);
        InterProcessMutex held = lock(holding, path);
        held.acquire();
        mark("ready");
        List<Future<List<Cycle>>> waiters = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            InterProcessMutex lock = lock(clients.get(number % sessions), path);
            Callable<List<Cycle>> waiter = () -> List.of(cycle(lock, true));
            waiters.add(pool.submit(waiter));
        }
        while (holding.getChildren().forPath(path).size() <= threads) Thread.sleep(20);
        Thread.sleep(SETTLE);
        mark("queued");
        long start = System.nanoTime();
        held.release();
        List<Cycle> cycles = gather(waiters);
        boolean exact = counter == cycles.size();
        report(cycles, start, ",\"sessions\":" + sessions + ",\"exact\":" + exact);
    }

    private void reenter() throws Exception {
        InterProcessMutex lock = lock(connect(), path);
        lock.acquire();
        for (long left = number("warm", 200_000); left > 0; left--) cycle(lock, false);
        mark("ready");
        long[] took = new long[(int) number("max", 1_000_000)];
        long start = System.nanoTime();
        for (int at = 0; at < took.length; at++) {
            Cycle cycle = cycle(lock, false);
            took[at] = cycle.released - cycle.acquire;
        }
        line(took, System.nanoTime() - start, "");
        lock.release();
    }

    private static List<Cycle> gather(List<Future<List<Cycle>>> threads) throws Exception {
        List<Cycle> all = new ArrayList<>();
        for (Future<List<Cycle>> thread : threads) all.addAll(thread.get());
        return all;
    }

    private void report(List<Cycle> cycles, long start, String more) throws IOException {
        if (settings.containsKey("events"))
            try (PrintWriter file = new PrintWriter(settings.get("events"))) {
                for (Cycle c : cycles)
                    file.println(c.acquire + " " + c.acquired + " " + c.release + " " + c.released);
            }
        long end = cycles.stream().mapToLong(Cycle::released).max().orElse(start + 1);
        long[] acquiring = cycles.stream().mapToLong(c -> c.acquired - c.acquire).toArray();
        long[] releasing = cycles.stream().mapToLong(c -> c.released - c.release).toArray();
        double release = percentile(releasing, .5);
        String first = String.format(Locale.ROOT, ",\"rel_p50_us\":%.1f", release);
        line(acquiring, end - start, first + more);
    }

    private void line(long[] took, long ns, String more) {
        System.out.printf(Locale.ROOT,
                "{\"threads\":%d,\"ops\":%d,\"seconds\":%.3f,\"ops_per_s\":%.1f,\"p50_us\":%.1f,"
                        + "\"p99_us\":%.1f%s}%n",
                threads, took.length, ns / 1e9, took.length * 1e9 / ns, percentile(took, .5),
                percentile(took, .99), more);
    }

    private static double percentile(long[] ns, double q) {
        Arrays.sort(ns);
        return ns.length == 0 ? 0 : ns[Math.min(ns.length - 1, (int) (ns.length * q))] / 1e3;
    }
}
