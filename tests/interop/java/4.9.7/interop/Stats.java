// SPDX-License-Identifier: Apache-2.0
package interop;

import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Statistics of brokers. */
final class Stats {
    /** One for all stores: each has threads that nothing ends. */
    static final BrokerStatsManager OF_ALL = new BrokerStatsManager("interop", false);

    private Stats() {
    }
}
