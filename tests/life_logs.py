# SPDX-License-Identifier: Apache-2.0
"""Logs with what a broker writes for transactions, delays, retries and dead letters; nothing here is ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.builders import FIRST_STORE_TIMESTAMP, LogBuilder, Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


BEGIN: Final = FIRST_STORE_TIMESTAMP
"""Store time of the first record of a log, less one millisecond."""

HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
TIMER: Final = "rmq_sys_wheel_timer"
COMMIT: Final = 8


def message_id(record: Record) -> str:
    """Return the offset message id: address and port of the broker, and the physical offset."""
    return f"C0A8010200002A9F{record.physical_offset:016X}"


class LifeLog(LogBuilder):
    """A log into which a test writes what a broker writes."""

    def send(self, key: str, topic: str = "orders", body: bytes = b"{}", **more: Any) -> Record:  # noqa: ANN401 -- of Record
        """Append a message with a key and the unique key ``U-key``."""
        properties = {"KEYS": key, "UNIQ_KEY": f"U-{key}"} | dict(more.pop("properties", {}))
        return self.append(body, topic=topic, properties=properties, **more)

    def half(self, key: str, **properties: str) -> Record:
        """Append a half message of group ``shop``."""
        real = {"REAL_TOPIC": "orders", "REAL_QID": "3", "PGROUP": "shop", "TRAN_MSG": "true"}
        return self.send(key, HALF, properties=real | properties)

    def commit(self, half: Record, key: str, **more: Any) -> Record:  # noqa: ANN401 -- as above
        """Append the message of a committed half message."""
        more = {"sys_flag": COMMIT, "prepared_transaction_offset": half.physical_offset, "queue_id": 3} | more
        return self.send(key, **more)

    def op(self, *halves: Record) -> Record:
        """Append the record that settles half messages."""
        body = "".join(f"{half.queue_offset}," for half in halves).encode()
        return self.append(body, topic=OP, properties={"WAIT": "true", "TAGS": "d"})

    def delayed(self, key: str, level: int, topic: str = "orders", **more: Any) -> Record:  # noqa: ANN401 -- as above
        """Append a message that waits in the queue of its level."""
        real = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": "0"} | dict(more.pop("properties", {}))
        return self.send(key, SCHEDULE, queue_id=level - 1, properties=real, **more)

    def timer(self, key: str, due: int, **more: Any) -> Record:  # noqa: ANN401 -- as above
        """Append a timer that is due at a time in ms."""
        real = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": "orders", "REAL_QID": "0"} | dict(more.pop("properties", {}))
        return self.send(key, TIMER, properties=real, **more)

    def failed(self, sent: Record, key: str, group: str, attempt: int) -> Record:
        """Append what a broker does with a message that a consumer sends back: it waits, then it is tried again."""
        properties = {"RETRY_TOPIC": _text(sent.topic), "ORIGIN_MESSAGE_ID": message_id(sent)}
        retry: dict[str, Any] = {"properties": properties, "reconsume_times": attempt}
        self.delayed(key, attempt + 2, f"%RETRY%{group}", **retry)
        return self.send(key, f"%RETRY%{group}", **retry)

    def dead(self, sent: Record, key: str, group: str, attempt: int = 16, **properties: str) -> Record:
        """Append the dead letter that a message becomes after its last attempt."""
        origin = {"RETRY_TOPIC": _text(sent.topic), "ORIGIN_MESSAGE_ID": message_id(sent)}
        return self.send(key, f"%DLQ%{group}", sent.body, properties=origin | properties, reconsume_times=attempt)


def _text(topic: str | bytes) -> str:
    return topic if isinstance(topic, str) else topic.decode()


def write_config(root: Path, **files: Mapping[str, Any]) -> None:
    """Write configuration files of a broker; a name such as ``delayOffset`` is that of a file."""
    (root / "config").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / "config" / f"{name}.json").write_text(json.dumps(content))
