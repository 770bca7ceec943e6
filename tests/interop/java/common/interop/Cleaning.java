// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The rounds in which a broker deletes files. */
final class Cleaning {
    private static final String[] SERVICES = {"cleanCommitLogService", "cleanConsumeQueueService"};

    private Cleaning() {
    }

    /**
     * Opens a store, and lets both services do some rounds: returns the files that are there before, and after each.
     *
     * <p>{@code properties} become those of the system: some settings of 4.x are read there.
     */
    static JSONArray rounds(JSONObject job) throws Exception {
        for (Map.Entry<String, Object> each : job.getJSONObject("properties").entrySet()) {
            System.setProperty(each.getKey(), (String) each.getValue());
        }
        JSONArray answers = new JSONArray();
        try (Store store = Store.started(job)) {
            store.awaitDispatch();
            answers.add(files(job.getString("store")));
            for (int round = 0; round < job.getIntValue("rounds"); round++) {
                for (String service : SERVICES) {
                    run(store, service);
                }
                answers.add(files(job.getString("store")));
            }
        }
        return answers;
    }

    private static void run(Store store, String name) throws Exception {
        Object service = service(store.messageStore, name);
        if (service == null) { // since 5.4 the queues have the second one
            service = service(store.messageStore.getClass().getMethod("getQueueStore").invoke(store.messageStore), name);
        }
        Method run = service.getClass().getMethod("run");
        run.setAccessible(true);
        run.invoke(service);
    }

    private static Object service(Object owner, String name) throws Exception {
        for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(owner);
                }
            }
        }
        return null;
    }

    private static List<String> files(String root) throws IOException {
        Path top = new File(root).toPath();
        try (Stream<Path> paths = Files.walk(top)) {
            return paths.filter(Files::isRegularFile).map(path -> top.relativize(path).toString())
                .filter(path -> path.matches("(commitlog|consumequeue|index)/.*")).sorted().collect(Collectors.toList());
        }
    }
}
