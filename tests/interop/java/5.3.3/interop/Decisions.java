// SPDX-License-Identifier: Apache-2.0
package interop;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends transactional messages and decides about them, at once or when the broker asks: {@code NAMESRV COUNT}.
 *
 * <p>Prints the events {@code sent}, {@code decided} (before the producer tells the broker) and {@code all}, and ends
 * with its input.
 */
public final class Decisions implements TransactionListener {
    /** By the last digit of a message's number: what is decided at once, and then each time that the broker asks. */
    private static final String[] PLANS = {"c", "r", "uc", "ur", "uuc", "uur", "c", "r", "u", "c"};

    private final Map<String, Integer> asked = new ConcurrentHashMap<>();

    private Decisions() {
    }

    public static void main(String[] arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("deciding");
        producer.setTransactionListener(new Decisions());
        Events.start(producer, arguments[0]);
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
            String key = "d" + number;
            Message message = new Message("Decided", "Tag", key, key.getBytes(StandardCharsets.UTF_8));
            Events.sent(key, producer.sendMessageInTransaction(message, null));
        }
        Events.print("all");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object nothing) {
        return decide(message.getKeys());
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return decide(message.getKeys());
    }

    private LocalTransactionState decide(String key) {
        int turn = asked.merge(key, 1, Integer::sum) - 1;
        String plan = PLANS[Integer.parseInt(key.substring(1)) % PLANS.length];
        char decision = plan.charAt(Math.min(turn, plan.length() - 1));
        Events.print("decided", "key", key, "turn", turn, "decision", String.valueOf(decision));
        return decision == 'c' ? LocalTransactionState.COMMIT_MESSAGE
            : decision == 'r' ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }
}
