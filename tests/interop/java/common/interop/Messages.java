// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
// Whole packages: MessageExtBrokerInner is in the second one up to 4.9 and in the first one since 5.0.
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/** Converts JSON to messages, as a broker passes them to its store, and the store's answers to JSON. */
final class Messages {
    private Messages() {
    }

    /** Puts a message; one with {@code items} is a batch, which with {@code inner} becomes a single record. */
    static PutMessageResult put(DefaultMessageStore store, JSONObject json) {
        if (json.getJSONArray("items") == null) {
            return store.putMessage(single(json));
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, json, MessageDecoder.encodeMessages(items(json)));
        return json.getBooleanValue("inner") ? Release.putInnerBatch(store, batch) : Release.putBatch(store, batch);
    }

    /** Makes a message for a single put: a store changes some of its messages. */
    static MessageExtBrokerInner single(JSONObject json) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, json, json.getString("body") == null ? null : Base64.getDecoder().decode(json.getString("body")));
        if (json.getString("propertiesString") != null) {
            MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(json.getString("propertiesString")));
            message.setPropertiesString(json.getString("propertiesString"));
        } else {
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
        return message;
    }

    private static void fill(MessageExt message, JSONObject json, byte[] body) {
        message.setTopic(json.getString("topic"));
        message.setQueueId(json.getIntValue("queueId"));
        message.setBody(body);
        message.setFlag(json.getIntValue("flag"));
        message.setSysFlag(json.getIntValue("sysFlag"));
        message.setBornTimestamp(json.getLongValue("bornTimestamp"));
        message.setBornHost(host(json.getJSONArray("bornHost")));
        message.setStoreHost(host(json.getJSONArray("storeHost")));
        message.setReconsumeTimes(json.getIntValue("reconsumeTimes"));
        message.setPreparedTransactionOffset(json.getLongValue("preparedTransactionOffset"));
        MessageAccessor.setProperties(message, new HashMap<>());
        putProperties(message, json.getJSONArray("properties"));
    }

    private static List<Message> items(JSONObject json) {
        List<Message> items = new ArrayList<>();
        for (Object object : json.getJSONArray("items")) {
            JSONObject item = (JSONObject) object;
            Message message = new Message(json.getString("topic"), Base64.getDecoder().decode(item.getString("body")));
            message.getProperties().clear(); // a client's constructor sets WAIT
            message.setFlag(item.getIntValue("flag"));
            putProperties(message, item.getJSONArray("properties"));
            items.add(message);
        }
        return items;
    }

    private static void putProperties(Message message, JSONArray pairs) {
        if (pairs == null) {
            return;
        }
        for (Object pair : pairs) {
            MessageAccessor.putProperty(message, ((JSONArray) pair).getString(0), ((JSONArray) pair).getString(1));
        }
    }

    /** Makes an address from {@code [literal, port]}, without a name look-up. */
    private static InetSocketAddress host(JSONArray host) {
        try {
            return new InetSocketAddress(InetAddress.getByName(host.getString(0)), host.getIntValue(1));
        } catch (UnknownHostException impossible) {
            throw new IllegalArgumentException(impossible);
        }
    }

    static JSONObject answer(PutMessageResult result) {
        JSONObject answer = new JSONObject();
        answer.put("status", result.getPutMessageStatus().name());
        answer.put("ok", result.isOk());
        AppendMessageResult append = result.getAppendMessageResult();
        answer.put("append", append == null ? null : append(append));
        return answer;
    }

    private static JSONObject append(AppendMessageResult append) {
        JSONObject answer = new JSONObject();
        answer.put("status", append.getStatus().name());
        answer.put("wroteOffset", append.getWroteOffset());
        answer.put("wroteBytes", append.getWroteBytes());
        answer.put("msgId", append.getMsgId());
        answer.put("storeTimestamp", append.getStoreTimestamp());
        answer.put("logicsOffset", append.getLogicsOffset());
        answer.put("msgNum", append.getMsgNum());
        return answer;
    }
}
