// SPDX-License-Identifier: Apache-2.0
package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is different between releases: 4.3.0, whose store makes the checks of a put itself. */
final class Release {
    static final String VERSION = "4.3.0";

    private Release() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, List<String> batchTopics, boolean broker) throws IOException {
        if (!batchTopics.isEmpty()) {
            throw new IllegalArgumentException(VERSION + " has no batch queues: " + batchTopics);
        }
        return new DefaultMessageStore(config, new BrokerStatsManager("interop"), (a, b, c, d, e, f, g) -> { }, new BrokerConfig());
    }

    static DispatchRequest check(CommitLog log, ByteBuffer bytes) {
        return log.checkMessageAndReturnSize(bytes, true, true);
    }

    static PutMessageResult putBatch(DefaultMessageStore store, MessageExtBatch batch) {
        return store.putMessages(batch);
    }

    static PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        throw new IllegalArgumentException(VERSION + " has no inner batches");
    }
}
