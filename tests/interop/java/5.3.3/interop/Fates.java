// SPDX-License-Identifier: Apache-2.0
package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages whose consumers fail on purpose, and prints what becomes of each: {@code NAMESRV COUNT ATTEMPTS}.
 *
 * <p>Message {@code n} has the key {@code f<n>}. A group consumes it: it fails as often as {@link #failures} says, at
 * most {@code ATTEMPTS} times after the first, and is then a dead letter, which another group gets. Prints the event
 * {@code done} once all that is to come has come, and ends with its input.
 */
public final class Fates {
    private static final String GROUP = "failing";

    private Fates() {
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        int attempts = Integer.parseInt(arguments[2]);
        CountDownLatch left = new CountDownLatch((int) IntStream.range(0, count).filter(n -> !isRolledBack(n)).count());
        consume(arguments[0], GROUP, "Fates", attempts, left);
        consume(arguments[0], "graves", "%DLQ%" + GROUP, attempts, left);
        send(arguments[0], count);
        left.await();
        Events.print("done");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    /** How often consuming a message fails; a hundred times means always. */
    private static int failures(int number) {
        int[] often = {0, 0, 1, 2, 100, 1, 100, 3, 0, 0, 2, 0};
        return often[number % often.length];
    }

    private static boolean isTransactional(int number) {
        return number % 5 == 1;
    }

    private static boolean isRolledBack(int number) {
        return number % 15 == 11;
    }

    private static boolean isDelayed(int number) {
        return number % 7 == 5 && !isTransactional(number);
    }

    private static void send(String nameServer, int count) throws Exception {
        DefaultMQProducer plain = new DefaultMQProducer("plain");
        TransactionMQProducer transactional = new TransactionMQProducer("transactional");
        transactional.setTransactionListener(new Decision());
        for (DefaultMQProducer each : List.of(plain, transactional)) {
            Events.start(each, nameServer);
        }
        for (int number = 0; number < count; number++) {
            byte[] body = ("body " + number).getBytes(StandardCharsets.UTF_8);
            Message message = new Message("Fates", "Tag" + number % 4, "f" + number, body);
            if (isDelayed(number)) {
                message.setDelayTimeLevel(1 + number % 2);
            }
            Events.sent("f" + number, isTransactional(number)
                ? transactional.sendMessageInTransaction(message, number) : plain.send(message));
        }
    }

    private static void consume(String nameServer, String group, String topic, int attempts, CountDownLatch left)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setMaxReconsumeTimes(attempts);
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            Events.got(group.equals(GROUP) ? "attempt" : "dead", message);
            int number = Integer.parseInt(message.getKeys().substring(1));
            if (group.equals(GROUP) && message.getReconsumeTimes() < failures(number)) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            left.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static final class Decision implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            return isRolledBack((Integer) number) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return executeLocalTransaction(message, Integer.valueOf(message.getKeys().substring(1)));
        }
    }
}
