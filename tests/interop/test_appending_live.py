# SPDX-License-Identifier: Apache-2.0
"""RocketMQ finds what was appended to the store of a real broker by its keys, if it reads the index in its sizes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from store_core import DefaultMessageStore, read_messages
from store_core.format.message import Message
from tests.golden_stores import find_golden_store, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

_TOPIC: Final = "LiveTopic"
_SIZES: Final = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}
"""How the broker was configured."""

_EVER: Final = (1 << 63) - 1
_COUNT: Final = 40


def _question(key: str) -> Answer:
    return {"kind": "key", "topic": _TOPIC, "key": key, "most": 32, "begin": 0, "end": _EVER}


def put(store: DefaultMessageStore) -> None:
    for number in range(_COUNT):
        assert store.put_message(Message(_TOPIC, b"body", queue_id=number % 4, keys=f"appended-{number}")).is_ok


def append(store: DefaultMessageStore) -> None:
    columns = {
        "topic": [_TOPIC] * _COUNT,
        "queue_id": pa.array([number % 4 for number in range(_COUNT)], pa.int32()),
        "body": pa.array([b"body"] * _COUNT, pa.binary()),
        "keys": [[f"appended-{number}"] for number in range(_COUNT)],
    }
    assert store.append_batch(pa.table(columns)).is_ok


@pytest.mark.parametrize("add", [put, append])
def test_keys_appended_to_the_store_of_a_broker_are_found(
    add: Callable[[DefaultMessageStore], None], judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    store, judge = unpack(find_golden_store("5.3.3/live"), tmp_path).root, judge_of("5.3")
    old = [row["keys"][0] for row in read_messages(store, topic=_TOPIC, columns=["keys"]).read_all().to_pylist()[-20:]]
    with DefaultMessageStore.open(store) as opened:
        add(opened)
    questions = [_question(key) for key in (*old, *(f"appended-{number}" for number in range(_COUNT)))]
    asked = judge.ask(shutil.copytree(store, tmp_path / "asked"), questions, **_SIZES)
    others = _SIZES | {"maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000}  # what brokers have by default
    missed = judge.ask(shutil.copytree(store, tmp_path / "missed"), questions, **others)

    found = [len(answer["physicalOffsets"]) for answer in asked.result()["answers"]]
    assert [1] * _COUNT == found[len(old) :]
    assert min(found[: len(old)]) >= 1
    assert 0 == sum(len(answer["physicalOffsets"]) for answer in missed.result()["answers"])
