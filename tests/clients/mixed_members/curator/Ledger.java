package mixed;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** One thread's access to the group's files: the counter, and the notes of entries and exits. */
final class Ledger {
    final String who;
    private final Path counter;
    private final OutputStream lines;
    /** Nanoseconds: the shortest time of a section. */
    private final long pause;

    Ledger(Member.Task task, int thread) throws IOException {
        String directory = task.text("dir");
        who = task.text("name") + "." + thread;
        pause = TimeUnit.MICROSECONDS.toNanos(task.number("pause"));
        counter = Path.of(directory, "counter");
        // Each line is written at once, so the lines of all members have the order of their writes.
        lines = new FileOutputStream(Path.of(directory, "ledger").toFile(), true);
    }

    /** Runs one section, and notes the number of the node that holds the lock. */
    void write(String node) throws IOException {
        long count = count();
        note('+', "write", node, count);
        LockSupport.parkNanos(pause);
        // Reading and writing are two steps on purpose: only the lock keeps them together.
        setCount(count + 1);
        note('-', "write", node, count + 1);
    }

    /** Runs one section, beside other readers or holders of a lease. */
    void read(String node) throws IOException {
        note('+', "read", node, count());
        LockSupport.parkNanos(pause);
        note('-', "read", node, count());
    }

    private long count() throws IOException { return Long.parseLong(Files.readString(counter).strip()); }

    /** Writes over the old digits, so that the file is never empty, even if the lock fails. */
    private void setCount(long count) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(counter.toFile(), "rw")) {
            file.write(bytes(String.format(Locale.ROOT, "%010d%n", count)));
        }
    }

    private void note(char sign, String deed, String node, long count) throws IOException {
        String number = node.substring(node.length() - 10);
        lines.write(bytes(String.join(" ", "" + sign, deed, number, who, count + "\n")));
    }

    private static byte[] bytes(String text) { return text.getBytes(StandardCharsets.US_ASCII); }
}
