package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.concurrent.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.*;

/** A check's own node and its clients. All of them end with the check. */
final class Scene implements AutoCloseable {
    /** Milliseconds: a session timeout that does not matter. */
    static final int SESSION = 15_000;

    final String server, path;
    /** A client without faults. */
    final CuratorFramework zk;
    private final Deque<AutoCloseable> owned = new ArrayDeque<>();

    Scene(String server, String path) throws Exception {
        this.server = server;
        this.path = path;
        zk = client();
        zk.create().orSetData().creatingParentsIfNeeded().forPath(path, new byte[0]);
    }

    String at(String name) { return path + "/" + name; }

    /** Closes it at the end of the check. */
    <T extends AutoCloseable> T own(T one) {
        owned.push(one);
        return one;
    }

    CuratorFramework client() throws InterruptedException { return client(server, SESSION); }

    CuratorFramework client(String connect, int timeout) throws InterruptedException {
        CuratorFramework client = own(CuratorFrameworkFactory.newClient(
                connect, timeout, SOON * 1000, new ExponentialBackoffRetry(20, 20, 500)));
        client.start();
        yes(client.blockUntilConnected(SOON, TimeUnit.SECONDS), "no connection to " + connect);
        return client;
    }

    List<CuratorFramework> clients(int count) throws InterruptedException {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < count; i++) clients.add(client());
        return clients;
    }

    Proxy proxy() throws Exception { return own(new Proxy(server)); }

    CuratorFramework client(Proxy proxy) throws InterruptedException {
        return client(proxy.address(), SESSION);
    }

    List<String> children(String name) throws Exception {
        try {
            return zk.getChildren().forPath(at(name));
        } catch (KeeperException.NoNodeException e) {
            return List.of();
        }
    }

    boolean exists(String name) throws Exception { return zk.checkExists().forPath(at(name)) != null; }

    static long session(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    /** The states that the client goes through from now on. */
    static Seen<ConnectionState> states(CuratorFramework client) {
        Seen<ConnectionState> seen = new Seen<>();
        client.getConnectionStateListenable().addListener((c, state) -> seen.add(state));
        return seen;
    }

    /** Ends the client's connection, not its session; returns when it is connected again. */
    static void cutAndAwait(Proxy proxy, CuratorFramework client) throws Exception {
        long session = session(client);
        Seen<ConnectionState> states = states(client);
        proxy.cut();
        states.skipTo(ConnectionState.SUSPENDED);
        states.skipTo(ConnectionState.RECONNECTED);
        equal(session(client), session, "the session after the reconnect");
    }

    /** Ends the client's session while it is disconnected: another client takes it over and closes it. */
    void expire(Proxy proxy, CuratorFramework client) throws Exception {
        ZooKeeper own = client.getZookeeperClient().getZooKeeper();
        long session = own.getSessionId();
        Seen<ConnectionState> states = states(client);
        proxy.refuse();
        states.skipTo(ConnectionState.SUSPENDED);
        CountDownLatch connected = new CountDownLatch(1);
        Watcher watcher = event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) connected.countDown();
        };
        try (ZooKeeper thief = new ZooKeeper(server, SESSION, watcher, session, own.getSessionPasswd())) {
            yes(connected.await(SOON, TimeUnit.SECONDS), "a session could not be taken over");
            equal(thief.getSessionId(), session, "the session that was taken over");
        }
        proxy.admit();
        states.skipTo(ConnectionState.LOST);
        states.skipTo(ConnectionState.RECONNECTED);
        yes(session(client) != session, "an expired session was resumed");
    }

    /** Closes what the check has opened, and removes its node. */
    void clear() throws Exception {
        while (owned.size() > 1) owned.pop().close();
        zk.delete().deletingChildrenIfNeeded().forPath(path);
    }

    @Override
    public void close() throws Exception {
        while (!owned.isEmpty()) owned.pop().close();
    }
}
