# SPDX-License-Identifier: Apache-2.0
"""A small store with something for every view, and short forms of read_view for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, StoreError, read_view
from tests.builders import Timer, write_timers

if TYPE_CHECKING:
    from pathlib import Path


SEGMENT_SIZE = 4096
FILE_SIZE = 400
"""Bytes of a queue's file: 20 units."""

_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=SEGMENT_SIZE,
    mapped_file_size_consume_queue=FILE_SIZE,
    max_hash_slot_num=10,
    max_index_num=40,
)

CONSUMER_OFFSETS = """{
\t"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},
\t"groupTopicMap":{"billing":["orders"]},
\t"offsetTable":{
\t\t"orders@billing":{0:10,1:30},
\t\t"orders@audit":{1:99,7:3},
\t\t"gone@billing":{0:5},
\t\t"no separator":{0:1}
\t}
}"""

_TOPICS = """{
\t"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},
\t"topicConfigTable":{
\t\t"orders":{"attributes":{"+message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":4,
\t\t\t"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":8},
\t\t"idle":{"order":false,"perm":4,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"idle",
\t\t\t"topicSysFlag":0,"writeQueueNums":1}
\t}
}"""

_GROUPS = """{
\t"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},
\t"subscriptionGroupTable":{
\t\t"billing":{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,"consumeFromMinEnable":true,
\t\t\t"groupName":"billing","retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}
\t}
}"""


def make_viewed_store(root: Path) -> Path:
    """Write 90 messages: 30 in each of `orders`/0 and `orders`/1, and 30 in `payments`/0; then the configuration."""
    with DefaultMessageStore.open(root, _CONFIG) as store:
        for number in range(90):
            topic, queue_id = (("orders", 0), ("orders", 1), ("payments", 0))[number % 3]
            result = store.put_message(Message(topic, b"body", queue_id=queue_id, tags="TagA", keys=[f"k{number}"]))
            assert result.append_message_result is not None
    write_config(root, "consumerOffset.json", CONSUMER_OFFSETS)
    write_config(root, "topics.json", _TOPICS)
    write_config(root, "subscriptionGroup.json", _GROUPS)
    write_config(root, "delayOffset.json", '{"offsetTable":{12:7,3:30}}')
    write_timers(root, [Timer(1000 + number % 3, 900) for number in range(30)], 1001)
    return root


def write_config(root: Path, name: str, text: str) -> Path:
    """Write a configuration file, and return its path."""
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


Rows = list[dict[str, Any]]


def rows_of(path: Path, view: str, columns: str | list[str] | None = None, **options: Any) -> Rows:  # noqa: ANN401 -- as of `read_view`
    """Return all rows."""
    found: Rows = read_view(path, view, columns, **options).read_all().to_pylist()
    return found


def column(path: Path, view: str, name: str, **options: Any) -> list[Any]:  # noqa: ANN401 -- as of `read_view`
    """Return the values of one column."""
    return [row[name] for row in rows_of(path, view, name, **options)]


def refusal(path: Path | str, view: str, columns: str | None = None, **options: Any) -> StoreError:  # noqa: ANN401 -- as of `read_view`
    """Return the error with which a view is refused."""
    with pytest.raises(StoreError) as refused:
        read_view(path, view, columns, **options).read_all()
    return refused.value


def refusal_if_any(path: Path, view: str, otherwise: str) -> str:
    """Return the text of the error with which a view is refused, or another text; only errors of a store are caught."""
    try:
        read_view(path, view).read_all()
    except StoreError as error:
        return str(error)
    return otherwise
