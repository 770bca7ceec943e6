// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
// Whole packages: MessageExtBrokerInner is in the second one up to 4.9 and in the first one since 5.0.
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

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
            case "bench-ask":
                return benchAsk(job);
            case "bench-load":
                return benchLoad(job);
            case "ask":
                return ask(job);
            case "evaluate":
                return answers(Expressions.verdicts(job.getJSONArray("expressions"), job.getJSONArray("maps")));
            case "pull":
                return answers(Broker.pulls(job));
            case "clean":
                return answers(Cleaning.rounds(job));
            case "filters":
                return answers(Broker.filters(job));
            default:
                throw new IllegalArgumentException("no such job: " + job.getString("job"));
        }
    }

    private static JSONObject versions() {
        JSONObject result = new JSONObject();
        result.put("rocketmq", Main.VERSION);
        result.put("java", System.getProperty("java.version"));
        return result;
    }

    /** Opens a store, reports everything in it, and closes it. */
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

    /** Opens a store, asks it questions and closes it. */
    private static JSONObject ask(JSONObject job) throws Exception {
        try (Store store = Store.started(job)) {
            store.awaitDispatch();
            return answers(Questions.answers(store.messageStore, job.getJSONArray("questions")));
        }
    }

    /** Measures how long questions take, repeatedly in the same order; returns nanoseconds of CPU time per question, by round. */
    private static JSONObject benchAsk(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        JSONArray nanos = new JSONArray();
        JSONArray questions = job.getJSONArray("questions");
        try (Store store = Store.started(job)) {
            store.awaitDispatch();
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            for (int round = 0; round < job.getIntValue("rounds"); round++) {
                long begin = threads.getCurrentThreadCpuTime();
                for (Object question : questions) {
                    Questions.ask(store.messageStore, (JSONObject) question);
                }
                nanos.add((double) (threads.getCurrentThreadCpuTime() - begin) / questions.size());
            }
        }
        result.put("nanos", nanos);
        return result;
    }

    /** Measures how long a store takes to load, that is, to recover and to dispatch what is missing in queues and index. */
    private static JSONObject benchLoad(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        try (Store store = new Store(job)) {
            long begin = System.nanoTime();
            long beginCpu = threads.getCurrentThreadCpuTime();
            result.put("loaded", store.load());
            result.put("cpuSeconds", (threads.getCurrentThreadCpuTime() - beginCpu) / 1e9);
            result.put("seconds", (System.nanoTime() - begin) / 1e9);
            result.put("bounds", ReadBack.bounds(store.messageStore));
        }
        return result;
    }

    private static JSONObject answers(JSONArray answers) {
        JSONObject result = new JSONObject();
        result.put("answers", answers);
        return result;
    }

    /** Puts messages one by one into a store, which is created if it does not exist, and closes it. */
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

    /** Puts one message {@code count} times, with a pause after every {@code burst}, while others read the files. */
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

    /**
     * Measures how fast one thread puts messages. They are made beforehand, in chunks, so that the seconds are those of
     * putMessage alone.
     */
    private static JSONObject benchPut(JSONObject job) throws Exception {
        JSONObject result = new JSONObject();
        try (Store store = Store.started(job)) {
            putMany(store, job, job.getIntValue("warmUp"));
            long[] nanos = putMany(store, job, job.getIntValue("count"));
            result.put("seconds", nanos[0] / 1e9);
            result.put("cpuSeconds", nanos[1] / 1e9);
            result.put("dispatchedSeconds", nanos[2] / 1e9);
            result.put("bounds", ReadBack.bounds(store.messageStore));
        }
        return result;
    }

    /** Puts messages; returns nanoseconds in putMessage, of CPU time in it, and until queues have all messages. */
    private static long[] putMany(Store store, JSONObject job, int count) throws Exception {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        JSONArray templates = job.getJSONArray("messages");
        long[] nanos = new long[3];
        int size = job.getIntValue("chunk");
        for (int done = 0; done < count; done += size) {
            MessageExtBrokerInner[] chunk = new MessageExtBrokerInner[Math.min(size, count - done)];
            Arrays.setAll(chunk, number -> Messages.single(templates.getJSONObject(number % templates.size())));
            long begin = System.nanoTime();
            long beginCpu = threads.getCurrentThreadCpuTime();
            for (MessageExtBrokerInner message : chunk) {
                if (!store.messageStore.putMessage(message).isOk()) {
                    throw new IllegalStateException("a put was refused");
                }
            }
            nanos[1] += threads.getCurrentThreadCpuTime() - beginCpu;
            nanos[0] += System.nanoTime() - begin;
            store.awaitDispatch();
            nanos[2] += System.nanoTime() - begin;
        }
        return nanos;
    }
}
