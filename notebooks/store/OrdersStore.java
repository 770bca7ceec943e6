// SPDX-License-Identifier: Apache-2.0

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;
import java.util.zip.DeflaterOutputStream;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.schedule.ScheduleMessageService;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.exception.ConsumeQueueException;

/**
 * Has a real broker of RocketMQ 5.3.3 write the four hours of a web shop: {@code OrdersStore STORE BROKER_CONF}.
 *
 * <p>The broker is initialized but never listens; its own code checks, delays, sends back, gives up and appends. Only time
 * is simulated: it replaces the store's clock.
 */
public final class OrdersStore extends SystemClock {
    private static final long BEGIN = Instant.parse("2026-03-14T08:00:00Z").toEpochMilli();
    private static final int MINUTES = 240;
    private static final long MINUTE = 60_000L;
    private static final long END = BEGIN + MINUTES * MINUTE;
    private static final int HOUR = 60;
    /** Minutes: a flash sale, a card gateway that is down, a slow disk, a warehouse that stops. */
    private static final int[] SALE = {2 * HOUR, 2 * HOUR + 20};
    private static final int[] GATEWAY_DOWN = {2 * HOUR + 30, 2 * HOUR + 55};
    private static final int[] SLOW_DISK = {3 * HOUR, 3 * HOUR + 15};
    private static final int WAREHOUSE_STOPS = 3 * HOUR + 5;

    private static final double ANALYTICS_A_MINUTE = 11.5;
    private static final int REMINDER_LEVEL = 16; // 30 minutes
    private static final int RETRY_TIMES = 4;
    private static final int COMPRESS_FROM = 4096; // as the client's compressMsgBodyOverHowmuch
    private static final String BROKER = "10.0.1.5";
    private static final String[] REGIONS = {"eu", "eu", "eu", "us", "us", "apac"};
    private static final String[] CURRENCIES = {"EUR", "USD", "JPY"};

    private record Event(long time, long number, Runnable action) implements Comparable<Event> {
        @Override
        public int compareTo(Event other) {
            int byTime = Long.compare(time, other.time);
            return byTime != 0 ? byTime : Long.compare(number, other.number);
        }
    }

    private final Random random = new Random(20260314);
    private final PriorityQueue<Event> events = new PriorityQueue<>();
    private final Map<Integer, Integer> uniqueCounters = new HashMap<>();
    private final EmbeddedChannel channel = new EmbeddedChannel(new ChannelInboundHandlerAdapter());
    private final Method timeUp;
    private final BrokerController broker;
    private final DefaultMessageStore store;
    private long number;
    private volatile long now = BEGIN;
    private int orders;
    private double clicksConsumed;

    private OrdersStore(Path root, Path brokerConf) throws Exception {
        Properties properties = new Properties();
        properties.load(Files.newBufferedReader(brokerConf));
        MessageStoreConfig config = new MessageStoreConfig();
        BrokerConfig brokerConfig = new BrokerConfig();
        MixAll.properties2Object(properties, config);
        MixAll.properties2Object(properties, brokerConfig);
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setTimerWheelEnable(false);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(10911);
        broker = new BrokerController(brokerConfig, server, new NettyClientConfig(), config);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker refuses to start");
        }
        store = (DefaultMessageStore) broker.getMessageStore();
        Field clock = DefaultMessageStore.class.getDeclaredField("systemClock");
        clock.setAccessible(true);
        clock.set(store, this);
        timeUp = ScheduleMessageService.class.getDeclaredMethod("messageTimeUp", MessageExt.class);
        timeUp.setAccessible(true);
    }

    public static void main(String[] arguments) throws Exception {
        OrdersStore shop = new OrdersStore(Path.of(arguments[0]).toAbsolutePath(), Path.of(arguments[1]));
        shop.run();
        System.exit(0); // some threads of the broker never end
    }

    @Override
    public long now() {
        return now;
    }

    private void run() throws Exception {
        store.start();
        addTopic("clicks", 2);
        addTopic("orders", 4);
        addTopic("payments", 4);
        addTopic("shipments", 2);
        addTopic("reminders", 1);
        for (String group : new String[] {"analytics", "billing", "mailer", "search", "warehouse"}) {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(group);
            config.setRetryMaxTimes(RETRY_TIMES);
            broker.getSubscriptionGroupManager().getSubscriptionGroupTable().put(group, config);
        }
        for (int minute = 0; minute < MINUTES; minute++) {
            double wave = 1 + 0.25 * Math.sin(minute / 37.0);
            boolean sale = within(minute, SALE);
            arrivals(minute, wave * (sale ? 48 : 9), this::click);
            arrivals(minute, wave * (sale ? 20 : 4.6), this::order);
            long at = BEGIN + (minute + 1) * MINUTE - 1;
            at(at, this::analyticsConsumes);
        }
        while (!events.isEmpty() && events.peek().time() < END) {
            Event event = events.poll();
            now = Math.max(now, event.time());
            event.action().run();
        }
        finish();
    }

    private void finish() throws Exception {
        awaitDispatch();
        commit("mailer", "reminders", 1.0);
        commit("search", "orders", 1.0);
        commit("billing", "payments", 1.0);
        commit("billing", MixAll.getRetryTopic("billing"), 1.0);
        broker.getConsumerOffsetManager().persist();
        broker.getTopicConfigManager().persist();
        broker.getSubscriptionGroupManager().persist();
        broker.getScheduleMessageService().persist();
        System.out.printf("%,d bytes, %d orders%n", store.getMaxPhyOffset(), orders);
        store.shutdown();
    }

    /** Waits until the queues have all messages. */
    private void awaitDispatch() {
        while (store.dispatchBehindBytes() > 0) {
            LockSupport.parkNanos(1_000_000);
        }
    }

    private void addTopic(String topic, int queues) {
        broker.getTopicConfigManager().getTopicConfigTable().put(topic, new TopicConfig(topic, queues, queues));
    }

    // ---- events

    private void click() {
        String body = String.format(Locale.ROOT, "{\"page\":\"/p/%d\",\"ms\":%d}", 100 + random.nextInt(60), 40 + random.nextInt(400));
        MessageExtBrokerInner message = message("clicks", random.nextInt(2), body, 10 + random.nextInt(4));
        message.setTags(random.nextInt(5) == 0 ? "cart" : "view");
        send(message, null);
    }

    private void order() {
        int id = 100_000 + orders++;
        String key = "o-" + id;
        int queue = Math.floorMod(key.hashCode(), 4);
        String region = REGIONS[random.nextInt(REGIONS.length)];
        String currency = CURRENCIES[region.equals("eu") ? 0 : region.equals("us") ? 1 : 2];
        double total = Math.round((5 + 180 * Math.pow(random.nextDouble(), 2)) * 100) / 100.0;
        StringBuilder items = new StringBuilder();
        for (int item = 0, count = 1 + random.nextInt(4); item < count; item++) {
            items.append(item == 0 ? "" : ",").append(
                String.format(Locale.ROOT, "{\"sku\":\"SKU-%d\",\"n\":%d}", 100 + random.nextInt(60), 1 + random.nextInt(3)));
        }
        String body = String.format(Locale.ROOT, "{\"order\":\"%s\",\"customer\":\"c-%d\",\"items\":[%s],\"total\":%.2f,\"currency\":\"%s\"}",
            key, 1000 + random.nextInt(900), items, total, currency);
        MessageExtBrokerInner message = message("orders", queue, body, 20 + random.nextInt(3));
        message.setTags("created");
        message.setKeys(key);
        describe(message, region, total);
        send(message, null);
        if (random.nextInt(100) < 82) {
            at(now + 5_000 + (long) (exponential() * 60_000), () -> pay(key, queue, region, currency, total));
        } else {
            remind(key, region, total);
        }
    }

    private void describe(MessageExtBrokerInner message, String region, double price) {
        message.putUserProperty("region", region);
        message.putUserProperty("price", String.format(Locale.ROOT, "%.2f", price));
    }

    /** Sends a reminder that the broker delivers half an hour later, to those who have not paid. */
    private void remind(String key, String region, double total) {
        MessageExtBrokerInner message = message("reminders", 0, "{\"order\":\"" + key + "\",\"text\":\"Your cart is waiting\"}", 20);
        message.setTags("unpaid");
        message.setKeys(key);
        describe(message, region, total);
        message.setDelayTimeLevel(REMINDER_LEVEL);
        send(message, null);
    }

    private void pay(String key, int queue, String region, String currency, double total) {
        String kind = random.nextInt(10) < 7 ? "card" : random.nextInt(3) == 0 ? "invoice" : "wallet";
        String body = String.format(Locale.ROOT, "{\"order\":\"%s\",\"payment\":\"p-%d\",\"amount\":%.2f,\"currency\":\"%s\",\"method\":\"%s\"}",
            key, 500_000 + random.nextInt(99_999), total, currency, kind);
        MessageExtBrokerInner message = message("payments", queue, body, 30 + random.nextInt(2));
        message.setTags(kind);
        message.setKeys(key);
        describe(message, region, total);
        send(message, this::bill);
        at(now + 1_500, () -> {
            MessageExtBrokerInner paid = message("orders", queue, "{\"order\":\"" + key + "\",\"state\":\"paid\"}", 20 + random.nextInt(3));
            paid.setTags("paid");
            paid.setKeys(key);
            describe(paid, region, total);
            send(paid, null);
        });
        if (random.nextInt(10) < 7) {
            at(now + 12 * MINUTE + (long) (exponential() * 25 * MINUTE), () -> ship(key, region));
        }
    }

    private void ship(String key, String region) {
        StringBuilder label = new StringBuilder("{\"order\":\"" + key + "\",\"carrier\":\"" + (region.equals("eu") ? "DPX" : "UPR") + "\",\"label\":\"");
        int lines = random.nextInt(12) == 0 ? 150 : 4 + random.nextInt(18);
        for (int line = 0; line < lines; line++) {
            label.append(String.format(Locale.ROOT, "^FO%d,%d^BY2^BCN,100^FD", 30 + 10 * (line % 8), 40 * line)).append(key).append("^FS\\n");
        }
        MessageExtBrokerInner message = message("shipments", Math.floorMod(key.hashCode(), 2), label.append("\"}").toString(), 40);
        message.setTags("handed_over");
        message.setKeys(key);
        message.putUserProperty("region", region);
        send(message, null);
    }

    // ---- consumers

    /** The group billing; while the gateway is down it sends cards back, which the broker retries at growing intervals. */
    private void bill(long physicalOffset) {
        MessageExt message = store.lookMessageByOffset(physicalOffset);
        boolean down = within((int) ((now - BEGIN) / MINUTE), GATEWAY_DOWN);
        if (!down || !"card".equals(message.getTags()) || random.nextInt(10) == 0) {
            return;
        }
        ConsumerSendMsgBackRequestHeader header = new ConsumerSendMsgBackRequestHeader();
        header.setGroup("billing");
        header.setOffset(physicalOffset);
        header.setDelayLevel(0);
        header.setOriginMsgId(message.getMsgId());
        header.setOriginTopic(message.getTopic());
        header.setMaxReconsumeTimes(RETRY_TIMES);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header);
        request.setVersion(MQVersion.CURRENT_VERSION);
        request.makeCustomHeaderToNet();
        long before = store.getMaxPhyOffset();
        try {
            ChannelHandlerContext context = channel.pipeline().firstContext();
            RemotingCommand answer = broker.getSendMessageProcessor().processRequest(context, request);
            if (answer.getCode() != 0) {
                throw new IllegalStateException(answer.toString());
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        stored(recordAt(before), this::bill);
    }

    /** A group that can process only so many messages per minute. */
    private void analyticsConsumes() {
        awaitDispatch();
        long stored = end("clicks", 0) + end("clicks", 1);
        clicksConsumed = Math.min(stored, clicksConsumed + ANALYTICS_A_MINUTE);
        commit("analytics", "clicks", stored == 0 ? 0 : clicksConsumed / stored);
        if ((now - BEGIN) / MINUTE < WAREHOUSE_STOPS) {
            commit("warehouse", "shipments", 1.0);
            commit("warehouse", "orders", 1.0);
        }
    }

    private void commit(String group, String topic, double share) {
        ConcurrentMap<Integer, ?> queues = store.getConsumeQueueTable().get(topic);
        if (queues == null) {
            return;
        }
        queues.keySet().forEach(queue -> broker.getConsumerOffsetManager().commitOffset(
            "10.0.9.1:40000", group, topic, queue, Math.round(share * end(topic, queue))));
    }

    private long end(String topic, int queue) {
        try {
            return store.getMaxOffsetInQueue(topic, queue);
        } catch (ConsumeQueueException error) {
            throw new IllegalStateException(error);
        }
    }

    // ---- how messages get into the store

    private MessageExtBrokerInner message(String topic, int queue, String text, int host) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        if (body.length >= COMPRESS_FROM) {
            message.setSysFlag(MessageSysFlag.COMPRESSED_FLAG | MessageSysFlag.COMPRESSION_ZLIB_TYPE);
            body = deflated(body);
        }
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBody(body);
        message.setBornTimestamp(now);
        message.setBornHost(new InetSocketAddress("10.0.7." + host, 40_000 + host * 11));
        message.setStoreHost(new InetSocketAddress(BROKER, 10911));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, uniqueKey(host));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_CLUSTER, "shop");
        message.setWaitStoreMsgOK(true);
        return message;
    }

    /** Makes sixteen bytes as a client does: address, process, class loader, milliseconds, counter. */
    private String uniqueKey(int host) {
        int counter = uniqueCounters.merge(host, 1, Integer::sum);
        return String.format("0A0007%02X%04X18B4AAC2%08X%04X", host, 4000 + host, now - BEGIN + 1_152_000_000L, counter & 0xffff);
    }

    private static byte[] deflated(byte[] body) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DeflaterOutputStream deflater = new DeflaterOutputStream(bytes)) {
            deflater.write(body);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        return bytes.toByteArray();
    }

    /** Creates a message that is born now, and stored as soon as the network and the broker's disk allow. */
    private void send(MessageExtBrokerInner message, LongConsumer consumer) {
        double slow = slowness((now - BEGIN) / (double) MINUTE);
        double milliseconds = (1.5 + 2.5 * Math.exp(0.8 * random.nextGaussian())) * slow + (random.nextInt(300) == 0 ? 40 + 160 * random.nextDouble() : 0);
        at(now + Math.max(1, Math.round(milliseconds)), () -> put(message, consumer));
    }

    /** How many times slower than usual: the disk gets worse, then better, evenly on a log scale. */
    private static double slowness(double minute) {
        double place = (minute - SLOW_DISK[0]) / (SLOW_DISK[1] - SLOW_DISK[0]);
        return place < 0 || place > 1 ? 1 : Math.pow(150, Math.sin(Math.PI * place));
    }

    private void put(MessageExtBrokerInner message, LongConsumer consumer) {
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = store.putMessage(message);
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException(result.toString());
        }
        stored(store.lookMessageByOffset(result.getAppendMessageResult().getWroteOffset()), consumer);
    }

    /** Schedules a message to be consumed soon, or, if the broker has delayed it, to be delivered when it is due. */
    private void stored(MessageExt message, LongConsumer consumer) {
        if (message.getTopic().equals(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC)) {
            int level = ScheduleMessageService.queueId2DelayLevel(message.getQueueId());
            long due = broker.getScheduleMessageService().computeDeliverTimestamp(level, message.getStoreTimestamp());
            at(due + 20 + random.nextInt(80), () -> deliver(message, level, consumer));
        } else if (consumer != null && !message.getTopic().startsWith(MixAll.DLQ_GROUP_TOPIC_PREFIX)) {
            at(now + 50 + random.nextInt(400), () -> consumer.accept(message.getCommitLogOffset()));
        }
    }

    private void deliver(MessageExt delayed, int level, LongConsumer consumer) {
        try {
            MessageExtBrokerInner message = (MessageExtBrokerInner) timeUp.invoke(broker.getScheduleMessageService(), delayed);
            PutMessageResult result = store.putMessage(message);
            broker.getScheduleMessageService().getOffsetTable().merge(level, delayed.getQueueOffset() + 1, Math::max);
            stored(store.lookMessageByOffset(result.getAppendMessageResult().getWroteOffset()), consumer);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns the record that was just appended: at the log's end, or at the start of the next file. */
    private MessageExt recordAt(long end) {
        MessageExt message = store.lookMessageByOffset(end);
        if (message != null) {
            return message;
        }
        int size = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        return store.lookMessageByOffset((end / size + 1) * size);
    }

    // ---- the simulation

    private void at(long time, Runnable action) {
        events.add(new Event(time, number++, action));
    }

    private void arrivals(int minute, double mean, Runnable action) {
        List<Long> times = new ArrayList<>();
        for (double time = exponential() / mean; time < 1; time += exponential() / mean) {
            times.add(BEGIN + minute * MINUTE + (long) (time * MINUTE));
        }
        times.forEach(time -> at(time, action));
    }

    private double exponential() {
        return -Math.log(1 - random.nextDouble());
    }

    private static boolean within(int minute, int[] span) {
        return span[0] <= minute && minute < span[1];
    }
}
