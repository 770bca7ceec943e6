// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONObject;
import io.netty.channel.Channel;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.client.ClientChannelInfo;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The calls that differ between releases: 5.3.3, 5.4.0 and 5.5.0, where the broker adds its checks of a put to the store as hooks. */
final class Release {
    /** One for all stores: each has threads that nothing ends. */
    private static final BrokerStatsManager STATS = new BrokerStatsManager("interop", false);

    private Release() {
    }

    /** Makes one store at a time: StoreStatsService fills and walks a map that all stores of a process share. */
    static synchronized DefaultMessageStore newStore(MessageStoreConfig config, List<String> batchTopics, boolean broker) throws IOException {
        BrokerConfig brokerConfig = new BrokerConfig();
        BrokerController controller = broker ? controller(brokerConfig, config) : null;
        ConcurrentMap<String, TopicConfig> topics =
            broker ? controller.getTopicConfigManager().getTopicConfigTable() : new ConcurrentHashMap<>();
        for (String topic : batchTopics) {
            TopicConfig batchTopic = new TopicConfig(topic);
            batchTopic.getAttributes().put("queue.type", "BatchCQ");
            topics.put(topic, batchTopic);
        }
        DefaultMessageStore store = new DefaultMessageStore(config, STATS, (a, b, c, d, e, f, g) -> { }, brokerConfig, topics);
        if (broker) {
            controller.setMessageStore(store);
            controller.registerMessageStoreHook();
        }
        return store;
    }

    /** Makes a broker that is never started: only its hooks and its tables are used. */
    private static BrokerController controller(BrokerConfig brokerConfig, MessageStoreConfig config) {
        BrokerController controller = new BrokerController(brokerConfig, new NettyServerConfig(), null, config);
        controller.getScheduleMessageService().parseDelayLevel();
        return controller;
    }

    static DispatchRequest check(CommitLog log, ByteBuffer bytes) {
        return log.checkMessageAndReturnSize(bytes, true, false, true);
    }

    static PutMessageResult putBatch(DefaultMessageStore store, MessageExtBatch batch) {
        batch.setPropertiesString(MessageDecoder.messageProperties2String(batch.getProperties()));
        return store.putMessages(batch);
    }

    /** Puts a batch as SendMessageProcessor does for a topic with batch queues. */
    static PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        batch.setSysFlag(batch.getSysFlag() | MessageSysFlag.NEED_UNWRAP_FLAG | MessageSysFlag.INNER_BATCH_FLAG);
        batch.setInnerBatch(true);
        batch.setPropertiesString(MessageDecoder.messageProperties2String(batch.getProperties()));
        return store.putMessage(batch);
    }

    static long offsetByTime(DefaultMessageStore store, String topic, int queueId, long time, String boundary) {
        return store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.valueOf(boundary));
    }

    /** Returns the filter of a pull; null if it has none. */
    static MessageFilter filter(String topic, String type, String text) throws Exception {
        if (type == null) {
            return null;
        }
        SubscriptionData subscription = FilterAPI.build(topic, text, type);
        return new ExpressionMessageFilter(
            subscription, ConsumerFilterManager.build(topic, "interop", text, type, 0), new ConsumerFilterManager());
    }

    static void addGroup(BrokerController controller, JSONObject group) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        Store.setAll(config, group);
        controller.getSubscriptionGroupManager().getSubscriptionGroupTable().put(config.getGroupName(), config);
    }

    /** Registers a consumer's subscription. */
    static void connect(BrokerController controller, Channel channel, JSONObject consumer) throws Exception {
        SubscriptionData subscription = FilterAPI.build(
            consumer.getString("topic"), consumer.getString("text"), consumer.getString("type"));
        subscription.setSubVersion(consumer.getLongValue("version"));
        controller.getConsumerManager().registerConsumer(consumer.getString("group"),
            new ClientChannelInfo(channel, "interop", LanguageCode.JAVA, 1), ConsumeType.CONSUME_PASSIVELY,
            MessageModel.valueOf(consumer.getString("model")), ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            Collections.singleton(subscription), false);
    }
}
