// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;

/** A broker without network: it is initialized and its store is started, but it never listens. */
final class Broker implements AutoCloseable {
    private static final int PULL_MESSAGE = 11;

    private final BrokerController controller;
    private final EmbeddedChannel channel = new EmbeddedChannel(new ChannelInboundHandlerAdapter());

    Broker(JSONObject job) throws Exception {
        controller = new BrokerController(brokerConfig(job), new NettyServerConfig(), new NettyClientConfig(), Store.config(job));
    }

    private static BrokerConfig brokerConfig(JSONObject job) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        Store.setAll(config, job.getJSONObject("broker"));
        return config;
    }

    /** Serves pulls one by one. */
    static JSONArray pulls(JSONObject job) throws Exception {
        try (Broker broker = new Broker(job)) {
            broker.initialize();
            ((DefaultMessageStore) broker.controller.getMessageStore()).start();
            broker.setUp(job);
            JSONArray answers = new JSONArray();
            for (Object request : job.getJSONArray("requests")) {
                answers.add(broker.pull((JSONObject) request));
            }
            return answers;
        }
    }

    /** Starts brokers one at a time: 5.x looks for its classes in the jars, and closes them while others use them. */
    private void initialize() throws Exception {
        synchronized (Broker.class) {
            if (!controller.initialize()) {
                throw new IllegalStateException("initialize() is false");
            }
        }
    }

    private void setUp(JSONObject job) throws Exception {
        for (Object item : job.getJSONArray("topics")) {
            JSONObject topic = (JSONObject) item;
            TopicConfig config = new TopicConfig(topic.getString("topicName"));
            Store.setAll(config, topic);
            controller.getTopicConfigManager().getTopicConfigTable().put(config.getTopicName(), config);
        }
        for (Object group : job.getJSONArray("groups")) {
            Release.addGroup(controller, (JSONObject) group);
        }
        for (Object consumer : job.getJSONArray("consumers")) {
            Release.connect(controller, channel, (JSONObject) consumer);
        }
    }

    private JSONObject pull(JSONObject fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(PULL_MESSAGE, null);
        HashMap<String, String> header = new HashMap<>();
        fields.forEach((name, value) -> {
            if (value != null) {
                header.put(name, value.toString());
            }
        });
        request.setExtFields(header);
        ChannelHandlerContext context = channel.pipeline().firstContext();
        RemotingCommand response = controller.getPullMessageProcessor().processRequest(context, request);
        if (response == null) { // 5.x writes some answers itself
            response = (RemotingCommand) (Object) channel.readOutbound();
        }
        JSONObject answer = new JSONObject();
        answer.put("waiting", waiting());
        if (response == null) {
            return answer;
        }
        response.makeCustomHeaderToNet();
        answer.put("code", response.getCode());
        answer.put("remark", response.getRemark());
        answer.put("header", response.getExtFields());
        answer.put("body", response.getBody() == null ? null : ReadBack.sha256(response.getBody()));
        return answer;
    }

    /** Counts the pulls that wait for messages. */
    private int waiting() throws Exception {
        int count = 0;
        for (Object queue : ((Map<?, ?>) field(controller.getPullRequestHoldService(), "pullRequestTable")).values()) {
            count += ((List<?>) field(queue, "pullRequestList")).size();
        }
        return count;
    }

    private static Object field(Object owner, String name) throws Exception {
        Class<?> type = owner.getClass();
        while (true) {
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field.get(owner);
            } catch (NoSuchFieldException inherited) {
                type = type.getSuperclass();
            }
        }
    }

    /** Registers expressions, and reports after each step the contents of the file and the bit map of a message. */
    static JSONArray filters(JSONObject job) throws Exception {
        BrokerConfig config = brokerConfig(job);
        BrokerController controller =
            new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), Store.config(job));
        for (Object topic : job.getJSONArray("topics")) {
            controller.getTopicConfigManager().getTopicConfigTable().put((String) topic, new TopicConfig((String) topic));
        }
        ConsumerFilterManager filters = new ConsumerFilterManager(controller);
        CommitLogDispatcherCalcBitMap dispatcher = new CommitLogDispatcherCalcBitMap(config, filters);
        JSONArray answers = new JSONArray();
        for (Object item : job.getJSONArray("steps")) {
            JSONObject step = (JSONObject) item;
            JSONObject answer = new JSONObject();
            if (step.containsKey("load")) {
                filters.decode(step.getString("load"));
            } else if (step.containsKey("expression")) {
                answer.put("registered", filters.register(step.getString("topic"), step.getString("group"),
                    step.getString("expression"), step.getString("type"), step.getLongValue("version")));
            } else {
                filters.unRegister(step.getString("group"));
            }
            answer.put("file", filters.encode(true));
            answer.put("bitMap", bitMap(dispatcher, step.getString("topic"), job.getJSONObject("properties")));
            answers.add(answer);
        }
        return answers;
    }

    private static String bitMap(CommitLogDispatcherCalcBitMap dispatcher, String topic, JSONObject given) {
        Map<String, String> properties = new HashMap<>();
        given.forEach((name, value) -> properties.put(name, (String) value));
        DispatchRequest request = new DispatchRequest(topic, 0, 0, 100, 0, 0, 0, null, null, 0, 0, properties);
        dispatcher.dispatch(request);
        StringBuilder hex = new StringBuilder();
        if (request.getBitMap() != null) {
            for (byte part : request.getBitMap()) {
                hex.append(String.format("%02x", part));
            }
        }
        return hex.toString();
    }

    @Override
    public void close() {
        controller.getMessageStore().shutdown();
    }
}
