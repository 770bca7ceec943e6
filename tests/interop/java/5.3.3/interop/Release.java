// SPDX-License-Identifier: Apache-2.0
package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is different between releases: 5.3.3, where the broker hangs its checks of a put into the store. */
final class Release {
    static final String VERSION = "5.3.3";

    private Release() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, List<String> batchTopics, boolean broker) throws IOException {
        BrokerConfig brokerConfig = new BrokerConfig();
        BrokerController controller = broker ? controller(brokerConfig, config) : null;
        ConcurrentMap<String, TopicConfig> topics =
            broker ? controller.getTopicConfigManager().getTopicConfigTable() : new ConcurrentHashMap<>();
        for (String topic : batchTopics) {
            TopicConfig batchTopic = new TopicConfig(topic);
            batchTopic.getAttributes().put("queue.type", "BatchCQ");
            topics.put(topic, batchTopic);
        }
        BrokerStatsManager stats = new BrokerStatsManager("interop", false);
        DefaultMessageStore store = new DefaultMessageStore(config, stats, (a, b, c, d, e, f, g) -> { }, brokerConfig, topics);
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
}
