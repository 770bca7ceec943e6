// SPDX-License-Identifier: Apache-2.0
package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Uses a topic that is on two brokers, and asks RocketMQ's admin about the cluster: {@code NAMESRV BROKERS COUNT}.
 *
 * <p>Message {@code n} has the key {@code c<n>}. Group {@code billing} consumes the first half: of seven messages it
 * fails one once, and gives one up; and one it sends back to a broker that is not there, so that its client sends it to
 * any. It then ends, and the second half is sent, of which group {@code slow} consumes a part. Prints the events {@code
 * sent} (with the broker), {@code attempt}, and {@code ready}; then, for each line of input, what the admin says:
 * events {@code group} and {@code topic}, one a queue, and {@code asked}.
 */
public final class Cluster {
    private static final String TOPIC = "Orders";
    private static final String[] GROUPS = {"billing", "slow"};
    private static final String[] TOPICS = {TOPIC, "%RETRY%billing", "%DLQ%billing"};

    private Cluster() {
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);
        admin.setNamesrvAddr(arguments[0]);
        admin.start();
        makeTopic(admin, Integer.parseInt(arguments[1]));
        DefaultMQProducer producer = new DefaultMQProducer("plain");
        Events.start(producer, arguments[0]);
        send(producer, 0, count / 2);
        bill(arguments[0], count / 2);
        send(producer, count / 2, count);
        consumeSome(arguments[0], count / 3);
        Events.print("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            tell(admin);
        }
        Runtime.getRuntime().halt(0);
    }

    /** Waits until the name server knows all brokers, makes the topic on each, and waits until its route has each. */
    private static void makeTopic(DefaultMQAdminExt admin, int brokers) throws Exception {
        ClusterInfo cluster = admin.examineBrokerClusterInfo();
        while (cluster.getBrokerAddrTable() == null || cluster.getBrokerAddrTable().size() < brokers) {
            Thread.sleep(100);
            cluster = admin.examineBrokerClusterInfo();
        }
        for (var broker : cluster.getBrokerAddrTable().values()) {
            admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), new TopicConfig(TOPIC, 4, 4));
        }
        while (admin.examineTopicRouteInfo(TOPIC).getQueueDatas().size() < brokers) {
            Thread.sleep(100);
        }
    }

    private static void send(DefaultMQProducer producer, int first, int end) throws Exception {
        for (int number = first; number < end; number++) {
            Message message = new Message(TOPIC, "Tag", "c" + number, ("c" + number).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message);
            MessageQueue queue = result.getMessageQueue();
            Events.print("sent", "key", "c" + number, "uniqueKey", result.getMsgId(), "broker", queue.getBrokerName(),
                "queueId", queue.getQueueId(), "queueOffset", result.getQueueOffset());
        }
    }

    /** Lets the group consume all that was sent, with its retries, until each message succeeded or was given up. */
    private static void bill(String nameServer, int count) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        Set<String> wandered = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer(nameServer, "billing");
        consumer.setMaxReconsumeTimes(1);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // what failed last is still to be sent back
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            Events.print("attempt", "key", message.getKeys(), "broker", message.getBrokerName(), "topic",
                message.getTopic(), "reconsumeTimes", message.getReconsumeTimes());
            int kind = Integer.parseInt(message.getKeys().substring(1)) % 7;
            boolean isFirst = message.getReconsumeTimes() == 0;
            if (kind == 3 && isFirst && wandered.add(message.getKeys())) {
                return sendElsewhere(consumer, message);
            }
            if ((kind == 2 || kind == 5) && isFirst) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            left.countDown();
            return kind == 5 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await();
        consumer.shutdown();
    }

    /** Does what a client does whose broker does not answer: it sends the message to the retry topic as a new one. */
    private static ConsumeConcurrentlyStatus sendElsewhere(DefaultMQPushConsumer consumer, MessageExt message) {
        try {
            consumer.sendMessageBack(message, 1, "broker-that-is-not-there");
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static void consumeSome(String nameServer, int count) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        CountDownLatch never = new CountDownLatch(1);
        AtomicInteger seen = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer(nameServer, "slow");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (seen.incrementAndGet() > count) {
                done.countDown();
                try {
                    never.await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        consumer.shutdown();
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(TOPIC, "*");
        return consumer;
    }

    private static void tell(DefaultMQAdminExt admin) throws Exception {
        for (String group : GROUPS) {
            ConsumeStats stats = admin.examineConsumeStats(group);
            for (Map.Entry<MessageQueue, OffsetWrapper> each : stats.getOffsetTable().entrySet()) {
                OffsetWrapper offsets = each.getValue();
                queue("group", group, each.getKey(), offsets.getConsumerOffset(), offsets.getBrokerOffset());
            }
            Events.print("total", "group", group, "lag", stats.computeTotalDiff());
        }
        for (String topic : TOPICS) {
            for (Map.Entry<MessageQueue, TopicOffset> each : admin.examineTopicStats(topic).getOffsetTable().entrySet()) {
                queue("topic", "", each.getKey(), each.getValue().getMinOffset(), each.getValue().getMaxOffset());
            }
        }
        Events.print("asked");
    }

    private static void queue(String event, String group, MessageQueue queue, long first, long end) {
        Events.print(event, "group", group, "topic", queue.getTopic(), "broker", queue.getBrokerName(), "queueId",
            queue.getQueueId(), "first", first, "end", end);
    }
}
