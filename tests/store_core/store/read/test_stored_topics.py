# SPDX-License-Identifier: Apache-2.0
"""Topics that a store does not have: one warning per read, and no row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from store_core import read_messages
from store_core.store.read.read_messages import stored_topics
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of three segments, whose topics are only in the log, the queues or the configuration."""
    log = LogBuilder(segment_size=1024)
    while len(log.segments()) < 3:
        log.append(b"x" * 50, topic="logged")
    root = log.write(tmp_path / "store")
    (root / "consumequeue" / "queued" / "0").mkdir(parents=True)
    (root / "batchconsumequeue" / "batched" / "0").mkdir(parents=True)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"planned": {}}}))
    return root


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("place", ["", "commitlog", "commitlog/00000000000000000000"])
def test_a_topic_that_is_nowhere_is_warned_of_once_with_the_nearest_name(
    store: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert 0 == read_messages(store / place, topic="qeued", columns="body").read_all().num_rows

    (text,) = warnings(caplog)
    assert text.startswith("topic 'qeued': no record of it was read, and neither the queues nor config/topics.json of")
    assert text.endswith(f"{store} know it; did you mean 'queued'?")


def test_each_unknown_topic_of_several_is_warned_of(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_messages(store, topic="logged,loged,planed,queued").read_all().num_rows

    assert ["'loged'", "'planed'"] == [text.split()[1].rstrip(":") for text in warnings(caplog)]


def test_unknown_topics_of_queue_offsets_are_warned_of(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    start, end = '{"loged": {"2": 5}}', '{"logged": {"2": 5}}'

    assert read_messages(store, starting_offsets=start, ending_offsets=end).read_all().num_rows
    assert ["'loged'"] == [text.split()[1].rstrip(":") for text in warnings(caplog)]


@pytest.mark.parametrize("topic", ["logged", "queued", "batched", "planned", "queued,planned"])
def test_a_topic_that_is_anywhere_is_not_warned_of(store: Path, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    assert bool(read_messages(store, topic=topic).read_all().num_rows) == (topic == "logged")
    assert not warnings(caplog)


def test_a_topic_is_in_the_log_whatever_else_was_asked_for(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert 0 == read_messages(store, topic="logged", tag="none has it").read_all().num_rows
    assert not warnings(caplog)


def test_a_log_alone_has_no_name_to_offer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = LogBuilder(segment_size=1024)
    log.append(b"x", topic="logged")
    root = log.write(tmp_path / "store")

    assert 0 == read_messages(root, topic="loged").read_all().num_rows
    assert [True] == [text.endswith("no topic is known") for text in warnings(caplog)]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"topicConfigTable": 7}', b"[" * 100_000, b"\xff\xfe", b'{"topicConfigTable":']
)
def test_a_broken_configuration_names_no_topic(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(content)

    assert frozenset() == stored_topics([tmp_path, tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queue_id": 99}, "queue 99: "),
        ({"queue_id": "99", "topic": "logged,queued"}, "queue 99 of topic 'logged', 'queued': "),
        ({"starting_offsets": {"queued": {"5": 1}}}, "queue 5 of topic 'queued': "),
        ({"ending_offsets": '{"planned": {"3": 1}}'}, "queue 3 of topic 'planned': "),
    ],
)
def test_a_queue_that_its_topic_does_not_have_is_warned_of_with_those_that_it_has(
    store: Path, options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"topicConfigTable": {"planned": {"readQueueNums": 2, "writeQueueNums": 3}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    read_messages(store, **options).read_all()
    ids = "0" if "queued" in told else "0, 1, 2"

    assert [f"{told}neither the queues nor config/topics.json of {store} know it; the ids are {ids}"] == warnings(
        caplog
    )


@pytest.mark.parametrize(
    "options", [{"queue_id": 0}, {"starting_offsets": {"queued": {"0": 1}}}, {"queue_id": 7, "topic": "planned"}]
)
def test_a_queue_that_exists_or_of_which_nothing_says_so_is_not_warned_of(
    store: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    read_messages(store, **options).read_all()

    assert not warnings(caplog)
