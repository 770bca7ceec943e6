// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.util.TypeUtils;
import java.io.File;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A store directory opened by RocketMQ, from the fields {@code store}, {@code config} and others of a job. */
final class Store implements AutoCloseable {
    private static final long DISPATCH_LIMIT_NANOS = 60_000_000_000L;

    final DefaultMessageStore messageStore;

    Store(JSONObject job) throws Exception {
        messageStore = Release.newStore(config(job), strings(job.getJSONArray("batchTopics")), job.getBooleanValue("broker"));
    }

    static MessageStoreConfig config(JSONObject job) throws Exception {
        String root = job.getString("store");
        Files.createDirectories(new File(root).toPath());
        MessageStoreConfig config = new MessageStoreConfig();
        set(config, "storePathRootDir", root);
        set(config, "storePathCommitLog", root + "/commitlog");
        setAll(config, job.getJSONObject("config"));
        return config;
    }

    /** Calls the setters of an object. */
    static void setAll(Object config, JSONObject settings) throws Exception {
        for (Map.Entry<String, Object> setting : settings.entrySet()) {
            set(config, setting.getKey(), setting.getValue());
        }
    }

    /** Returns a store that accepts messages. */
    static Store started(JSONObject job) throws Exception {
        Store store = new Store(job);
        if (!store.load()) {
            throw new IllegalStateException("load() is false");
        }
        store.start();
        return store;
    }

    static File abortFile(JSONObject job) {
        return new File(job.getString("store"), "abort");
    }

    boolean load() {
        return messageStore.load();
    }

    void start() throws Exception {
        messageStore.start();
    }

    /** Waits until queues and index have all messages; returns the bytes that are left if they never do. */
    long awaitDispatch() throws InterruptedException {
        long limit = System.nanoTime() + DISPATCH_LIMIT_NANOS;
        while (messageStore.dispatchBehindBytes() > 0 && System.nanoTime() < limit) {
            Thread.sleep(1);
        }
        return messageStore.dispatchBehindBytes();
    }

    @Override
    public void close() {
        messageStore.shutdown();
    }

    private static List<String> strings(JSONArray array) {
        List<String> strings = new ArrayList<>();
        if (array != null) {
            array.forEach(item -> strings.add((String) item));
        }
        return strings;
    }

    /** Calls the setter of a setting, under its name up to 4.3 ("maped") if there is none under today's. */
    private static void set(Object config, String name, Object value) throws Exception {
        Method setter = setter(config, name);
        if (setter == null) {
            setter = setter(config, name.replace("mappedFile", "mapedFile"));
        }
        if (setter == null) {
            throw new IllegalArgumentException(Main.VERSION + " has no setting " + name + " that takes " + value);
        }
        setter.invoke(config, TypeUtils.castToJavaBean(value, setter.getParameterTypes()[0]));
    }

    private static Method setter(Object config, String name) {
        String method = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method candidate : config.getClass().getMethods()) {
            boolean named = candidate.getName().equals(method) && candidate.getParameterCount() == 1;
            if (named && !candidate.getParameterTypes()[0].isEnum()) { // settings with an enum have a second setter for text
                return candidate;
            }
        }
        return null;
    }
}
