// SPDX-License-Identifier: Apache-2.0
package interop;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;

/**
 * Sends delayed messages and timers, and prints when they come: {@code NAMESRV COUNT LEVELS FIRST LAST}.
 *
 * <p>{@code COUNT} of each: delayed messages of levels 1 to {@code LEVELS} in turn, and timers that are due evenly from
 * {@code FIRST} to {@code LAST} ms after the start. Every seventh timer is cancelled. Two more messages carry properties of
 * timers, as if they were sent again. Prints the events {@code sent},
 * {@code all} and {@code came}, and ends with its input.
 */
public final class Delays {
    private Delays() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("waiting");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Delays", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> Events.got("came", message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("delaying");
        Events.start(producer, arguments[0]);
        send(producer, Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]), Long.parseLong(arguments[3]), Long.parseLong(arguments[4]));
        sendAgain(producer, "r0", null);
        sendAgain(producer, "r1", "1700000000000");
        Events.print("all");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, int count, int levels, long first, long last) throws Exception {
        long now = System.currentTimeMillis();
        for (int number = 0; number < count; number++) {
            Message delayed = message("l" + number);
            delayed.setDelayTimeLevel(1 + number % levels);
            Events.sent("l" + number, producer.send(delayed));
            long due = now + first + (last - first) * number / count;
            Message timer = message("t" + number);
            timer.setDeliverTimeMs(due);
            producer.send(timer);
            Events.print("sent", "key", "t" + number, "due", due);
            if (number % 7 == 3) {
                Message cancel = message("x" + number);
                cancel.setDeliverTimeMs(due);
                String cancelled = "Delays+" + MessageClientIDSetter.getUniqID(timer); // by topic and key since 5.3
                MessageAccessor.putProperty(cancel, MessageConst.PROPERTY_TIMER_DEL_UNIQKEY, cancelled);
                producer.send(cancel);
                Events.print("cancelled", "key", "t" + number);
            }
        }
    }

    /** Sends a message as one that comes from a store: with what asked for its delay, and when it was due, if it was. */
    private static void sendAgain(DefaultMQProducer producer, String key, String wasDue) throws Exception {
        Message message = message(key);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_DELAY_SEC, "2");
        if (wasDue != null) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_OUT_MS, wasDue);
        }
        producer.send(message);
        Events.print("sent", "key", key);
    }

    private static Message message(String key) {
        return new Message("Delays", "Tag", key, key.getBytes(StandardCharsets.UTF_8));
    }
}
