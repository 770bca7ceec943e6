// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** Questions of consumers and operators to a started store; tests/interop/README.md lists the kinds. */
final class Questions {
    private static final int QUEUE_OFFSET_POSITION = 20;
    private static final int PHYSICAL_OFFSET_POSITION = 28;

    private Questions() {
    }

    static JSONArray answers(DefaultMessageStore store, JSONArray questions) {
        JSONArray answers = new JSONArray();
        for (Object question : questions) {
            try {
                answers.add(answer(store, (JSONObject) question));
            } catch (Exception thrown) {
                JSONObject answer = new JSONObject();
                answer.put("thrown", thrown.getClass().getSimpleName());
                answers.add(answer);
            }
        }
        return answers;
    }

    /** Asks for messages or for an offset, and ignores the answer. */
    static void ask(DefaultMessageStore store, JSONObject question) {
        String topic = question.getString("topic");
        int queueId = question.getIntValue("queueId");
        if (question.getString("kind").equals("time")) {
            Release.offsetByTime(store, topic, queueId, question.getLongValue("time"), question.getString("boundary"));
        } else {
            store.getMessage("interop", topic, queueId, question.getLongValue("offset"), question.getIntValue("most"), null)
                .release();
        }
    }

    private static Object answer(DefaultMessageStore store, JSONObject question) throws Exception {
        String topic = question.getString("topic");
        int queueId = question.getIntValue("queueId");
        long offset = question.getLongValue("offset");
        switch (question.getString("kind")) {
            case "get":
                return get(store, question);
            case "key":
                return byKey(store, question);
            case "time":
                return Release.offsetByTime(store, topic, queueId, question.getLongValue("time"), question.getString("boundary"));
            case "bounds":
                return longs(store.getMinOffsetInQueue(topic, queueId), store.getMaxOffsetInQueue(topic, queueId),
                    store.getMessageTotalInQueue(topic, queueId));
            case "earliest":
                return store.getEarliestMessageTime(topic, queueId);
            case "place":
                return longs(store.getMessageStoreTimeStamp(topic, queueId, offset),
                    store.getCommitLogOffsetInQueue(topic, queueId, offset));
            default:
                throw new IllegalArgumentException("no such kind: " + question.getString("kind"));
        }
    }

    private static JSONObject get(DefaultMessageStore store, JSONObject question) throws Exception {
        String topic = question.getString("topic");
        GetMessageResult result = store.getMessage("interop", topic, question.getIntValue("queueId"),
            question.getLongValue("offset"), question.getIntValue("most"),
            Release.filter(topic, question.getString("filterType"), question.getString("filter")));
        try {
            JSONObject answer = new JSONObject();
            answer.put("status", result.getStatus().name());
            answer.put("next", result.getNextBeginOffset());
            answer.put("min", result.getMinOffset());
            answer.put("max", result.getMaxOffset());
            answer.put("count", result.getMessageCount());
            answer.put("size", result.getBufferTotalSize());
            answer.put("suggest", result.isSuggestPullingFromSlave());
            answer.put("queueOffsets", fields(result.getMessageBufferList(), QUEUE_OFFSET_POSITION));
            answer.put("physicalOffsets", fields(result.getMessageBufferList(), PHYSICAL_OFFSET_POSITION));
            return answer;
        } finally {
            result.release();
        }
    }

    private static JSONObject byKey(DefaultMessageStore store, JSONObject question) {
        QueryMessageResult result = store.queryMessage(question.getString("topic"), question.getString("key"),
            question.getIntValue("most"), question.getLongValue("begin"), question.getLongValue("end"));
        try {
            JSONObject answer = new JSONObject();
            answer.put("physicalOffsets", fields(result.getMessageBufferList(), PHYSICAL_OFFSET_POSITION));
            answer.put("lastTime", result.getIndexLastUpdateTimestamp());
            answer.put("lastOffset", result.getIndexLastUpdatePhyoffset());
            return answer;
        } finally {
            result.release();
        }
    }

    private static JSONArray fields(List<ByteBuffer> records, int position) {
        JSONArray fields = new JSONArray();
        records.forEach(record -> fields.add(record.getLong(record.position() + position)));
        return fields;
    }

    private static JSONArray longs(long... values) {
        JSONArray array = new JSONArray();
        for (long value : values) {
            array.add(value);
        }
        return array;
    }
}
