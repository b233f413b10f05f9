package fleet;

import curator.Connection;
import java.net.InetAddress;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * Waits for Curator's mutex until SIGTERM ends it: Waiter HOST:PORT PATH. It prints its session and
 * the data of its node, one "NAME VALUE" a line. It prints "held" if it gets the lock, which would be
 * wrong.
 */
final class Waiter {
    public static void main(String[] words) throws Exception {
        CuratorFramework client = Connection.to(words[0]);
        // SIGTERM runs this. The session is closed, and with it the node goes.
        Runtime.getRuntime().addShutdownHook(new Thread(client::close));
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        System.out.println("session 0x" + Long.toHexString(session));
        // Curator writes this into its node unless it is told otherwise.
        System.out.println("data " + InetAddress.getLocalHost().getHostAddress());
        new InterProcessMutex(client, words[1]).acquire();
        System.out.println("held");
        Thread.sleep(Long.MAX_VALUE);
    }
}
