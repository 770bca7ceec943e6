# SPDX-License-Identifier: Apache-2.0
"""Which queues get a record, at all limits, many at once as one by one; no name leads out of the store."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.format.properties import decode_text
from store_core.format.release import Release
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, QueueNumbering, RequestBatch
from store_core.queue.dispatch.stored_batch import QueueNumbers
from store_core.queue.queue_assignment import (
    AssignedUnit,
    Assignment,
    RefusedUnit,
    UnitRows,
    assign,
    assign_batch,
    batch_refusal,
    fitting_batches,
    index_limit,
    lmq_units,
)
from store_core.queue.queue_path import QueueRules, parse_queue_id, queue_path, refusal_of, split_names
from tests.store_core.queue.dispatch_logs import log_requests

RULES = QueueRules(
    consume_queue_file_size=100,
    batch_topics=frozenset({"B"}),
    is_multi_dispatch_enabled=True,
    is_lmq_enabled=True,
)
LARGEST = 2**63 - 1
RELEASES: tuple[Release, ...] = get_args(Release)


def request(topic: str = "T", queue_id: int = 0, index: int = 0, **values: object) -> DispatchRequest:
    made = DispatchRequest(topic, queue_id, 1000, 100, 5, 10, index, message_base_offset=index)
    return replace(made, **values)  # type: ignore[arg-type]  # fields of a request


def lists(names: str, indexes: str) -> dict[str, str]:
    return {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": indexes}


def reasons(assigned: Assignment) -> list[tuple[str, str]]:
    return [(unit.topic, unit.reason) for unit in assigned.refused]


# ---- the definition


@pytest.mark.parametrize("index", [0, 2**31, 2**57 - 1, 2**57, 2**58, LARGEST // 100 * 5 - 1])
@pytest.mark.parametrize("release", RELEASES)
def test_every_index_whose_file_ends_below_the_largest_offset_is_taken(index: int, release: Release) -> None:
    assigned = assign(request(index=index), replace(RULES, release=release))

    assert assigned == Assignment((AssignedUnit("T", 0, index),))


@pytest.mark.parametrize("index", [-1, -(2**63), LARGEST // 100 * 5, 2**61, 2**62, LARGEST])
@pytest.mark.parametrize("release", RELEASES)
def test_an_index_without_a_place_is_refused(index: int, release: Release) -> None:
    assigned = assign(request(index=index, properties=lists("%LMQ%a", "0")), replace(RULES, release=release))
    last = LARGEST // 100 * 5 - 1

    assert assigned.units == ()
    assert reasons(assigned) == [("T", f"queue offset {index} can't be indexed, expected 0 to {last}")]


def test_the_limit_depends_on_the_size_of_the_files() -> None:
    assert [index_limit(replace(RULES, consume_queue_file_size=size)) for size in (20, 30, 6_000_000)] == [
        LARGEST // 20,
        LARGEST // 40 * 2,
        LARGEST // 6_000_000 * 300_000,
    ]


@pytest.mark.parametrize(
    ("base", "size", "is_taken"),
    [
        (0, 0, True),
        (2**57, 1, True),
        (LARGEST - 1, 1, True),
        (LARGEST - 32767, 32767, True),
        (LARGEST, 1, False),
        (LARGEST - 32766, 32767, False),
        (-1, 1, False),
        (0, -1, False),
        (0, 32768, False),
    ],
)
def test_a_batch_has_a_unit_if_its_numbers_do_not_overflow(base: int, size: int, is_taken: bool) -> None:
    found = fitting_batches(np.array([base], np.int64), np.array([size], np.int32))

    assert (batch_refusal(base, size) is None) == is_taken
    assert found.tolist() == [is_taken]


def test_a_batch_topic_goes_by_its_first_message_and_has_no_light_queues() -> None:
    batched = request("B", index=-7, message_base_offset=2**60, batch_size=3, properties=lists("%LMQ%a", "0"))

    assert assign(batched, RULES) == Assignment((AssignedUnit("B", 0, 2**60),))


@pytest.mark.parametrize("kind", [4, 12])
def test_prepared_and_rolled_back_messages_are_in_no_queue_and_not_refused(kind: int) -> None:
    assert assign(request("..", -1, -1, sys_flag=kind), RULES) == Assignment()


@pytest.mark.parametrize(("topic", "queue_id"), [("", 0), ("..", 0), ("a/b", 0), ("x" * 256, 0), ("T", -1)])
def test_a_name_that_can_be_no_directory_is_refused_before_the_index_is_looked_at(topic: str, queue_id: int) -> None:
    assigned = assign(request(topic, queue_id, -1), RULES)

    assert assigned.units == ()
    assert [unit[:3] for unit in assigned.refused] == [(topic, queue_id, 1000)]
    assert "queue offset" not in assigned.refused[0].reason


def test_a_light_queue_that_can_not_be_leaves_the_others() -> None:
    names = "%LMQ%a,B,..,%LMQ%b,T,%LMQ%c"
    assigned = assign(request(queue_id=3, properties=lists(names, f"{2**58},0,0,{2**62},{2**57},-1")), RULES)

    assert assigned.units == (
        AssignedUnit("T", 3, 0),
        AssignedUnit("%LMQ%a", 0, 2**58),
        AssignedUnit("T", 3, 2**57),
    )
    assert [(unit.topic, unit.queue_id) for unit in assigned.refused] == [
        ("B", 3), ("..", 3), ("%LMQ%b", 0), ("%LMQ%c", 0),
    ]  # fmt: skip
    assert assigned.refused[0].reason == "a batch queue can't be a light one"


@pytest.mark.parametrize(
    ("names", "indexes"), [("a,b", "1,"), ("b,a", ",2"), ("a", "1,2"), ("a", "x"), ("a", str(2**63))]
)
def test_lists_that_do_not_fit_leave_the_own_unit(names: str, indexes: str) -> None:
    assigned = assign(request(properties=lists(names, indexes)), RULES)

    assert assigned.units == (AssignedUnit("T", 0, 0),)
    assert [unit[:3] for unit in assigned.refused] == [("T", 0, 1000)]
    assert "INNER_MULTI" in assigned.refused[0].reason


# ---- many at once


def one_by_one(
    requests: list[DispatchRequest], rules: QueueRules
) -> tuple[list[tuple[object, ...]], list[RefusedUnit]]:
    """Apply the definition to each record: units with the row of their record, and what is refused."""
    units: list[tuple[object, ...]] = []
    refused: list[RefusedUnit] = []
    for row, each in enumerate(requests):
        assigned = assign(each, rules)
        units += [(row, *unit, place > 0) for place, unit in enumerate(assigned.units)]
        refused += assigned.refused
    return units, refused


def together(
    requests: list[DispatchRequest], rules: QueueRules, known: QueueNumbering
) -> tuple[list[tuple[object, ...]], list[RefusedUnit]]:
    batch = RequestBatch(requests)
    assigned = assign_batch(batch, rules, known)
    units = UnitRows.of(batch, assigned)
    queues = [assigned.queues[code] for code in units.code.tolist()]
    assert sorted({assigned.queues[code] for code in assigned.used_codes}) == sorted(set(queues))
    bases = units.message_base_offset.tolist()
    indexes = [
        base if topic in rules.batch_topics else index
        for (topic, _), base, index in zip(queues, bases, units.queue_offset.tolist(), strict=True)
    ]
    rows, light = units.row.tolist(), units.is_light.tolist()
    found = [(row, *queue, *rest) for row, queue, *rest in zip(rows, queues, indexes, light, strict=True)]
    return found, assigned.refused


@given(log_requests(), st.sampled_from(RELEASES), st.booleans(), st.booleans(), st.booleans())
def test_a_batch_is_assigned_as_its_records_one_by_one(
    requests: list[DispatchRequest], release: Release, has_lists: bool, is_lmq: bool, has_batches: bool
) -> None:
    rules = replace(
        RULES,
        release=release,
        is_multi_dispatch_enabled=has_lists,
        is_lmq_enabled=is_lmq,
        batch_topics=RULES.batch_topics if has_batches else frozenset(),
    )
    expected = one_by_one(requests, rules)
    known = QueueNumbering({unit[1:3]: 0 for unit in expected[0]})  # type: ignore[misc]  # topic and id

    assert together(requests, rules, QueueNumbering()) == expected
    assert together(requests, rules, known) == expected


def _rules(release: Release = "5.3", *, multi: bool = True, lmq: bool = True) -> QueueRules:
    return QueueRules(release=release, is_multi_dispatch_enabled=multi, is_lmq_enabled=lmq)


@pytest.mark.parametrize(
    ("names", "offsets", "rules", "units"),
    [
        ("%LMQ%a,%LMQ%b", "7,+08", _rules(), [("%LMQ%a", 0, 7), ("%LMQ%b", 0, 8)]),
        ("%LMQ%a,b", "1,2", _rules("4.9"), [("%LMQ%a", 0, 1), ("b", 5, 2)]),
        ("%LMQ%a", "1", _rules("4.9", lmq=False), [("%LMQ%a", 5, 1)]),
        *(("%LMQ%a", "1", _rules(release, multi=False), []) for release in ("4.3", "4.9", "5.3")),
        ("%LMQ%a", "1", _rules("4.3"), []),
        ("%LMQ%a/b,%LMQ%c", "1,2", _rules("5.3"), [("%LMQ%c", 0, 2)]),
        ("%LMQ%a/b,%LMQ%c", "1,2", _rules("4.9"), [("%LMQ%a/b", 0, 1), ("%LMQ%c", 0, 2)]),
        *((*blank, _rules(), []) for blank in (("", "1"), ("%LMQ%a", ""), (" ", "1"))),
    ],
)
def test_light_queues_have_their_own_index_and_id_0_and_others_that_of_the_record(
    names: str, offsets: str, rules: QueueRules, units: list[tuple[str, int, int]]
) -> None:
    assert lmq_units(request(queue_id=5, properties=lists(names, offsets)), rules) == [
        AssignedUnit(*unit) for unit in units
    ]


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_retry_and_system_topics_have_some_in_4_9_only(topic: str) -> None:
    asked = request(topic, properties=lists("%LMQ%a", "1"))

    assert lmq_units(asked, _rules("5.3")) == []
    assert lmq_units(asked, _rules("4.9")) == [AssignedUnit("%LMQ%a", 0, 1)]


@pytest.mark.parametrize(
    ("text", "names"),
    [("", [""]), ("a", ["a"]), ("a,,", ["a"]), (",", []), (",a", ["", "a"]), ("a,,b", ["a", "", "b"])],
)
def test_lists_are_split_as_java_splits(text: str, names: list[str]) -> None:
    assert split_names(text) == names


long_topics = st.sampled_from([b"t" * 63, b"t" * 64, b"u" * 65, b"t" * 200])
topics = (
    st.binary(max_size=20) | st.sampled_from([b"", b"orders", b"orders-1", b"1orders-", b"\xff", b"\xfe"]) | long_topics
)
queues = st.lists(st.tuples(topics, st.sampled_from([0, 1, -1, (1 << 31) - 1])), max_size=30)


def place(rows: list[tuple[bytes, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concatenate topics; return the bytes, their starts and their stops."""
    stops = 8 + np.cumsum([0, *(len(topic) for topic, _ in rows)]).astype(np.int64)
    return np.frombuffer(b"\xff" * 8 + b"".join(topic for topic, _ in rows), np.uint8), stops[:-1], stops[1:]


@given(queues, st.sampled_from([1, 3, 30]))
def test_every_row_gets_its_own_queue(rows: list[tuple[bytes, int]], piece: int) -> None:
    numbers = QueueNumbers()
    found: list[int] = []
    for first in range(0, len(rows), piece):
        window = rows[first : first + piece]
        occurring, codes = numbers.find(*place(window), np.array([queue_id for _, queue_id in window], np.int32))
        found += occurring[codes].tolist()
    expected = [(decode_text(topic), queue_id) for topic, queue_id in rows]

    assert expected == [numbers.queues[number] for number in found]
    assert list(dict.fromkeys(expected)) == sorted(set(expected), key=expected.index)
    assert sorted(set(expected)) == sorted(numbers.queues)


_NAMES = st.one_of(
    st.text(max_size=300), st.text("./\0a\x01é\U0001d4b3", max_size=8), st.integers(80, 300).map("中".__mul__)
)


@given(_NAMES, st.integers(-(2**31) - 1, 2**31))
@example("..", 0)
@example("", 0)
@example("../../x", 0)
@example("a/b", 0)
@example("\ud800", 0)
@example("\udcff", 0)
@example("x" * 255, 2**31 - 1)
def test_a_name_is_refused_or_its_directory_lies_two_levels_below(topic: str, queue_id: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "consumequeue"
        if refusal_of(topic, queue_id) is not None:
            with pytest.raises(InvalidOptionError):
                queue_path(directory, topic, queue_id)
            return
        path = queue_path(directory, topic, queue_id)
        path.mkdir(parents=True)

        assert path.resolve().parent.parent == directory.resolve()
        assert [name.name for name in directory.iterdir()] == [topic]
        assert parse_queue_id(path.name) == queue_id


@pytest.mark.parametrize(
    ("topic", "queue_id", "reason"),
    [
        ("", 0, "'' names no directory of its own"),
        ("..", 0, "'..' names no directory of its own"),
        ("a/b", 0, "the name holds '/'"),
        ("a\0b", 0, r"the name holds '\x00'"),
        ("a\x9fb", 0, r"the name holds '\x9f'"),
        ("é" * 128, 0, "the name has 256 bytes, and 255 are the most"),
        ("T", -1, "a queue id is 0 to 2147483647"),
        ("T", 2**31, "a queue id is 0 to 2147483647"),
        ("%LMQ%a b|c", 70000, None),
        ("T", 2**31 - 1, None),
        ("\ufffd", 0, None),
    ],
)
def test_a_refusal_says_why(topic: str, queue_id: int, reason: str | None) -> None:
    assert refusal_of(topic, queue_id) == reason


def test_the_error_pickles_and_names_the_queue(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"queue 3 of topic '\.\./x' can't be a directory") as caught:
        queue_path(tmp_path, "../x", 3)

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 -- our own


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [("0", 0), ("007", 7), ("+7", 7), ("-1", -1), ("2147483648", None), ("7 ", None), ("1_0", None), ("", None)],
)
def test_a_directory_is_a_queue_if_java_reads_a_number(name: str, queue_id: int | None) -> None:
    assert parse_queue_id(name) == queue_id
