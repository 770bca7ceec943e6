# SPDX-License-Identifier: Apache-2.0
"""A relative time is so long before the store time of the log's last message, wherever a time can be given."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import InvalidOptionError, explain, read_messages, read_view
from store_core.answers.store_transactions import Transactions
from store_core.store.read.read_options import is_relative, with_absolute_times
from tests.budgets import budget
from tests.builders import FIRST_STORE_TIMESTAMP, LogBuilder
from tests.store_core.command.calls import call

UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def log_at(times: list[int], root: Path, preallocated: int = 1) -> Path:
    log = LogBuilder(2048)
    for time in times:
        log.append(b"x" * 300, store_timestamp=FIRST_STORE_TIMESTAMP + time)
    return log.write(root, preallocated=preallocated)


def offsets(store: Path, **options: Any) -> list[int]:  # noqa: ANN401 -- of `read_messages`
    return read_messages(store, columns=["physical_offset"], **options).read_all().column(0).to_pylist()  # type: ignore[no-any-return]


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
