# SPDX-License-Identifier: Apache-2.0
"""What RocketMQ does with a damaged log whose queues were rebuilt across the damage."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.builders import MAGIC_AT, LogBuilder
from tests.connector.called import rebuild_consume_queue
from tests.interop.handed import ask_copy, hand_over, role
from tests.interop.judge import Judge, our_small_config
from tests.interop.questions import our_answers
from tests.interop.scenarios import each_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.rocketmq import Answer

_SEGMENT: Final = 8192
_DONE_DAMAGED: Final = 5
_SETTINGS: Final[dict[str, Any]] = {"mappedFileSizeCommitLog": _SEGMENT, "batch_topics": []}


def _log(release: str, start_offset: int) -> LogBuilder:
    """Build a log of nine segments with one queue, as a release separates properties."""
    log = LogBuilder(segment_size=_SEGMENT, start_offset=start_offset)
    while log.end - start_offset < 8 * _SEGMENT + _SEGMENT // 2:
        number = len(log.records)
        end = b"" if release == "4.9" else b"\x02"
        log.append(b"x" * 200, topic="t", queue_offset=number, properties=b"TAGS\x01%c" % b"AB"[number % 2] + end)
    return log


def _in_segment(log: LogBuilder, segment: int) -> list[int]:
    """Return the queue offsets of the records of a segment."""
    begin = log.start_offset + segment * _SEGMENT
    return [record.queue_offset for record in log.records if begin <= record.physical_offset < begin + _SEGMENT]


def _rebuilt(log: LogBuilder, lost: list[int], directory: Path, release: str) -> Path:
    for offset in lost:
        log.patch(log.records[offset].physical_offset + MAGIC_AT, b"\xff\xff\xff\xff")
    store = log.write(directory / "store")
    sizes = ("--consume-queue-file-size", "800", "--hash-slot-num", "100", "--index-num", "400")
    options = ("--with-index", "--replace", "--discard-old", "--accept-damage", "--release", release)
    assert _DONE_DAMAGED == rebuild_consume_queue([str(store), *options, *sizes])
    return store


def _get(offset: int, most: int, tag: str | None = None) -> Answer:
    kind = None if tag is None else "TAG"
    return {
        "kind": "get",
        "topic": "t",
        "queueId": 0,
        "offset": offset,
        "most": most,
        "filterType": kind,
        "filter": tag,
    }


@pytest.mark.parametrize("release", each_release())
@pytest.mark.parametrize("start_offset", [0, 3 * _SEGMENT])
def test_rocketmq_serves_what_is_before_and_after_damage(
    release: str, start_offset: int, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    judge, log = judge_of(release), _log(release, start_offset)
    first, second, last = (_in_segment(log, number) for number in (0, 1, 2))
    inside = first[10:13]
    border = [*second[-2:], *last[:2]]
    lost = sorted({*inside, *border})
    store = _rebuilt(log, lost, tmp_path, release)
    config = our_small_config(release, _SEGMENT)
    handed = hand_over("salvaged", store, config, judge, _SETTINGS)
    places = {record.queue_offset: record.physical_offset for record in log.records}
    served = [places[offset] for offset in places if offset not in lost]
    again = [places[inside[0] - 1]] * len(inside)
    at = served.index(again[0]) + 1

    assert handed.change is None  # RocketMQ keeps every file, and the log to its end
    assert {("t", 0): (0, len(places), served[:at] + again + served[at:])} == handed.queues
    questions = [
        _get(inside[0] - 3, 8),
        _get(inside[1], 1),
        _get(inside[-1] + 1, 4),
        _get(inside[0] - 3, 8, "A"),
        _get(border[0] - 2, 8),
        _get(border[1], 4),
        *(
            {"kind": "time", "topic": "t", "queueId": 0, "time": time, "boundary": "LOWER"}
            for time in _times(log, lost)
        ),
        {"kind": "bounds", "topic": "t", "queueId": 0},
    ]
    theirs = ask_copy(judge, store, questions, _SETTINGS).result()["answers"]
    assert our_answers(store, config, questions) == theirs


def _times(log: LogBuilder, lost: list[int]) -> list[int]:
    return [log.records[offset].store_timestamp for offset in (lost[0] - 1, lost[2] + 1, lost[-1] + 1)]


@pytest.mark.parametrize(("release", "segment"), [("4.3", 6), ("4.9", 6), ("5.5", 8)])
def test_rocketmq_cuts_the_log_at_damage_that_its_recovery_comes_by(
    release: str, segment: int, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    judge, log = judge_of(release), _log(release, 0)
    bad = _in_segment(log, segment)[5]
    store = _rebuilt(log, [bad], tmp_path, release)
    answer = judge.open(shutil.copytree(store, store.with_name("opened")), **_SETTINGS, **role(judge)).result()

    assert log.records[bad].physical_offset == answer["afterStart"]["max"]
