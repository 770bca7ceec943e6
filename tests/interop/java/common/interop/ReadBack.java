// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Reads back what RocketMQ sees in a started store. */
final class ReadBack {
    private static final int PULL_SIZE = 32;

    private ReadBack() {
    }

    static JSONObject bounds(DefaultMessageStore store) {
        JSONObject bounds = new JSONObject();
        bounds.put("min", store.getMinPhyOffset());
        bounds.put("max", store.getMaxPhyOffset());
        return bounds;
    }

    /** Adds all records of the log, where their chain ended, and all queues. */
    static void everything(DefaultMessageStore store, JSONObject result) throws Exception {
        JSONArray records = new JSONArray();
        result.put("chainEnd", walk(store, records));
        result.put("records", records);
        result.put("queues", queues(store));
        result.put("bounds", bounds(store));
    }

    /** Follows the log from its first to its last byte with the check that recovery uses, CRC included. */
    private static long walk(DefaultMessageStore store, JSONArray records) {
        long offset = store.getMinPhyOffset();
        while (offset >= 0 && offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult part = store.getCommitLogData(offset);
            if (part == null) {
                return offset;
            }
            try {
                int read = walkPart(store, part.getByteBuffer(), records);
                boolean blank = read < part.getSize() && check(store, part.getByteBuffer(), read).isSuccess();
                if (!blank && read < part.getSize()) {
                    return offset + read;
                }
                offset = blank ? store.getCommitLog().rollNextFile(offset + read) : offset + read;
            } finally {
                part.release();
            }
        }
        return offset;
    }

    /** Adds the records from the buffer's start on; returns the position of the first bytes that are not a record. */
    private static int walkPart(DefaultMessageStore store, ByteBuffer part, JSONArray records) {
        int position = 0;
        while (position < part.limit()) {
            DispatchRequest request = check(store, part, position);
            if (!request.isSuccess() || request.getMsgSize() <= 0) {
                return position;
            }
            ByteBuffer record = part.duplicate();
            record.position(position).limit(position + request.getMsgSize());
            records.add(record(record.slice(), request));
            position += request.getMsgSize();
        }
        return position;
    }

    private static DispatchRequest check(DefaultMessageStore store, ByteBuffer part, int position) {
        ByteBuffer rest = part.duplicate();
        rest.position(position);
        return Release.check(store.getCommitLog(), rest);
    }

    private static JSONObject record(ByteBuffer bytes, DispatchRequest request) {
        JSONObject record = new JSONObject();
        MessageExt message = MessageDecoder.decode(bytes.duplicate(), true, false);
        record.put("topic", message.getTopic());
        record.put("queueId", message.getQueueId());
        record.put("queueOffset", message.getQueueOffset());
        record.put("physicalOffset", message.getCommitLogOffset());
        record.put("storeSize", message.getStoreSize());
        record.put("storeTimestamp", message.getStoreTimestamp());
        record.put("bornTimestamp", message.getBornTimestamp());
        record.put("storeHost", host(message.getStoreHost()));
        record.put("bornHost", host(message.getBornHost()));
        record.put("properties", message.getProperties());
        record.put("bodyLength", message.getBody() == null ? 0 : message.getBody().length);
        record.put("bodySha256", sha256(message.getBody()));
        record.put("bodyCrc", message.getBodyCRC());
        record.put("flag", message.getFlag());
        record.put("sysFlag", message.getSysFlag());
        record.put("reconsumeTimes", message.getReconsumeTimes());
        record.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        record.put("magicCode", bytes.getInt(Integer.BYTES));
        record.put("msgId", message.getMsgId());
        record.put("uniqueKey", request.getUniqKey());
        record.put("tagsCode", request.getTagsCode()); // for a delayed message, the time of its delivery
        record.put("tagsHash", message.getTags() == null ? 0 : message.getTags().hashCode());
        return record;
    }

    private static JSONArray host(SocketAddress address) {
        JSONArray host = new JSONArray();
        host.add(((InetSocketAddress) address).getAddress().getHostAddress());
        host.add(((InetSocketAddress) address).getPort());
        return host;
    }

    static String sha256(byte[] body) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body == null ? new byte[0] : body);
            return String.format("%064x", new BigInteger(1, digest));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static JSONArray queues(DefaultMessageStore store) throws Exception {
        JSONArray queues = new JSONArray();
        for (String topic : store.getConsumeQueueTable().keySet()) {
            for (Integer queueId : store.getConsumeQueueTable().get(topic).keySet()) {
                queues.add(queue(store, topic, queueId));
            }
        }
        return queues;
    }

    private static JSONObject queue(DefaultMessageStore store, String topic, int queueId) throws Exception {
        JSONObject queue = new JSONObject();
        queue.put("topic", topic);
        queue.put("queueId", queueId);
        queue.put("min", store.getMinOffsetInQueue(topic, queueId));
        queue.put("max", store.getMaxOffsetInQueue(topic, queueId));
        queue.put("messages", pullAll(store, topic, queueId));
        return queue;
    }

    /** Gets all messages of a queue as a consumer does; returns their physical offsets, -1 for whatever is not a message. */
    private static JSONArray pullAll(DefaultMessageStore store, String topic, int queueId) {
        JSONArray offsets = new JSONArray();
        long next = store.getMinOffsetInQueue(topic, queueId);
        long last = -1;
        while (next > last) { // where there is nothing, a consumer continues at the suggested offset
            last = next;
            GetMessageResult result = store.getMessage("interop", topic, queueId, next, PULL_SIZE, null);
            try {
                for (SelectMappedBufferResult message : result.getMessageMapedList()) {
                    MessageExt decoded = MessageDecoder.decode(message.getByteBuffer(), false);
                    offsets.add(decoded == null ? -1L : decoded.getCommitLogOffset());
                }
                next = result.getNextBeginOffset();
            } finally {
                result.release();
            }
        }
        return offsets;
    }
}
