// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Runs jobs on stores of a real RocketMQ.
 *
 * <p>Each line of standard input is a job, a JSON object with an {@code id}; each line of standard output is the answer
 * to one, {@code {"id": ..., "result": ...}} or {@code {"id": ..., "error": ...}}. Jobs run concurrently and answers
 * are written when they are ready, because a store sleeps for seconds while it shuts down. The process ends with its input.
 */
public final class Main {
    /** The RocketMQ release that this runs on; whoever starts it says so. */
    static final String VERSION = System.getProperty("interop.version");

    private static final SerializerFeature[] FEATURES = {
        SerializerFeature.DisableCircularReferenceDetect,
        SerializerFeature.WriteMapNullValue,
    };

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "US-ASCII");
        System.setOut(System.err); // output of libraries must not get between the answers
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            JSONObject job = JSON.parseObject(line);
            workers.execute(() -> {
                String answer = ascii(JSON.toJSONString(answer(job), FEATURES));
                synchronized (answers) {
                    answers.println(answer);
                }
            });
        }
        Runtime.getRuntime().halt(0); // a store that is still open is left as a crash would leave it
    }

    private static JSONObject answer(JSONObject job) {
        JSONObject answer = new JSONObject();
        answer.put("id", job.get("id"));
        try {
            answer.put("result", Jobs.run(job));
        } catch (Throwable thrown) {
            StringWriter trace = new StringWriter();
            thrown.printStackTrace(new PrintWriter(trace));
            answer.put("error", trace.toString());
        }
        return answer;
    }

    /** Escapes what is not ASCII, so that lone surrogates survive. */
    private static String ascii(String json) {
        StringBuilder escaped = new StringBuilder(json.length());
        json.chars().forEach(unit -> {
            if (unit < 0x7f) {
                escaped.append((char) unit);
            } else {
                escaped.append(String.format("\\u%04x", unit));
            }
        });
        return escaped.toString();
    }
}
