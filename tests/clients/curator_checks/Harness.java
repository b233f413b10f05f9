package checks;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** The tools of the checks of Curator: comparing, waiting, threads, and checked sections. */
final class Harness {
    /** Seconds: the longest wait for an answer or event, even on a busy machine. */
    static final int SOON = 30;
    /** Milliseconds: a wait that must end without a result. */
    static final int SHORT = 300;

    static final class Failed extends AssertionError {
        Failed(String why) { super(why); }
    }

    interface Body {
        void run() throws Exception;
    }

    interface Question {
        boolean ask() throws Exception;
    }

    static void equal(Object seen, Object due, String what) {
        if (!Objects.equals(seen, due)) throw new Failed(what + ": " + seen + " where " + due + " was due");
    }

    static void yes(boolean condition, String otherwise) {
        if (!condition) throw new Failed(otherwise);
    }

    /** Returns the exception, which must be of exactly this class, so that no codes are confused. */
    static <E extends Exception> E raises(Class<E> kind, Body body) {
        try {
            body.run();
        } catch (Exception e) {
            if (e.getClass() == kind) return kind.cast(e);
            throw new Failed(e + " where " + kind.getSimpleName() + " was due");
        }
        throw new Failed("nothing where " + kind.getSimpleName() + " was due");
    }

    static void until(String what, Question question) throws Exception { until(what, SOON, question); }

    static void until(String what, int seconds, Question question) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!question.ask()) {
            if (System.nanoTime() >= end) throw new Failed("not within " + seconds + " s: " + what);
            Thread.sleep(10);
        }
    }

    /** The values that came, in order. */
    static final class Seen<T> extends LinkedBlockingQueue<T> {
        T next(String what) throws InterruptedException {
            T one = poll(SOON, TimeUnit.SECONDS);
            if (one == null) throw new Failed("not within " + SOON + " s: " + what);
            return one;
        }

        void next(T due, String what) throws InterruptedException { equal(next(what), due, what); }

        /** Takes all values up to this one. */
        void skipTo(T due) throws InterruptedException {
            while (!next(due + " to come").equals(due)) {}
        }

        List<T> all() {
            List<T> all = new ArrayList<>();
            drainTo(all);
            return all;
        }
    }

    /** The threads of checks. A thread that fails makes its check fail. */
    static final ExecutorService THREADS = Executors.newCachedThreadPool(body -> {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        return thread;
    });

    static <T> Future<T> task(Callable<T> call) { return THREADS.submit(call); }

    static Future<Void> start(Body body) {
        return task(() -> {
            body.run();
            return null;
        });
    }

    static <T> T result(Future<T> task) throws Exception {
        try {
            return task.get(SOON, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new Failed("a thread does not end");
        } catch (ExecutionException e) {
            if (e.getCause() instanceof Error error) throw error;
            throw (Exception) e.getCause();
        }
    }

    /** Runs each body in a thread of its own, and waits for all. */
    static void together(List<Body> bodies) throws Exception {
        List<Future<Void>> tasks = bodies.stream().map(Harness::start).toList();
        for (Future<Void> task : tasks) result(task);
    }

    /** A section for one thread at a time, with a counter that is exact only under a lock. */
    static final class Section {
        private final AtomicBoolean taken = new AtomicBoolean();
        private volatile int count;

        void pass() {
            yes(taken.compareAndSet(false, true), "two threads are inside at once");
            int before = count;
            Thread.yield(); // lets another thread enter, if the lock does
            count = before + 1;
            taken.set(false);
        }

        int count() { return count; }
    }

    /** The number of threads inside, and its maximum. */
    static final class Gauge {
        private final AtomicInteger now = new AtomicInteger(), most = new AtomicInteger(),
                                    total = new AtomicInteger();

        void pass() throws InterruptedException {
            most.accumulateAndGet(now.incrementAndGet(), Math::max);
            total.incrementAndGet();
            Thread.sleep(2); // time for other threads to enter, if they may
            now.decrementAndGet();
        }

        int most() { return most.get(); }

        int total() { return total.get(); }
    }

    /** Every static method of these classes that takes a Scene is a check. */
    static final List<Class<?>> CHECKS = List.of(Sessions.class, Operations.class, Locks.class,
            ReadWriteLocks.class, Leaders.class, Recipes.class);

    private static List<Method> chosen(List<String> names) {
        List<Method> methods = new ArrayList<>();
        for (Class<?> owner : CHECKS) {
            Arrays.stream(owner.getDeclaredMethods())
                    .filter(m
                            -> Arrays.equals(m.getParameterTypes(), new Class<?>[] {Scene.class})
                                    && !m.isSynthetic())
                    .filter(m -> names.isEmpty() || names.stream().anyMatch(m.getName()::contains))
                    .sorted(Comparator.comparing(Method::getName))
                    .forEach(methods::add);
        }
        return methods;
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments.length == 0) {
            System.err.println("usage: Harness HOST:PORT [NAME..]   runs all checks, or those whose name "
                    + "contains a NAME");
            System.exit(2);
        }
        String top = "/curator-" + UUID.randomUUID();
        List<Method> methods = chosen(List.of(arguments).subList(1, arguments.length));
        if (methods.isEmpty()) {
            System.err.println("curator: no check has this name");
            System.exit(2);
        }
        for (Method method : methods) {
            String name = method.getName();
            long start = System.nanoTime();
            try (Scene scene = new Scene(arguments[0], top + "/" + name)) {
                method.invoke(null, scene);
                scene.clear();
            } catch (Throwable e) {
                Throwable why =
                        e instanceof InvocationTargetException && e.getCause() != null ? e.getCause() : e;
                System.out.println("FAIL curator " + name + ": " + why);
                System.out.flush();
                why.printStackTrace();
                Runtime.getRuntime().halt(1); // a hanging thread must not keep the process
            }
            System.out.printf(
                    Locale.ROOT, "ok   curator %s (%.2f s)%n", name, (System.nanoTime() - start) / 1e9);
        }
        try (Scene scene = new Scene(arguments[0], top)) {
            scene.zk.delete().forPath(top);
        } catch (Exception e) {
            System.out.println("FAIL curator: " + top + " cannot be removed: " + e);
            Runtime.getRuntime().halt(1);
        }
        System.exit(0);
    }
}
