// SPDX-License-Identifier: Apache-2.0
package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;

/**
 * Lets a consumer pop messages: {@code NAMESRV BROKER COUNT}.
 *
 * <p>Message {@code n} has the key {@code p<n>}. Each tenth fails once, and each tenth is never acknowledged: its
 * consumer does not answer. Prints the events {@code sent} and {@code popped}; for each line of standard input what the
 * broker says of the group's queues, as events {@code queue}, and {@code asked}; it ends with its input.
 */
public final class Popping {
    private static final String TOPIC = "Popped";
    private static final String GROUP = "popping";

    private Popping() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("plain");
        Events.start(producer, arguments[0]);
        MQClientAPIImpl client = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        send(producer, 0, 8);
        client.setMessageRequestMode(arguments[1], TOPIC, GROUP, MessageRequestMode.POP, 0, 10_000);
        consume(arguments[0]);
        send(producer, 8, Integer.parseInt(arguments[2]));
        Events.print("all");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            ConsumeStats stats = client.getConsumeStats(arguments[1], GROUP, 10_000);
            for (Map.Entry<MessageQueue, OffsetWrapper> each : stats.getOffsetTable().entrySet()) {
                Events.print("queue", "topic", each.getKey().getTopic(), "queueId", each.getKey().getQueueId(), "end",
                    each.getValue().getBrokerOffset(), "offset", each.getValue().getConsumerOffset());
            }
            Events.print("asked");
        }
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, int first, int end) throws Exception {
        for (int number = first; number < end; number++) {
            Message message = new Message(TOPIC, "Tag", "p" + number, ("p" + number).getBytes(StandardCharsets.UTF_8));
            Events.sent("p" + number, producer.send(message));
        }
    }

    private static void consume(String nameServer) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setConsumeThreadMin(40);
        consumer.setConsumeThreadMax(40);
        consumer.setPopInvisibleTime(60_000);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            Events.got("popped", message);
            int number = Integer.parseInt(message.getKeys().substring(1));
            if (number % 10 == 9) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            return number % 10 == 4 && message.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
