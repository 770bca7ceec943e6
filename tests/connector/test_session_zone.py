# SPDX-License-Identifier: Apache-2.0
"""Times in the session's zone, which planning does not know: everything that can be tested without a session."""

from __future__ import annotations

import pickle

import pytest
from pyspark import TaskContext

from pyspark_commitlog.options import CommitLogOptions, SessionTimes
from store_core.errors import InvalidOptionError
from store_core.store.read.read_options import ReadOptions

DAY = 1714521600000
"""2024-05-01 in UTC."""

HOURS = 3_600_000
START = {"starting_timestamp": "2024-05-01", "ending_timestamp": "2024-05-01T00:00:00Z", "topic": "orders"}


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the local properties of the task that the tests are in."""
    properties: dict[str, str] = {}
    # First, because the first context becomes the process's own, and a driver has none.
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext()._localProperties = properties
    return properties


def session_times(**texts: str) -> SessionTimes:
    times = SessionTimes.of(texts)
    assert times is not None
    return times


def test_only_times_without_a_zone_wait_for_the_session() -> None:
    assert SessionTimes.of({"topic": "orders"}) is None
    assert SessionTimes.of({"starting_timestamp": "-90s"}) is None
    assert SessionTimes.of({"starting_timestamp": str(DAY), "ending_timestamp": "2024-05-01T00:00+08:00"}) is None
    assert SessionTimes.of({"starting_timestamp": "2024-05-01", "time_zone": "UTC"}) is None
    assert list(session_times(**START).local) == ["starting_timestamp"]


def test_planning_leaves_room_for_every_zone() -> None:
    planned = session_times(**START).for_planning()

    assert (DAY - 18 * HOURS, DAY) == (planned.starting_timestamp, planned.ending_timestamp)
    assert session_times(ending_timestamp="2024-05-01").for_planning().ending_timestamp == DAY + 18 * HOURS
    assert planned.topic == ("orders",)


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31"])
def test_there_is_no_room_beyond_the_calendar(text: str) -> None:
    session_times(starting_timestamp=text).for_planning()
    session_times(ending_timestamp=text).for_planning()


@pytest.mark.parametrize("time", ["2024-05-01", "20240501000000"])
@pytest.mark.parametrize(("name", "offset"), [("UTC", 0), ("Asia/Shanghai", 8), ("-18:00", -18)])
def test_tasks_read_what_the_session_means(zone: dict[str, str], name: str, offset: int, time: str) -> None:
    zone["spark.sql.session.timeZone"] = name
    times = session_times(starting_timestamp=time, topic="orders")
    options = pickle.loads(pickle.dumps(times)).for_task()  # noqa: S301 -- our own

    assert options.starting_timestamp == DAY - offset * HOURS
    assert ReadOptions.parse(starting_timestamp=time, topic="orders", time_zone=name) == options


@pytest.mark.usefixtures("zone")
def test_without_a_zone_of_the_session_the_error_says_what_to_write() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        session_times(**START).for_task()

    assert str(caught.value) == (
        "option startingTimestamp: '2024-05-01' has no time zone, and "
        "spark.sql.session.timeZone is not set, or is not passed on, as with .rdd. Write '2024-05-01T00:00:00Z' for "
        "UTC or '2024-05-01T00:00:00+08:00' for that offset, or name the zone by option timeZone, such as Asia/Shanghai"
    )


def test_a_zone_of_the_session_that_is_unknown_here_is_named(zone: dict[str, str]) -> None:
    zone["spark.sql.session.timeZone"] = "CST"

    with pytest.raises(InvalidOptionError, match=r"found 'CST' \(spark\.sql\.session\.timeZone is 'CST'\)"):
        session_times(**START).for_task()


def test_an_end_that_comes_before_the_start_in_the_zone_of_the_session_is_refused(zone: dict[str, str]) -> None:
    zone["spark.sql.session.timeZone"] = "-08:00"

    with pytest.raises(InvalidOptionError, match=r"expected at most option endingTimestamp"):
        session_times(**START).for_task()


@pytest.mark.parametrize(("name", "value"), [("startingTimestamp", "yesterday"), ("endingTimestamp", "1714564800")])
def test_what_is_no_time_is_refused_at_load(name: str, value: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"option {name}: "):
        CommitLogOptions.from_spark({"path": "/store", "startingTimestamp": "2024-05-01", name: value})
