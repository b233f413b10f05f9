package mixed;

import curator.Connection;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.CuratorFramework;

/**
 * A member of a mixed group (tests/clients/mixed) that uses Curator. interop/src/member/main.rs has
 * the options of a member.
 */
final class Member {
    /** The task of a member. */
    record Task(Map<String, String> options) {
        static Task of(String[] words) {
            Map<String, String> options = new HashMap<>();
            for (String word : words) {
                String[] parts = word.split("=", 2);
                if (parts.length < 2) throw new IllegalArgumentException(word + " is no NAME=VALUE");
                options.put(parts[0], parts[1]);
            }
            return new Task(options);
        }

        String text(String name) {
            return Objects.requireNonNull(options.get(name), "there is no " + name + "=");
        }

        int number(String name) { return Integer.parseInt(text(name)); }

        /**
         * Whether a section writes, if the recipe has readers: every third does, and no two threads
         * write in step.
         */
        static boolean writes(int section, int thread) { return (section + thread) % 3 == 0; }
    }

    private static void run(Task task) throws Exception {
        Recipes.Recipe recipe = Recipes.of(task);
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < task.number("sessions"); i++) clients.add(Connection.to(task.text("connect")));
        System.out.println("ready");
        if (new BufferedReader(new InputStreamReader(System.in)).readLine() == null)
            throw new IllegalStateException("the group is not to begin");
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Void>> running = new ArrayList<>();
        for (CuratorFramework client : clients)
            for (int i = 0; i < task.number("threads"); i++) {
                int number = running.size();
                running.add(threads.submit(() -> {
                    recipe.sections(client, task, number, new Ledger(task, number));
                    return null;
                }));
            }
        for (Future<Void> thread : running) thread.get();
        for (CuratorFramework client : clients) client.close();
    }

    public static void main(String[] words) {
        try {
            run(Task.of(words));
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // a hanging thread must not keep the process
        }
        System.exit(0);
    }
}
