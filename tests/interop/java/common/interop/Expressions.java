// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Filter expressions, without a store. */
final class Expressions {
    private Expressions() {
    }

    /** Returns for each expression a letter for each map of properties: T, F, N for null, E if it throws; or just C if it does not compile. */
    static JSONArray verdicts(JSONArray expressions, JSONArray maps) {
        JSONArray verdicts = new JSONArray();
        for (Object text : expressions) {
            verdicts.add(verdict((String) text, maps));
        }
        return verdicts;
    }

    private static String verdict(String text, JSONArray maps) {
        BooleanExpression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable refused) { // the lexer throws Errors, too
            return "C";
        }
        StringBuilder letters = new StringBuilder();
        for (Object map : maps) {
            letters.append(letter(expression, (JSONObject) map));
        }
        return letters.toString();
    }

    private static char letter(BooleanExpression expression, JSONObject properties) {
        try {
            Object value = expression.evaluate(new Properties(properties));
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : Boolean.FALSE.equals(value) ? 'F' : '?';
        } catch (Throwable thrown) {
            return 'E';
        }
    }

    private static final class Properties implements EvaluationContext {
        private final JSONObject properties;

        Properties(JSONObject properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.getString(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return null;
        }
    }
}
