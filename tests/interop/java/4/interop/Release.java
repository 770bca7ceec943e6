// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONObject;
import io.netty.channel.Channel;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.client.ClientChannelInfo;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The calls that differ between releases: 4.3.0 and 4.9.7, whose stores check a put themselves. */
final class Release {
    private Release() {
    }

    /** Makes one store at a time: StoreStatsService fills and walks a map that all stores of a process share. */
    static synchronized DefaultMessageStore newStore(MessageStoreConfig config, List<String> batchTopics, boolean broker) throws IOException {
        if (!batchTopics.isEmpty()) {
            throw new IllegalArgumentException(Main.VERSION + " has no batch queues: " + batchTopics);
        }
        return new DefaultMessageStore(config, Stats.OF_ALL, (a, b, c, d, e, f, g) -> { }, new BrokerConfig());
    }

    static DispatchRequest check(CommitLog log, ByteBuffer bytes) {
        return log.checkMessageAndReturnSize(bytes, true, true);
    }

    static PutMessageResult putBatch(DefaultMessageStore store, MessageExtBatch batch) {
        return store.putMessages(batch);
    }

    static PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        throw new IllegalArgumentException(Main.VERSION + " has no inner batches");
    }

    static long offsetByTime(DefaultMessageStore store, String topic, int queueId, long time, String boundary) {
        return store.getOffsetInQueueByTime(topic, queueId, time);
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
