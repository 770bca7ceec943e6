// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.store.PutMessageResult;

/** The jobs; tests/interop/README.md lists their fields. */
final class Jobs {
    private Jobs() {
    }

    static JSONObject run(JSONObject job) throws Exception {
        switch (job.getString("job")) {
            case "versions":
                return versions();
            case "open":
                return open(job);
            case "put":
                return put(job);
            case "live":
                return live(job);
            case "bench-put":
                return benchPut(job);
            default:
                throw new IllegalArgumentException("no such job: " + job.getString("job"));
        }
    }

    private static JSONObject versions() {
        JSONObject result = new JSONObject();
        result.put("rocketmq", Release.VERSION);
        result.put("java", System.getProperty("java.version"));
        return result;
    }

    /** Opens a store, tells all that is to be seen in it, and closes it. */
    private static JSONObject open(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        try (Store store = new Store(job)) {
            boolean loaded = store.load();
            result.put("loaded", loaded);
            result.put("afterLoad", ReadBack.bounds(store.messageStore));
            if (loaded) {
                store.start();
                result.put("dispatchBehindBytes", store.awaitDispatch());
                result.put("afterStart", ReadBack.bounds(store.messageStore));
                ReadBack.everything(store.messageStore, result);
            }
        }
        result.put("abortLeft", Store.abortFile(job).exists());
        return result;
    }

    /** Puts messages one after the other into a store, which is made if there is none, and closes it. */
    private static JSONObject put(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        try (Store store = Store.started(job)) {
            JSONArray answers = new JSONArray();
            for (Object message : job.getJSONArray("messages")) {
                answers.add(put(store, (JSONObject) message));
            }
            result.put("puts", answers);
            result.put("dispatchBehindBytes", store.awaitDispatch());
            ReadBack.everything(store.messageStore, result);
        }
        return result;
    }

    private static JSONObject put(Store store, JSONObject message) {
        try {
            return Messages.answer(Messages.put(store.messageStore, message));
        } catch (RuntimeException thrown) {
            JSONObject answer = new JSONObject();
            answer.put("thrown", thrown.toString());
            return answer;
        }
    }

    /** Puts one message {@code count} times, with a pause after every {@code burst}, while others look at the files. */
    private static JSONObject live(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        try (Store store = Store.started(job)) {
            int count = job.getIntValue("count");
            for (int number = 1; number <= count; number++) {
                PutMessageResult put = Messages.put(store.messageStore, job.getJSONObject("message"));
                if (!put.isOk()) {
                    throw new IllegalStateException("put " + number + ": " + put);
                }
                if (number % job.getIntValue("burst") == 0) {
                    TimeUnit.MILLISECONDS.sleep(job.getIntValue("pauseMs"));
                }
            }
            result.put("bounds", ReadBack.bounds(store.messageStore));
        }
        return result;
    }

    /** Measures how fast one thread puts messages of {@code bodySize} bytes, after {@code warmUp} puts unmeasured. */
    private static JSONObject benchPut(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        try (Store store = Store.started(job)) {
            byte[] body = new byte[job.getIntValue("bodySize")];
            JSONObject template = job.getJSONObject("message");
            putMany(store, template, body, job.getIntValue("warmUp"));
            long begin = System.nanoTime();
            putMany(store, template, body, job.getIntValue("count"));
            result.put("seconds", (System.nanoTime() - begin) / 1e9);
            result.put("count", job.getIntValue("count"));
            store.awaitDispatch();
            result.put("dispatchedSeconds", (System.nanoTime() - begin) / 1e9);
        }
        return result;
    }

    private static void putMany(Store store, JSONObject template, byte[] body, int count) {
        for (int number = 0; number < count; number++) {
            PutMessageResult put = store.messageStore.putMessage(Messages.fresh(template, body));
            if (!put.isOk()) {
                throw new IllegalStateException("put " + number + ": " + put);
            }
        }
    }
}
