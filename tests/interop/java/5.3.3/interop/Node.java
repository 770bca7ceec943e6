// SPDX-License-Identifier: Apache-2.0
package interop;

import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/** Runs a name server or a broker: {@code namesrv|broker -c FILE}. Prints {@code started} when it listens. */
public final class Node {
    private Node() {
    }

    public static void main(String[] arguments) {
        String[] rest = {arguments[1], arguments[2]};
        if (arguments[0].equals("namesrv")) {
            NamesrvStartup.main(rest);
        } else {
            BrokerStartup.main(rest);
        }
        System.out.println("started");
    }
}
