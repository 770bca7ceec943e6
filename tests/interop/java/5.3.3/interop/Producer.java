// SPDX-License-Identifier: Apache-2.0
package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends numbered messages of all kinds to a broker, again if it does not answer: {@code NAMESRV COUNT PER_SECOND}.
 *
 * <p>Prints the number of messages that are acknowledged, once a second, and at the end. Message {@code n} has the key
 * {@code n<n>}. Those of rolled-back transactions are never delivered, but are in the log.
 */
public final class Producer {
    private static final int BATCH = 10;
    private final Random random = new Random(17);
    private final DefaultMQProducer plain = new DefaultMQProducer("plain");
    private final TransactionMQProducer transactional = new TransactionMQProducer("transactional");

    private Producer(String nameServer) throws Exception {
        for (DefaultMQProducer each : List.of(plain, transactional)) {
            each.setNamesrvAddr(nameServer);
            each.setSendMsgTimeout(5000);
        }
        transactional.setTransactionListener(new Decision());
        plain.start();
        transactional.start();
    }

    public static void main(String[] arguments) throws Exception {
        Producer producer = new Producer(arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        double perSecond = Double.parseDouble(arguments[2]);
        long began = System.nanoTime();
        long told = 0;
        for (int sent = 0; sent < count;) {
            sent += producer.send(sent, count);
            long elapsed = System.nanoTime() - began;
            if (elapsed / 1_000_000_000L > told || sent == count) {
                told = elapsed / 1_000_000_000L;
                System.out.println(sent);
            }
            long early = (long) (sent / perSecond * 1e9) - elapsed;
            if (early > 1_000_000) {
                Thread.sleep(early / 1_000_000);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** Sends the next message, or several as a batch, until the broker acknowledges; returns how many. */
    private int send(int number, int count) throws InterruptedException {
        int size = number % 3 == 0 ? Math.min(BATCH, count - number) : 1;
        List<Message> messages = new ArrayList<>();
        for (int each = number; each < number + size; each++) {
            messages.add(message(each, size > 1 ? "Batched" : "Topic" + each % 3));
        }
        while (true) {
            try {
                if (size > 1) {
                    plain.send(messages);
                } else if (number % 29 == 0) {
                    transactional.sendMessageInTransaction(messages.get(0), number);
                } else {
                    plain.send(number % 31 == 0 ? delayed(messages.get(0)) : messages.get(0));
                }
                return size;
            } catch (Exception unavailable) {
                Thread.sleep(200);
            }
        }
    }

    private Message message(int number, String topic) {
        int length = number % 500 == 0 ? 50_000 : random.nextInt(300);
        String text = number + ":" + "x".repeat(length);
        return new Message(topic, "Tag" + number % 4, "n" + number, text.getBytes(StandardCharsets.UTF_8));
    }

    private static Message delayed(Message message) {
        message.setDelayTimeLevel(1);
        return message;
    }

    /** Commits most transactions, rolls some back, and leaves some to the broker's check. */
    private static final class Decision implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            int kind = (Integer) number % 4;
            return kind == 0 ? LocalTransactionState.ROLLBACK_MESSAGE : kind == 1 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
