// SPDX-License-Identifier: Apache-2.0
package interop;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.DefaultHAService;

/** The service for replicas, on the loopback address: RocketMQ has no setting for it, but lets the class be chosen. */
public final class LoopbackHa extends DefaultHAService {
    @Override
    public void init(DefaultMessageStore store) throws IOException {
        super.init(store);
        int port = store.getMessageStoreConfig().getHaListenPort();
        try {
            Field address = field(acceptSocketService, "socketAddressListen");
            address.set(acceptSocketService, new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        } catch (ReflectiveOperationException changed) {
            throw new IOException(changed);
        }
    }

    private static Field field(Object owner, String name) throws NoSuchFieldException {
        for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new NoSuchFieldException(name);
    }
}
