package checks;

import static checks.Harness.*;

import java.io.*;
import java.net.*;
import java.util.*;

/**
 * A connection to the server that can be cut. The client under check connects to this proxy, unchanged.
 */
final class Proxy implements Closeable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
    private final InetSocketAddress server;
    private final Set<Socket> sockets = new HashSet<>();
    private boolean refuses;

    Proxy(String server) throws IOException {
        int colon = server.lastIndexOf(':');
        this.server = new InetSocketAddress(
                server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)));
        start(this::accept);
    }

    String address() { return "127.0.0.1:" + listener.getLocalPort(); }

    /** Ends all connections. */
    synchronized void cut() {
        for (Socket socket : sockets) end(socket);
        sockets.clear();
    }

    /** Ends all connections, and refuses new ones. */
    synchronized void refuse() {
        refuses = true;
        cut();
    }

    synchronized void admit() { refuses = false; }

    @Override
    public void close() throws IOException {
        listener.close();
        refuse();
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                serve(listener.accept());
            } catch (IOException e) {
                // the listener is closed, or the client has left already, or there is no server
            }
        }
    }

    private synchronized void serve(Socket client) throws IOException {
        if (refuses) {
            end(client);
            return;
        }
        Socket upstream = new Socket();
        try {
            upstream.connect(server);
            client.setTcpNoDelay(true);
            upstream.setTcpNoDelay(true);
        } catch (IOException e) {
            end(client);
            throw e;
        }
        sockets.addAll(List.of(client, upstream));
        start(() -> carry(client, upstream));
        start(() -> carry(upstream, client));
    }

    private static void carry(Socket from, Socket to) {
        try {
            from.getInputStream().transferTo(to.getOutputStream());
        } catch (IOException e) {
            // one side is closed, so the other is closed too
        }
        end(from);
        end(to);
    }

    private static void end(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            // it is closed already
        }
    }
}
