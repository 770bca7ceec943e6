// SPDX-License-Identifier: Apache-2.0
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;

/** Locks a store's file as a broker does at its start, says how it went, and keeps the lock until its input ends. */
public class HoldLock {
    public static void main(String[] args) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(args[0], "rw")) {
            FileLock lock = file.getChannel().tryLock(0, 1, false);
            boolean held = lock != null && lock.isValid() && !lock.isShared();
            if (held) {
                file.getChannel().write(ByteBuffer.wrap("lock".getBytes(StandardCharsets.US_ASCII)));
                file.getChannel().force(true);
            }
            System.out.println(held ? "locked " + ProcessHandle.current().pid() : "refused");
            while (held && System.in.read() >= 0) {
                // until the test lets go
            }
        }
    }
}
