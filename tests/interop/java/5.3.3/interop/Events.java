// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSON;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.topic.TopicValidator;

/** What happens to messages, as lines of JSON on standard output. */
final class Events {
    private Events() {
    }

    /** Prints an event: names and values in turn. */
    static void print(String event, Object... fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        for (int i = 0; i < fields.length; i += 2) {
            line.put((String) fields[i], fields[i + 1]);
        }
        String text = JSON.toJSONString(line);
        synchronized (System.out) {
            System.out.println(text);
        }
    }

    /** Starts a producer, and waits until the broker has told the name server that it is there. */
    static void start(DefaultMQProducer producer, String nameServer) throws Exception {
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        for (int tries = 0; ; tries++) {
            try {
                producer.fetchPublishMessageQueues(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC);
                return;
            } catch (MQClientException unknown) {
                if (tries == 600) {
                    throw unknown;
                }
                Thread.sleep(100);
            }
        }
    }

    /** Prints what the broker said to a send. */
    static void sent(String key, SendResult result) {
        print("sent", "key", key, "uniqueKey", result.getMsgId(), "messageId", result.getOffsetMsgId(), "queueId",
            result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset());
    }

    /** Prints a message that a consumer got. */
    static void got(String event, MessageExt message) {
        String id = message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null;
        print(event, "key", message.getKeys(), "uniqueKey", message.getMsgId(), "messageId", id, "topic",
            message.getTopic(), "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(), "logOffset",
            message.getCommitLogOffset(), "storeTimestamp", message.getStoreTimestamp(), "reconsumeTimes",
            message.getReconsumeTimes());
    }
}
