package checks;

import static checks.Harness.*;

import java.util.*;
import java.util.concurrent.TimeUnit;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import javax.security.auth.login.Configuration;
import org.apache.curator.framework.*;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.*;

/** Curator authenticates by SASL DIGEST-MD5: Sasl HOST:PORT USER PASSWORD. */
final class Sasl {
    /** The JAAS sections of this process, by their names; a client uses the section `Client`. */
    private static final class Logins extends Configuration {
        private volatile Map<String, String> client;

        void set(String user, String password) {
            client = user == null ? null : Map.of("username", user, "password", password);
        }

        @Override
        public AppConfigurationEntry[] getAppConfigurationEntry(String section) {
            Map<String, String> options = client;
            if (options == null || !section.equals("Client")) return null;
            return new AppConfigurationEntry[] {
                    new AppConfigurationEntry("org.apache.zookeeper.server.auth.DigestLoginModule",
                            LoginModuleControlFlag.REQUIRED, options)};
        }
    }

    private static final Logins LOGINS = new Logins();

    /** A client that authenticates as this user; without SASL if it is null. */
    private static CuratorFramework client(String server, String user, String password) {
        LOGINS.set(user, password);
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                server, 10_000, SOON * 1000, new ExponentialBackoffRetry(20, 5, 500));
        client.start();
        return client;
    }

    private static CuratorFramework connected(String server, String user, String password)
            throws Exception {
        CuratorFramework client = client(server, user, password);
        yes(client.blockUntilConnected(SOON, TimeUnit.SECONDS), "no connection to " + server);
        // The client logs in when it connects.
        client.checkExists().forPath("/");
        return client;
    }

    private static void run(String server, String user, String password) throws Exception {
        String path = "/curator-sasl-" + UUID.randomUUID();
        List<ACL> acl = List.of(new ACL(ZooDefs.Perms.ALL, new Id("sasl", user)));
        try (CuratorFramework own = connected(server, user, password)) {
            own.create().withACL(acl).forPath(path, new byte[] {1});
            equal(own.getACL().forPath(path), acl, "the ACL of " + path);
            System.out.println("ok   curator authenticates as " + user);
            try (CuratorFramework other = connected(server, null, null)) {
                raises(KeeperException.NoAuthException.class, () -> other.getData().forPath(path));
            }
            System.out.println("ok   curator without SASL is refused at the node of " + user);
            // Of an unknown user, 3.8.0 accepts the password of the last user that it has
            // authenticated.
            for (String name : List.of(user, "nobody-" + user)) {
                try (CuratorFramework stranger = client(server, name, password + "x")) {
                    raises(KeeperException.AuthFailedException.class,
                            () -> stranger.getData().forPath(path));
                }
            }
            System.out.println(
                    "ok   curator is refused with a wrong password, and with an unknown user");
            LOGINS.set(user, password);
            own.delete().forPath(path);
        }
    }

    public static void main(String[] arguments) {
        if (arguments.length != 3) {
            System.err.println("usage: Sasl HOST:PORT USER PASSWORD");
            System.exit(2);
        }
        Configuration.setConfiguration(LOGINS);
        // In this mode, the default since 3.9, a client refuses DIGEST-MD5.
        System.setProperty("zookeeper.fips-mode", "false");
        try {
            run(arguments[0], arguments[1], arguments[2]);
        } catch (Throwable e) {
            System.out.println("FAIL curator: " + e);
            System.out.flush();
            e.printStackTrace();
            Runtime.getRuntime().halt(1); // a hanging thread must not keep the process
        }
        System.exit(0);
    }
}
