// SPDX-License-Identifier: Apache-2.0
package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;

/**
 * Lets groups consume some messages, then says how far the broker takes them to be: {@code NAMESRV BROKER
 * GROUP:TOPIC,...:COUNT ...}.
 *
 * <p>Each fifth message fails, so that the group has a retry topic. Prints {@code consumed}, then for each group that
 * it reads from standard input the lines {@code topic queueId brokerOffset consumerOffset}, and {@code end}.
 */
public final class Consumer {
    private Consumer() {
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 2; i < arguments.length; i++) {
            String[] parts = arguments[i].split(":");
            consume(arguments[0], parts[0], parts[1].split(","), Integer.parseInt(parts[2]));
        }
        DefaultMQProducer client = new DefaultMQProducer("asking");
        client.setNamesrvAddr(arguments[0]);
        client.start();
        System.out.println("consumed");
        BufferedReader groups = new BufferedReader(new InputStreamReader(System.in));
        for (String group = groups.readLine(); group != null; group = groups.readLine()) {
            ConsumeStats stats = client.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
                .getConsumeStats(arguments[1], group, 10_000);
            for (Map.Entry<MessageQueue, OffsetWrapper> each : stats.getOffsetTable().entrySet()) {
                OffsetWrapper offsets = each.getValue();
                System.out.println(each.getKey().getTopic() + " " + each.getKey().getQueueId() + " "
                    + offsets.getBrokerOffset() + " " + offsets.getConsumerOffset());
            }
            System.out.println("end");
        }
        Runtime.getRuntime().halt(0);
    }

    private static void consume(String nameServer, String group, String[] topics, int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        CountDownLatch done = new CountDownLatch(1);
        CountDownLatch never = new CountDownLatch(1);
        AtomicInteger seen = new AtomicInteger();
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            int number = seen.incrementAndGet();
            if (number > count) {
                done.countDown();
                try {
                    never.await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            return number % 5 == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        consumer.shutdown();
    }
}
