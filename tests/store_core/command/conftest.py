# SPDX-License-Identifier: Apache-2.0
"""Small stores for the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from tests.builders import LogBuilder, Record
from tests.store_core.answers.test_golden_json import life_store

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000
CONFIG = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=8\nmaxIndexNum=40\n"


def messages(count: int = 40, segment_size: int = 2048) -> LogBuilder:
    """Make a log of several segments: topics orders and payments, two queues each, one message per ten minutes."""
    log = LogBuilder(segment_size)
    for number in range(count):
        topic = "payments" if number % 4 == 3 else "orders"
        properties = {"KEYS": f"k-{number} all", "TAGS": "ab"[number % 2], "UNIQ_KEY": f"{number:032X}"}
        stored = BEGIN_MS + number * HOUR_MS // 6
        record = Record(b"body-%d" % number, topic, properties, queue_id=number // 4 % 2)
        log.append(record, store_timestamp=stored)
    return log


@pytest.fixture
def log() -> LogBuilder:
    return messages()


@pytest.fixture
def store(log: LogBuilder, tmp_path: Path) -> Path:
    return log.write(tmp_path / "store", preallocated=1)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Write a broker's configuration with small files."""
    path = tmp_path / "broker.conf"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def closed(config: Path, tmp_path: Path) -> Path:
    """Make a store that was closed cleanly: two queues of a topic, with an index."""
    root = tmp_path / "closed"
    with DefaultMessageStore.open(root, MessageStoreConfig.from_properties(config)) as store:
        for number in range(30):
            store.put_message(Message("orders", b"body-%d" % number, queue_id=number % 2, keys=f"k-{number}"))
    return root


@pytest.fixture(scope="session")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store in which every command has something to say; no test changes it."""
    return life_store(tmp_path_factory.mktemp("life"))
