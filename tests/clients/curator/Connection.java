package curator;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** How the programs of mixed_members, matrix_takers and fleet_processes connect. */
public final class Connection {
    /** Milliseconds: timeouts that play no part. */
    private static final int SESSION = 30_000, CONNECT = 60_000;

    private Connection() {}

    public static CuratorFramework to(String hosts) throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                hosts, SESSION, CONNECT, new ExponentialBackoffRetry(20, 20, 500));
        client.start();
        if (!client.blockUntilConnected(CONNECT, TimeUnit.MILLISECONDS))
            throw new IllegalStateException("no connection to " + hosts);
        return client;
    }
}
