# SPDX-License-Identifier: Apache-2.0
"""No row is lost or read twice, however a log is split into ranges, damaged, or filled."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core import ReadOptions, StoreError, plan_ranges, read_messages, read_range
from tests.budgets import budget
from tests.builders import BODY_AT, BODY_LENGTH_AT, MAGIC_BLANK, LogBuilder, Record
from tests.strategies import Log, layouts, logs, mutated

if TYPE_CHECKING:
    from pathlib import Path

    from store_core import ReadRange

COLUMNS: Final = ["physical_offset", "store_size", "topic", "body", "_corrupt_record"]
LENIENT: Final = st.sampled_from(["DROPMALFORMED", "PERMISSIVE"])
Rows = list[dict[str, Any]]

broken_logs: Final = mutated(logs() | layouts()) | layouts()
splits: Final = st.one_of(
    st.builds(lambda size: {"max_partition_bytes": size}, st.integers(1, 5000)),
    st.builds(lambda count: {"min_partitions": count}, st.integers(2, 50)),
)

# The directory is the same for all examples; each overwrites the one file.
# Each property is tested with windows of two sizes, and reads a log many times.
one_directory = settings(budget(0.4), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["windows of the usual size", "small windows"], autouse=True)
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walk these small logs in several windows, too, as for large ones."""
    if request.param == "small windows":
        monkeypatch.setattr("store_core.format.salvage._LONGEST_WINDOW", 500)
        monkeypatch.setattr("store_core.format.salvage._SHORTEST_WINDOW", 100)
        monkeypatch.setattr("store_core.format.columnar.chain._LEAST", 300)
        monkeypatch.setattr("store_core.format.columnar.chain._LARGEST", 600)


def write(log: Log, directory: Path) -> Path:
    """Write the log as a segment; a second one, if any, has a single record and closes the first.

    They are segments by their place: elsewhere twenty bytes of garbage may be those of a consume queue.
    """
    directory /= "commitlog"
    directory.mkdir(exist_ok=True)
    for other in directory.iterdir():
        other.unlink()
    (directory / f"{log.start_offset:020d}").write_bytes(log.data)
    end = log.start_offset + len(log.data)
    following = Record(topic="", physical_offset=end).encode()
    if len(log.data) % 2 and len(following) <= len(log.data):  # half of the logs
        (directory / f"{end:020d}").write_bytes(following)
    return directory


def read_whole(path: Path, **options: Any) -> tuple[Rows, str]:  # noqa: ANN401 -- those of reading
    """Read until the end or the first error; return the rows, and the error's text."""
    rows: Rows = []
    try:
        for batch in read_messages(path, columns=COLUMNS, **options):
            rows += batch.to_pylist()
    except StoreError as error:
        return rows, str(error)
    return rows, ""


def read_split(path: Path, **options: Any) -> tuple[Rows, str]:  # noqa: ANN401 -- those of reading
    """Read range by range, each separately, until the first that ends with an error."""
    parsed = ReadOptions.parse(columns=COLUMNS, **options)
    rows: Rows = []
    for part in plan_ranges(path, parsed).ranges:
        try:
            for batch in read_range(part, parsed):
                found = batch.to_pylist()
                assert all(part.begin <= row["physical_offset"] < part.end for row in found)
                rows += found
        except StoreError as error:
            return rows, str(error)
    return rows, ""


@one_directory
@given(broken_logs, splits, st.sampled_from(["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]), st.booleans())
def test_ranges_have_exactly_the_rows_of_the_whole(
    tmp_path: Path, log: Log, split: dict[str, int], mode: str, verify_crc: bool
) -> None:
    path = write(log, tmp_path)

    assert read_split(path, mode=mode, verify_crc=verify_crc, **split) == read_whole(
        path, mode=mode, verify_crc=verify_crc
    )


@one_directory
@given(broken_logs, LENIENT, st.data())
def test_what_is_before_an_offset_and_what_is_behind_it_is_everything(
    tmp_path: Path, log: Log, mode: str, data: st.DataObject
) -> None:
    path = write(log, tmp_path)
    cut = log.start_offset + data.draw(st.integers(0, len(log.data) + 100))
    before, _ = read_whole(path, mode=mode, ending_offsets=cut)
    behind, _ = read_whole(path, mode=mode, starting_offsets=cut)

    assert before + behind == read_whole(path, mode=mode)[0]


@one_directory
@given(broken_logs, LENIENT)
def test_damage_never_ends_a_read_that_is_to_go_on(tmp_path: Path, log: Log, mode: str) -> None:
    rows, error = read_whole(write(log, tmp_path), mode=mode)

    assert error == ""
    offsets = [row["physical_offset"] for row in rows]
    assert offsets == sorted(set(offsets))


@one_directory
@given(broken_logs)
def test_permissive_leaves_no_byte_out_before_the_end_of_the_log(tmp_path: Path, log: Log) -> None:
    path = write(log, tmp_path)
    position = log.start_offset
    for row in read_whole(path, mode="PERMISSIVE")[0]:
        if row["physical_offset"] != position:
            rest = log.data[position - log.start_offset :]
            assert row["physical_offset"] == log.start_offset + len(log.data)
            assert rest[4:8] == struct.pack(">I", MAGIC_BLANK) or not any(rest)
            position = row["physical_offset"]
        position += row["store_size"]
    parts = plan_ranges(path, ReadOptions.parse(mode="PERMISSIVE")).ranges
    assert not parts or position == parts[-1].data_end


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
def test_the_rows_end_where_the_last_of_two_batches_begins_that_were_not_finished(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogBuilder()
    log.append(b"zero", store_timestamp=10)
    first, last = (log.append_all(*bodies, store_timestamp=20) for bodies in ((b"a", b"b"), (b"c", b"d")))
    for batch in (first, last):
        log.patch(batch[0].physical_offset, bytes(4))

    rows, _ = read_whole(log.write(tmp_path), mode=mode)

    damaged = [first[0].physical_offset] if mode == "PERMISSIVE" else []
    assert [row["physical_offset"] for row in rows] == [0, *damaged, first[1].physical_offset]
    assert f"the log ends at offset {last[0].physical_offset} of" in caplog.text


@one_directory
@given(broken_logs)
def test_failfast_has_the_rows_before_the_first_damage(tmp_path: Path, log: Log) -> None:
    path = write(log, tmp_path)
    rows, error = read_whole(path)
    every, _ = read_whole(path, mode="PERMISSIVE")

    assert rows == every[: len(rows)]
    assert bool(error) == (len(rows) < len(every))
    assert all(row["_corrupt_record"] is None for row in rows)


# --------------------------------------------------------------------------------------------------- several segments


def hostile_body(position: int, count: int) -> bytes:
    """Make a body of whole records with the correct offsets for a record at `position`."""
    body = b""
    for _ in range(count):
        body += Record(b"decoy", physical_offset=position + BODY_AT + len(body)).encode()
    return body


@st.composite
def segmented_logs(draw: st.DrawFn) -> LogBuilder:
    """Draw a log of several segments, with bodies that are full of records, and perhaps bytes that are flipped."""
    log = LogBuilder(draw(st.sampled_from([500, 1024, 3000])), draw(st.sampled_from([0, 3000 * 1024 * 500])))
    for kind in draw(st.binary(min_size=1, max_size=60)):
        body = hostile_body(log.end, kind % 4) if kind % 3 == 0 else bytes(kind % 50)
        log.append(body[: log.segment_size - 120], topic="t" * (kind % 5), version=1 + kind % 2)
    for _ in range(draw(st.integers(0, 4))):
        log.flip(draw(st.integers(log.start_offset, log.end - 1)), 1)
    return log


@one_directory
@given(segmented_logs(), splits, LENIENT)
def test_ranges_of_several_segments_have_exactly_the_rows_of_the_whole(
    tmp_path: Path, log: LogBuilder, split: dict[str, int], mode: str
) -> None:
    directory = tmp_path / "commitlog"
    directory.mkdir(exist_ok=True)
    for other in directory.iterdir():
        other.unlink()
    root = log.write(tmp_path, preallocated=1)

    assert read_split(root, mode=mode, **split) == read_whole(root, mode=mode)


@pytest.mark.parametrize("split", [{"max_partition_bytes": 7}, {"min_partitions": 10**6}])
def test_ranges_smaller_than_a_record_have_every_record_once(tmp_path: Path, split: dict[str, int]) -> None:
    log = LogBuilder(4096)
    for number in range(60):
        log.append(hostile_body(log.end, number % 9), topic="t")
    root = log.write(tmp_path)
    rows, _ = read_split(root, **split)

    assert [row["physical_offset"] for row in rows] == [record.physical_offset for record in log.records]
    assert [row["body"] for row in rows] == [record.body for record in log.records]


def test_ranges_do_not_depend_on_the_options_of_rows(tmp_path: Path) -> None:
    log = LogBuilder(1024)
    for number in range(40):
        log.append(b"x" * number, topic=f"t{number % 3}")
    root = log.write(tmp_path)
    options = ReadOptions.parse(topic="t1", max_partition_bytes=100)
    parts = plan_ranges(root, options).ranges
    narrow = replace(options, columns=("body",))
    batches = [batch for part in parts for batch in read_range(part, narrow)]

    assert pa.Table.from_batches(batches).to_pydict() == {"body": [b"x" * number for number in range(1, 40, 3)]}


def split_in_three(root: Path) -> list[ReadRange]:
    return list(plan_ranges(root, ReadOptions.parse(columns=COLUMNS, min_partitions=3)).ranges)


def test_a_range_of_the_last_segment_is_read_with_no_more_than_the_record_before_it(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for number in range(30):
        log.append(b"x" * number)
    root = log.write(tmp_path)
    *_, last = split_in_three(root)
    before = [record.physical_offset for record in log.records if record.physical_offset < last.begin]
    (path,) = (root / "commitlog").iterdir()
    path.write_bytes(b"\xff" * before[-1] + path.read_bytes()[before[-1] :])
    rows = [row for batch in read_range(last, ReadOptions.parse(columns=COLUMNS)) for row in batch.to_pylist()]

    assert [row["physical_offset"] for row in rows] == [
        record.physical_offset for record in log.records if record.physical_offset >= last.begin
    ]


def test_ranges_behind_a_record_that_is_not_sound_are_walked_to(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for number in range(30):
        log.append(b"x" * number)
    log.patch(log.records[12].physical_offset + BODY_LENGTH_AT, struct.pack(">i", 13))
    first, second, third = split_in_three(log.write(tmp_path))

    assert first.walk_start is None
    assert second.walk_start is not None
    assert third.walk_start is None
