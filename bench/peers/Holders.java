package peers;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Sessions of Curator, each of which holds a lock: Holders HOSTS SESSIONS TIMEOUT_MS. It does what
 * bench/src/bin/fleet.rs does: it prints "begin" and waits for a line. Then it makes its sessions,
 * prints "ready", and keeps them until its input is closed.
 */
final class Holders {
    /** Milliseconds: a timeout that plays no part. */
    private static final int CONNECT = 60_000;

    public static void main(String[] words) throws Exception {
        int sessions = Integer.parseInt(words[1]), timeout = Integer.parseInt(words[2]);
        System.out.println("begin");
        if (System.in.read() < 0) return;
        List<CuratorFramework> clients = new ArrayList<>();
        for (int number = 0; number < sessions; number++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(
                    words[0], timeout, CONNECT, new ExponentialBackoffRetry(20, 20, 500));
            clients.add(client);
            client.start();
            if (!client.blockUntilConnected(CONNECT, TimeUnit.MILLISECONDS))
                throw new IllegalStateException("no connection to " + words[0]);
            new InterProcessMutex(client, "/zk-mutex/fleet/" + number).acquire();
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        clients.forEach(CuratorFramework::close);
    }
}
