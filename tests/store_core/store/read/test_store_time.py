# SPDX-License-Identifier: Apache-2.0
"""Times: ranges of store times, a read as of a time, and times relative to the log's last message."""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from itertools import takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import InvalidOptionError, ReadOptions, explain, read_messages, read_view
from store_core.answers.store_transactions import Transactions
from store_core.store.read.option_values import parse_zone, store_time
from store_core.store.read.read_options import is_relative, with_absolute_times
from store_core.store.read.read_plan import log_end_at, plan_ranges
from tests.budgets import budget
from tests.builders import FIRST_STORE_TIMESTAMP, LogBuilder
from tests.store_core.command.calls import call

MAY = 1714521600000
"""2024-05-01 in UTC."""

HOUR = 3_600_000
SHANGHAI = ZoneInfo("Asia/Shanghai")
BERLIN = ZoneInfo("Europe/Berlin")


def refusal(value: object, zone: tzinfo | None = None) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        store_time("starting_timestamp", value, zone)
    return str(caught.value)


def zone_refusal(value: object) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        parse_zone("time_zone", value)
    return str(caught.value)


@pytest.mark.parametrize(
    "time",
    [
        "2024-05-01T00:00Z",
        " 2024-05-01 00:00:00Z ",
        "2024-05-01T02:00:00+02:00",
        "20240501T000000Z",
        datetime(2024, 5, 1, tzinfo=UTC),
        datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        MAY,
        np.int64(MAY),
        str(MAY),
    ],
)
@pytest.mark.parametrize("zone", [None, SHANGHAI])
def test_a_time_that_says_its_zone_needs_none(time: object, zone: tzinfo | None) -> None:
    assert store_time("starting_timestamp", time, zone) == MAY


@pytest.mark.parametrize(
    "time",
    [
        "20240501000000",
        20240501000000,
        np.int64(20240501000000),
        "20240501000000000",
        "202405010000",
        20240501,
        "2024-05-01",
        "2024-05-01T00:00",
        "2024-05-01 00:00:00",
        "20240501T000000",
        datetime(2024, 5, 1),  # noqa: DTZ001 -- without a zone on purpose
        date(2024, 5, 1),
    ],
)
def test_a_time_without_a_zone_is_in_the_one_that_is_given(time: object) -> None:
    assert store_time("starting_timestamp", time, UTC) == MAY
    assert store_time("starting_timestamp", time, SHANGHAI) == MAY - 8 * HOUR
    assert store_time("starting_timestamp", time, timezone(timedelta(hours=-18))) == MAY + 18 * HOUR


@pytest.mark.parametrize(
    ("time", "written"),
    [
        ("2024-05-01T12:00", "2024-05-01T12:00"),
        (datetime(2024, 5, 1, 12), "2024-05-01 12:00:00"),  # noqa: DTZ001 -- without a zone on purpose
        ("2024-05-01", "2024-05-01T00:00"),
        (date(2024, 5, 1), "2024-05-01T00:00"),
    ],
)
def test_without_any_zone_it_is_refused_with_both_ways_to_say_it(time: object, written: str) -> None:
    text = refusal(time)

    assert f"option startingTimestamp: {time!r} has no time zone" in text
    assert f"Write '{written}Z' for UTC or '{written}+08:00'" in text
    assert "option timeZone, such as Asia/Shanghai" in text
    assert store_time("starting_timestamp", f"{written}Z")


@pytest.mark.parametrize("number", [1714564800, "1714564800", " +1714564800 ", np.int64(1714564800)])
def test_ten_digits_may_be_seconds_and_are_refused_with_both_readings(number: object) -> None:
    assert refusal(number) == (
        "option startingTimestamp: 1714564800 may be seconds or ms since 1970. "
        "For 2024-05-01T12:00:00.000Z write 1714564800000; for 1970-01-20T20:16:04.800Z write that"
    )
    assert store_time("starting_timestamp", "2024-05-01T12:00:00Z") == 1714564800000
    assert store_time("starting_timestamp", "1970-01-20T20:16:04.800Z") == 1714564800


@pytest.mark.parametrize("number", [10**9, 10**10 - 1])
def test_all_numbers_of_ten_digits_are_refused(number: int) -> None:
    assert "may be seconds" in refusal(number)


def test_a_time_finer_than_ms_rounds_up_so_that_comparing_stays_exact() -> None:
    assert store_time("starting_timestamp", "1970-01-01T00:00:00.000001Z") == 1
    assert store_time("starting_timestamp", "1970-01-01T00:00:00.001Z") == 1
    assert store_time("starting_timestamp", "1969-12-31T23:59:59.995Z") == -5


def test_a_time_that_clocks_skip_is_as_much_later_as_in_spark() -> None:
    skipped, later = "2024-03-31T02:30", "2024-03-31T03:30+02:00"

    assert store_time("starting_timestamp", skipped, BERLIN) == store_time("starting_timestamp", later)


def test_of_a_time_that_clocks_show_twice_the_first_is_meant_as_in_spark() -> None:
    text, shown = "2024-10-27T02:30", datetime(2024, 10, 27, 2, 30)  # noqa: DTZ001 -- without a zone on purpose
    first, second = (store_time("starting_timestamp", f"{text}+0{hours}:00") for hours in (2, 1))

    assert store_time("starting_timestamp", text, BERLIN) == store_time("starting_timestamp", shown, BERLIN) == first
    assert store_time("starting_timestamp", shown.replace(fold=1), BERLIN) == second


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59.999999"])
def test_the_ends_of_the_calendar_are_times_in_every_zone(text: str) -> None:
    assert store_time("starting_timestamp", text, timezone(timedelta(hours=18))) < store_time(
        "starting_timestamp", text, timezone(timedelta(hours=-18))
    )


@pytest.mark.parametrize("value", ["yesterday", "", "2024-13-01", "24-05-01", 1.5, True, None, 2**63, b"2024-05-01"])
def test_what_is_no_time_is_refused(value: object) -> None:
    assert "expected ms since 1970, or a time in ISO 8601 such as 2024-05-01T12:00:00Z, found" in refusal(value, UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Z", 0),
        ("UTC", 0),
        ("GMT", 0),
        ("UT", 0),
        ("+8", 8 * 3600),
        ("+08", 8 * 3600),
        ("+8:00", 8 * 3600),
        ("+08:00", 8 * 3600),
        ("+0800", 8 * 3600),
        ("GMT+8", 8 * 3600),
        ("UTC+08:00", 8 * 3600),
        ("UT-3", -3 * 3600),
        ("-03:3", -3 * 3600 - 180),
        ("-03:30", -3 * 3600 - 1800),
        ("+8:00:30", 8 * 3600 + 30),
        ("-080030", -8 * 3600 - 30),
        ("+18:00", 18 * 3600),
        (" Asia/Shanghai ", 8 * 3600),
        ("Etc/GMT+8", -8 * 3600),
    ],
)
def test_zones_have_the_forms_that_spark_takes(text: str, seconds: int) -> None:
    zone = parse_zone("time_zone", text)

    assert datetime(2024, 5, 1, tzinfo=zone).utcoffset() == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("asia/shanghai", "found 'asia/shanghai'; did you mean 'Asia/Shanghai'?"),
        ("Asia/Shanghia", "did you mean 'Asia/Shanghai'?"),
        ("Asia", "expected a region such as 'Asia/Shanghai' or an offset such as '+08:00', found 'Asia'"),
        ("", "expected a region"),
        ("../../../etc/passwd", "expected a region"),
        ("a\0b", "expected a region"),
        ("+800", "expected a region"),
        ("+18:01", "expected an offset of at most 18:00 hours, found '+18:01'"),
        ("-99", "expected an offset of at most 18:00 hours"),
        ("+08:60", "expected an offset"),
        (8, "expected a time zone such as 'Asia/Shanghai' or '+08:00', found 8"),
    ],
)
def test_what_is_no_zone_is_refused(value: object, says: str) -> None:
    text = zone_refusal(value)

    assert text.startswith("option timeZone: ")
    assert says in text


@pytest.mark.parametrize("name", ["CST", "PST", "SystemV/PST8"])
def test_names_that_only_java_knows_are_refused_without_a_guess(name: str) -> None:
    text = zone_refusal(name)

    assert re.search(rf"found '{re.escape(name)}'", text)
    assert "did you mean" not in text


def test_a_machine_without_zones_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store_core.store.read.option_values.available_timezones", set)

    assert "no database of time zones: pip install tzdata" in zone_refusal("Mars/Olympus")


@pytest.mark.parametrize("time", ["20231105053000", 20231105053000, " 20231105053000 "])
def test_digits_are_the_time_that_clients_of_rocketmq_write_with_them(time: object) -> None:
    """As ms they would be in the year 2611, where no message is."""
    assert store_time("starting_timestamp", time, SHANGHAI) == 1699133400000
    assert "'2023-11-05T05:30Z' for UTC" in refusal(time)


@pytest.mark.parametrize(
    "digits", ["20231305053000", "20230230000000", "20231105245960", "20231105053060", "20231305053000123"]
)
def test_digits_that_look_like_a_time_and_are_none_are_refused(digits: str) -> None:
    assert "digits such as 20240501120000" in refusal(digits, UTC)
    assert "digits such as 20240501120000" in refusal(int(digits), UTC)


@pytest.mark.parametrize(
    "number",
    [
        *(-1714564800, -5, 0, 2024, 10**9 - 1, 10**10, 1714564800000, 2**63 - 1),  # of other lengths than seconds have
        *(20240001, 20241301, 99999999, 202413010000, 99999999999999, 253339228800000, -20240501000000),  # no times
    ],
)
def test_other_numbers_are_ms(number: int) -> None:
    assert store_time("starting_timestamp", number) == number == store_time("starting_timestamp", str(number))


SIZE = 1024
SECOND = 1000


def log_of(times: list[int]) -> LogBuilder:
    log = LogBuilder(SIZE)
    for number, time in enumerate(times):
        log.append(b"x" * 40, topic=f"t{number % 2}", store_timestamp=FIRST_STORE_TIMESTAMP + time * SECOND)
    return log


def offsets(store: Path, **options: Any) -> list[int]:  # noqa: ANN401 -- of `read_messages`
    return read_messages(store, columns=["physical_offset"], **options).read_all().column(0).to_pylist()  # type: ignore[no-any-return]


@budget(0.3)
@given(
    steps=st.lists(st.integers(-50, 3600), min_size=1, max_size=40),
    at=st.integers(-10, 41),
    topic=st.sampled_from([None, "t0", "t1"]),
)
def test_the_rows_are_those_before_the_first_record_of_that_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], at: int, topic: str | None
) -> None:
    """The clock is set back by less than a minute now and then, also in the middle of a segment."""
    times = [sum(steps[: end + 1]) for end in range(len(steps))]
    log = log_of(times)
    root = log.write(tmp_path_factory.mktemp("store"))
    time = FIRST_STORE_TIMESTAMP + times[min(max(at, 0), len(times) - 1)] * SECOND + (at == 41) - (at < 0)
    there = list(takewhile(lambda record: record.store_timestamp < time, log.records))

    after = log.records[len(there) :]
    assert (after[0].physical_offset if after else None) == log_end_at(root, time)
    assert offsets(root, as_of=time, topic=topic) == [
        record.physical_offset for record in there if topic in (None, record.topic)
    ]


def test_a_plan_is_as_of_a_time_of_the_log_that_the_configuration_names(tmp_path: Path) -> None:
    log_of([0, 1, 2, 3]).write(tmp_path / "elsewhere")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={tmp_path}\nstorePathCommitLog={tmp_path / 'elsewhere' / 'commitlog'}\n")
    time = FIRST_STORE_TIMESTAMP + 2 * SECOND

    assert 2 == len(offsets(tmp_path, as_of=time, config=config))
    assert "1 file" in str(explain(tmp_path, as_of=time, config=config))


def test_what_is_after_the_time_is_neither_read_nor_looked_at(tmp_path: Path) -> None:
    log = log_of(list(range(0, 4000, 100)))
    damaged = log.records[-1]
    log.flip(damaged.physical_offset + 4)
    root = log.write(tmp_path / "store")
    plan = plan_ranges(root, ReadOptions.parse(as_of=log.records[10].store_timestamp))

    assert log.records[10].physical_offset == plan.ranges[-1].end
    assert plan.end is None
    assert plan.notes == ()


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(InvalidOptionError, match="option asOf"):
        ReadOptions.parse(as_of="2024-05-01T12:00:00")

    assert ReadOptions.parse(as_of="2024-05-01T12:00:00", time_zone="UTC").as_of == 1714564800000


UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def log_at(times: list[int], root: Path, preallocated: int = 1) -> Path:
    log = LogBuilder(2048)
    for time in times:
        log.append(b"x" * 300, store_timestamp=FIRST_STORE_TIMESTAMP + time)
    return log.write(root, preallocated=preallocated)


@budget(0.5)
@given(
    times=st.lists(st.integers(0, 10**9), min_size=1, max_size=12),
    count=st.integers(0, 999),
    unit=st.sampled_from([*UNITS]),
    option=st.sampled_from(["starting_timestamp", "ending_timestamp", "as_of"]),
    preallocated=st.integers(0, 2),
)
def test_it_is_the_time_that_long_before_the_last_message(
    times: list[int], count: int, unit: str, option: str, preallocated: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = log_at(times, Path(directory), preallocated)
        absolute = FIRST_STORE_TIMESTAMP + times[-1] - count * UNITS[unit]

        assert {option: absolute} == with_absolute_times(store, {option: f"-{count}{unit}"})
        assert offsets(store, **{option: absolute}) == offsets(store, **{option: f" -{count}{unit}"})


@pytest.mark.parametrize("text", ["-15", "15m", "-15 m", "-m", "-1.5h", "--1h", "-1y", "-1hm", "now", "2024-05-01"])
def test_other_texts_are_no_relative_times(text: str) -> None:
    assert not is_relative(text)


def test_a_log_without_messages_has_none(tmp_path: Path) -> None:
    store = log_at([], tmp_path)

    with pytest.raises(InvalidOptionError, match="and there is none"):
        offsets(store, starting_timestamp="-15m")


def test_a_command_a_view_and_an_explanation_take_it(tmp_path: Path) -> None:
    store = log_at([0, 60_000, 120_000], tmp_path)
    rows = call("cat", store, "--starting-timestamp", "-90s", "--format", "jsonl").rows

    assert 2 == len(rows)
    assert 2 == int(call("count", store, "--starting-timestamp", "-90s", "--format", "jsonl").rows[0]["messages"])
    assert 1 == read_view(store, "messages", ending_timestamp="-1m").read_all().num_rows
    assert str(explain(store, starting_timestamp=FIRST_STORE_TIMESTAMP + 30_000)) == str(
        explain(store, starting_timestamp="-90s")
    )
    assert 2 == call("cat", store, "--starting-timestamp", "-1y").code


def test_an_answer_takes_it(tmp_path: Path) -> None:
    store = log_at([0, 60_000], tmp_path)
    absolute = Transactions(now=FIRST_STORE_TIMESTAMP).ask(store)

    assert absolute.to_json() == Transactions(now="-1m").ask(store).to_json()  # type: ignore[arg-type]
    assert call("transactions", store, "--now", "-1m").text == absolute.to_text(None) + "\n"
