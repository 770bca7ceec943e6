# SPDX-License-Identifier: Apache-2.0
"""Which further queues a record goes to, by release and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.queue.queue_assignment import AssignedUnit, UnfitListsError, lmq_units
from store_core.queue.queue_path import QueueRules, split_names

if TYPE_CHECKING:
    from store_core.format.release import Release


def _request(names: str, offsets: str, topic: str = "T") -> DispatchRequest:
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    return DispatchRequest(topic, 5, 1000, 100, 0, 0, 0, properties=properties)


def _rules(release: Release = "5.3", *, multi: bool = True, lmq: bool = True) -> QueueRules:
    return QueueRules(release=release, is_multi_dispatch_enabled=multi, is_lmq_enabled=lmq)


def test_each_light_queue_gets_its_own_index_and_has_id_0() -> None:
    assert lmq_units(_request("%LMQ%a,%LMQ%b", "7,+08"), _rules()) == [
        AssignedUnit("%LMQ%a", 0, 7),
        AssignedUnit("%LMQ%b", 0, 8),
    ]


def test_other_queues_have_the_id_of_the_record_and_so_have_light_ones_that_are_not_enabled() -> None:
    assert lmq_units(_request("%LMQ%a,b", "1,2"), _rules("4.9")) == [
        AssignedUnit("%LMQ%a", 0, 1),
        AssignedUnit("b", 5, 2),
    ]
    assert lmq_units(_request("%LMQ%a", "1"), _rules("4.9", lmq=False)) == [AssignedUnit("%LMQ%a", 5, 1)]


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_without_the_setting_there_are_none(release: Release) -> None:
    assert lmq_units(_request("%LMQ%a", "1"), _rules(release, multi=False)) == []


def test_release_4_3_has_none() -> None:
    assert lmq_units(_request("%LMQ%a", "1"), _rules("4.3")) == []


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_retry_and_system_topics_have_some_in_4_9_only(topic: str) -> None:
    assert lmq_units(_request("%LMQ%a", "1", topic), _rules("5.3")) == []
    assert lmq_units(_request("%LMQ%a", "1", topic), _rules("4.9")) == [AssignedUnit("%LMQ%a", 0, 1)]


def test_a_name_with_a_separator_is_passed_over_in_5_3_only() -> None:
    assert lmq_units(_request("%LMQ%a/b,%LMQ%c", "1,2"), _rules("5.3")) == [AssignedUnit("%LMQ%c", 0, 2)]
    assert len(lmq_units(_request("%LMQ%a/b,%LMQ%c", "1,2"), _rules("4.9"))) == 2


@pytest.mark.parametrize(("names", "offsets"), [("", "1"), ("%LMQ%a", ""), (" ", "1")])
def test_a_blank_list_is_none(names: str, offsets: str) -> None:
    assert lmq_units(_request(names, offsets), _rules()) == []


@pytest.mark.parametrize(
    ("names", "offsets"),
    [("%LMQ%a,b", "2,"), ("b,%LMQ%a", ",2"), ("%LMQ%a", "1,2"), ("%LMQ%a", "x"), ("%LMQ%a", str(2**63))],
)
def test_lists_that_do_not_fit_are_told(names: str, offsets: str) -> None:
    with pytest.raises(UnfitListsError, match="INNER_MULTI_"):
        lmq_units(_request(names, offsets), _rules())


@pytest.mark.parametrize(
    ("text", "names"),
    [("", [""]), ("a", ["a"]), ("a,,", ["a"]), (",", []), (",a", ["", "a"]), ("a,,b", ["a", "", "b"])],
)
def test_lists_are_split_as_java_splits(text: str, names: list[str]) -> None:
    assert split_names(text) == names
