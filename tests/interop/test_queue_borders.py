# SPDX-License-Identifier: Apache-2.0
"""Queue offsets at the limits of a queue: we index a record if RocketMQ serves it at its offset."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from store_core import DefaultMessageStore
from store_core.queue.queue_assignment import index_limit, index_refusal
from tests.builders import LogBuilder
from tests.interop.handed import derived_files, role
from tests.interop.judge import Judge, our_small_config
from tests.interop.questions import our_answer
from tests.interop.rocketmq import Answer, JobFailedError
from tests.interop.scenarios import SEGMENT_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from store_core import MessageStoreConfig
    from store_core.queue.queue_path import QueueRules

_EVER: Final = 2**63 - 1
_LAST_UNIT: Final = _EVER // 20
"""Last index whose unit begins within the range of Java's ``long``; its file may end beyond."""

_UNLOADED: Final = (-1, _LAST_UNIT + 1, 2**61, 2**63 - 1)
"""Queue offsets with which release 5.3 makes an empty file or one of a negative name, and then can't load the store."""


def _borders(rules: QueueRules) -> list[int]:
    limit = index_limit(rules)
    found = {0, 2**57 - 1, 2**57, 2**58, limit - 1, limit, limit + 1, _LAST_UNIT, _LAST_UNIT + 1}
    return sorted(found | {-(2**63), -1, 2**60, 2**61, 2**62, 2**63 - 1})


def _crashed_store(root: Path, queue_offset: int) -> tuple[Path, int]:
    """Write a log without queues: a record of that queue offset, and one of another queue; return where that one is."""
    log = LogBuilder(SEGMENT_SIZE)
    log.append(b"body", topic="border", queue_offset=queue_offset, properties={"KEYS": "k"})
    other = log.append(b"body", topic="other", properties={"KEYS": "k"}).physical_offset
    log.write(root).joinpath("abort").touch()
    return root, other


def _questions(queue_offset: int) -> list[Answer]:
    get: Answer = {"kind": "get", "queueId": 0, "most": 32, "filterType": None, "filter": None}
    key: Answer = {"kind": "key", "topic": "border", "key": "k", "most": 64, "begin": 0, "end": _EVER}
    return [{**get, "topic": "border", "offset": queue_offset}, {**get, "topic": "other", "offset": 0}, key]


def _ours(store: Path, config: MessageStoreConfig, questions: Sequence[Answer]) -> list[Answer]:
    """Let our store recover, which dispatches its log, and answer."""
    with DefaultMessageStore.open(store, config) as opened:
        return [our_answer(opened, question) for question in questions]


def _theirs(asked: Future[Answer]) -> list[Answer] | None:
    """Return RocketMQ's answers; None if it does not even load the store that it dispatched the log into."""
    try:
        answers: list[Answer] = asked.result()["answers"]
    except JobFailedError as error:
        assert "load() is false" in str(error)  # noqa: PT017 -- other failures are failures
        return None
    return answers


def _served(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer["physicalOffsets"] for answer in answers]


def _units(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in derived_files(store).items() if name.startswith("consumequeue/border")}


@pytest.mark.interop
def test_an_index_is_taken_if_rocketmq_serves_its_record_by_it(judge: Judge, tmp_path: Path) -> None:
    config = our_small_config(judge.release)
    rules = config.queue_rules()
    stores = {offset: _crashed_store(tmp_path / f"{offset}", offset) for offset in _borders(rules)}
    copies = {offset: shutil.copytree(store, tmp_path / f"{offset}-ours") for offset, (store, _) in stores.items()}
    asked = {offset: judge.ask(store, _questions(offset), **role(judge)) for offset, (store, _) in stores.items()}
    unloaded = set()

    for offset, (store, other) in stores.items():
        ours, theirs = _ours(copies[offset], config, _questions(offset)), _theirs(asked[offset])
        is_taken = index_refusal(offset, rules) is None
        expected = [[0] if is_taken else [], [other], [0]]
        assert (offset, _served(ours)) == (offset, expected)
        assert (offset, _units(copies[offset])) == (offset, _units(store) if is_taken else {})
        if theirs is not None:
            assert (offset, _served(theirs)) == (offset, expected)
        else:
            unloaded.add(offset)
    assert unloaded == (set(_UNLOADED) if judge.release == "5.3" else set())
