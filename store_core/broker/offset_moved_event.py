# SPDX-License-Identifier: Apache-2.0
"""The event that a pull's offset was moved, because it is not in the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.broker.config_json import write_config
from store_core.format.message import Message
from store_core.format.properties import KEYS, TAGS
from store_core.format.property_string import DELAY, PropertyMap

if TYPE_CHECKING:
    from store_core.broker.config_json import JsonObject

__all__ = ["OFFSET_MOVED_EVENT", "OffsetMovedEvent"]

OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
"""Topic of the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMovedEvent:
    """A pull whose offset was moved (RocketMQ: ``OffsetMovedEvent``); 4.x stores it, 5.x only logs it.

    Attributes
    ----------
    consumer_group, topic, broker_name : str
    queue_id : int
    offset_request, offset_new : int
        The requested offset, and the one that the consumer is sent to.
    """

    consumer_group: str
    topic: str
    broker_name: str
    queue_id: int
    offset_request: int
    offset_new: int

    def encode(self) -> bytes:
        """Encode it as fastjson encodes RocketMQ's class.

        Examples
        --------
        >>> OffsetMovedEvent(
        ...     consumer_group="g", topic="orders", broker_name="b", queue_id=1, offset_request=9, offset_new=5
        ... ).encode().decode()
        '{"consumerGroup":"g","messageQueue":{"brokerName":"b","queueId":1,"topic":"orders"},"offsetNew":5,"offsetRequest":9}'
        """
        queue: JsonObject = {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}
        event: JsonObject = {
            "consumerGroup": self.consumer_group,
            "messageQueue": queue,
            "offsetNew": self.offset_new,
            "offsetRequest": self.offset_request,
        }
        return _on_one_line(event).encode()

    def to_message(self, broker_host: tuple[str, int], now_ms: int) -> Message:
        """Return the message that a 4.x broker stores (``PullMessageProcessor.generateOffsetMovedEvent``).

        Parameters
        ----------
        broker_host : tuple of str and int
            Used as born host and as store host.
        now_ms : int
            Born timestamp.
        """
        # DELAY comes from a call of setDelayTimeLevel(0), between the other two in the Java map's history.
        properties = PropertyMap({TAGS: self.consumer_group, DELAY: "0", KEYS: self.consumer_group})
        return Message(
            OFFSET_MOVED_EVENT,
            self.encode(),
            properties=properties,
            born_timestamp=now_ms,
            born_host=broker_host,
            store_host=broker_host,
        )


def _on_one_line(members: JsonObject) -> str:
    parts = []
    for key, value in members.items():
        shown = _on_one_line(dict(value.items())) if isinstance(value, dict) else write_config(value)
        parts.append(f"{write_config(key)}:{shown}")
    return "{" + ",".join(parts) + "}"
