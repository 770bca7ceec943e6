# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import pickle
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from store_core import (
    CorruptRecordError,
    InvalidOptionError,
    SegmentLayoutError,
    SegmentVanishedError,
    StoreError,
    StoreNotFoundError,
    read_messages,
)
from store_core.format.columnar.chain import chain
from store_core.format.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from tests.builders import (
    BODY_AT,
    BODY_LENGTH_AT,
    CRC_AT,
    FIRST_STORE_TIMESTAMP,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    SIZE_AT,
    LogBuilder,
    Record,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from store_core.format.record.scan import Framing, Scan

SIZE = 1536


@pytest.fixture
def log() -> LogBuilder:
    """Three segments: topics t0 to t2, queues 0 and 1, tags, keys."""
    log = LogBuilder(SIZE)
    for number in range(30):
        log.append(
            b"body %d" % number,
            topic=f"t{number % 3}",
            queue_id=number % 2,
            properties={"TAGS": f"Tag{number % 4}", "KEYS": f"k{number} all", "UNIQ_KEY": f"u{number}"},
        )
    return log


@pytest.fixture
def root(log: LogBuilder, tmp_path: Path) -> Path:
    return log.write(tmp_path / "store", preallocated=1)


def offsets(path: Path, **options: Any) -> list[int]:  # noqa: ANN401 -- those of reading
    table = read_messages(path, columns=["physical_offset"], **options).read_all()
    found: list[int] = table.column("physical_offset").to_pylist()
    return found


def placed(log: LogBuilder, *numbers: int) -> list[int]:
    return [log.records[number].physical_offset for number in numbers]


def without(log: LogBuilder, *numbers: int) -> list[int]:
    return [record.physical_offset for at, record in enumerate(log.records) if at not in numbers]


class Read:
    """Read batch by batch until the end or an error."""

    def __init__(self, path: Path, **options: Any) -> None:  # noqa: ANN401 -- those of reading
        self.rows: list[dict[str, Any]] = []
        self.error: StoreError | None = None
        reader = read_messages(path, **options)
        try:
            for batch in reader:
                assert batch.schema == reader.schema
                assert batch.num_rows
                self.rows += batch.to_pylist()
        except StoreError as error:
            self.error = error

    @property
    def offsets(self) -> list[int]:
        return [row["physical_offset"] for row in self.rows]


# ------------------------------------------------------------------------------------------------------------- columns


def test_all_messages_come_in_the_order_of_the_log(root: Path, log: LogBuilder) -> None:
    table = read_messages(root).read_all()

    assert table.column("body").to_pylist() == [record.body for record in log.records]
    assert table.column("physical_offset").to_pylist() == without(log)
    assert table.schema == arrow_schema(DEFAULT_COLUMNS)


def test_the_release_chooses_how_properties_are_read(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append(b"", properties=b"TAGS\x01a\x01b\x02")
    root = log.write(tmp_path)

    assert read_messages(root, release="5.3").read_all().column("tags").to_pylist() == ["a\x01b"]
    assert read_messages(root, release="4.3").read_all().column("tags").to_pylist() == [None]


def test_errors_in_options_and_paths_come_before_the_first_batch(root: Path) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'columns'"):
        read_messages(root, column="topic")  # type: ignore[arg-type]  # refused by types, too
    with pytest.raises(StoreNotFoundError):
        read_messages(root / "nothing")


# ------------------------------------------------------------------------------------------------------------- batches


def test_batches_have_no_more_bytes_than_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store_core.format.columnar.chain._LEAST", 500)
    monkeypatch.setattr("store_core.format.columnar.chain._LARGEST", 500)
    sizes = [sum(batch.column("store_size").to_pylist()) for batch in read_messages(root)]

    assert sum(sizes) == sum(record["store_size"] for record in read_messages(root).read_all().to_pylist())
    assert max(sizes) <= 500
    assert min(sizes[:-3]) > 250


def test_a_record_larger_than_the_bound_passes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store_core.format.columnar.chain._LEAST", 500)
    monkeypatch.setattr("store_core.format.columnar.chain._LARGEST", 500)
    log = LogBuilder(10_000)
    log.append_all(b"small", b"large" * 1000, b"small", b"small")

    bodies = [batch["body"].to_pylist() for batch in read_messages(log.write(tmp_path))]
    assert bodies == [[b"small"], [b"large" * 1000], [b"small", b"small"]]


def test_a_reader_can_be_given_up_half_way(root: Path) -> None:
    reader = read_messages(root, max_records_per_batch=1)
    reader.read_next_batch()
    del reader
    gc.collect()  # a file left open would be a ResourceWarning, and that an error


# ------------------------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("options", "keep"),
    [
        ({"topic": "t1"}, lambda number: number % 3 == 1),
        ({"topic": "t0, t2"}, lambda number: number % 3 != 1),
        ({"topics_pattern": "t[12]"}, lambda number: number % 3 != 0),
        ({"queue_id": 1}, lambda number: number % 2 == 1),
        ({"topic": "t1", "queue_id": "0"}, lambda number: number % 6 == 4),
        ({"tag": "Tag1 || Tag3"}, lambda number: number % 2 == 1),
        ({"tag": "*"}, lambda _: True),
        ({"key": "k7"}, lambda number: number == 7),
        ({"key": "all"}, lambda _: True),
        ({"topic": "none"}, lambda _: False),
        ({"starting_offsets": '{"t1":{"1":3}}'}, lambda number: number not in (1, 7, 13)),
        ({"ending_offsets": {"t1": {1: 3}}}, lambda number: number % 6 != 1 or number < 18),
        (
            {"starting_timestamp": FIRST_STORE_TIMESTAMP + 11, "ending_timestamp": FIRST_STORE_TIMESTAMP + 13},
            lambda number: number in (10, 11),
        ),
        ({"starting_timestamp": FIRST_STORE_TIMESTAMP + 26, "topic": "t1"}, lambda number: number in (25, 28)),
        ({"ending_timestamp": FIRST_STORE_TIMESTAMP + 3, "starting_offsets": 0}, lambda number: number < 2),
    ],
)
@pytest.mark.parametrize("rows", [4, 1000])
def test_filters_leave_the_rows_asked_for(
    root: Path, log: LogBuilder, options: dict[str, Any], keep: Callable[[int], bool], rows: int
) -> None:
    expected = placed(log, *filter(keep, range(30)))

    assert offsets(root, max_records_per_batch=rows, **options) == expected


def test_messages_that_a_filter_fails_on_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogBuilder()
    for value in ("5", "19.99", "6", "y"):
        log.append(Record(b"body", properties={"a": value}))
    table = read_messages(log.write(tmp_path / "store"), filter="a < 6", filter_type="SQL92").read_all()

    assert table["physical_offset"].to_pylist() == [0]
    (told,) = [record.getMessage() for record in caplog.records]
    assert "the filter failed on 2 messages between offsets 0 and " in told
    assert told.endswith(
        f"which therefore do not match, as in RocketMQ's broker; the first is at offset "
        f"{log.records[1].physical_offset}, property a: expected a whole number of 32 bits, found '19.99'; beside a "
        f"literal with a decimal point, such as 30.0, it is read as a decimal"
    )


def test_bodies_of_rows_that_are_filtered_out_are_not_looked_at(log: LogBuilder, tmp_path: Path) -> None:
    for record in log.records[:-1]:
        if record.topic != "t1":
            log.flip(record.physical_offset + BODY_AT)
    root = log.write(tmp_path)

    assert [row["topic"] for row in Read(root, topic="t1").rows] == ["t1"] * 10
    assert isinstance(Read(root).error, CorruptRecordError)


# -------------------------------------------------------------------------------------------------------------- damage


BROKEN = [
    pytest.param(SIZE_AT, 0, id="size 0"),
    pytest.param(SIZE_AT, -7, id="size negative"),
    pytest.param(SIZE_AT, 2**31 - 1, id="size huge"),
    pytest.param(SIZE_AT, 60, id="size smaller than a head"),
    pytest.param(MAGIC_AT, 0x0BADBEEF, id="magic"),
    pytest.param(PHYSICAL_OFFSET_AT + 4, 5, id="physical offset"),
    pytest.param(BODY_LENGTH_AT, -1, id="body length negative"),
    pytest.param(BODY_LENGTH_AT, 10_000, id="body length past the record"),
    pytest.param(BODY_LENGTH_AT, 2**31 - 1, id="body length huge"),
    pytest.param(CRC_AT, 12345, id="crc"),
]


def break_field(log: LogBuilder, number: int, at: int, value: int) -> Record:
    record = log.records[number]
    log.patch(record.physical_offset + at, struct.pack(">i", value))
    return record


@pytest.mark.parametrize(("at", "value"), BROKEN)
def test_failfast_stops_behind_the_rows_before_the_damage(log: LogBuilder, tmp_path: Path, at: int, value: int) -> None:
    record = break_field(log, 17, at, value)
    read = Read(log.write(tmp_path))

    assert read.offsets == placed(log, *range(17))
    assert isinstance(read.error, CorruptRecordError)
    assert read.error.offset == record.physical_offset
    segment = tmp_path / "commitlog" / f"{record.physical_offset // SIZE * SIZE:020d}"
    for word in (str(segment), "expected", "found", "mode=DROPMALFORMED", "mode=PERMISSIVE"):
        assert word in str(read.error)
    assert str(pickle.loads(pickle.dumps(read.error))) == str(read.error)  # noqa: S301 -- our own


@pytest.mark.parametrize(("at", "value"), BROKEN)
def test_dropmalformed_leaves_out_the_damage_only(
    log: LogBuilder, tmp_path: Path, at: int, value: int, caplog: pytest.LogCaptureFixture
) -> None:
    record = break_field(log, 17, at, value)

    assert offsets(log.write(tmp_path), mode="DROPMALFORMED", verify_crc=at != CRC_AT) == without(
        log, *([] if at == CRC_AT else [17])
    )
    assert Read(tmp_path, mode="DROPMALFORMED").offsets == without(log, 17)
    left_out = f"left out 1 damaged range or record of {record.size} bytes in all, at offset {record.physical_offset}"
    assert left_out in caplog.text


@pytest.mark.parametrize(("at", "value"), BROKEN)
def test_permissive_gives_the_damage_a_row(log: LogBuilder, tmp_path: Path, at: int, value: int) -> None:
    record = break_field(log, 17, at, value)
    names = [column.name for column in COLUMNS]
    rows = Read(log.write(tmp_path), mode="PERMISSIVE", columns=names).rows

    assert [row["physical_offset"] for row in rows] == without(log)
    damaged = {name: value for name, value in rows.pop(17).items() if value is not None}
    assert damaged == {
        "physical_offset": record.physical_offset,
        "store_size": record.size,
        "segment": f"{record.physical_offset // SIZE * SIZE:020d}",
        "store": tmp_path.name,
        "_corrupt_record": stored_bytes(tmp_path, record),
    }
    assert all(row["_corrupt_record"] is None for row in rows)


def stored_bytes(root: Path, record: Record) -> bytes:
    segment = root / "commitlog" / f"{record.physical_offset // SIZE * SIZE:020d}"
    return segment.read_bytes()[record.physical_offset % SIZE :][: record.size]


def test_a_topic_that_is_not_utf_8_is_damage_where_topics_are_read(log: LogBuilder, tmp_path: Path) -> None:
    record = log.records[17]
    log.patch(record.end - len(record.encode().split(b"\x02t2", 1)[-1]) - 2, b"\xff\xff")
    root = log.write(tmp_path)
    read = Read(root)

    assert read.offsets == placed(log, *range(17))
    assert "topic is not UTF-8" in str(read.error)
    assert Read(root, mode="DROPMALFORMED").offsets == without(log, 17)
    assert Read(root, mode="PERMISSIVE").rows[17]["topic"] is None
    assert offsets(root) == without(log)


@pytest.mark.parametrize("options", [{"topic": "t0"}, {"queue_id": 0}, {"key": "k0"}, {"starting_timestamp": 0}])
def test_damage_is_kept_whatever_rows_are_asked_for(log: LogBuilder, tmp_path: Path, options: dict[str, Any]) -> None:
    break_field(log, 17, MAGIC_AT, 1)
    sound = Read(log.write(tmp_path), mode="DROPMALFORMED", **options).offsets
    rows = Read(tmp_path, mode="PERMISSIVE", **options).rows

    assert [row["physical_offset"] for row in rows] == sorted([*sound, *placed(log, 17)])
    assert isinstance(Read(tmp_path, **options).error, CorruptRecordError)


def test_damage_outside_the_physical_offsets_asked_for_is_not_told(log: LogBuilder, tmp_path: Path) -> None:
    record = break_field(log, 17, MAGIC_AT, 1)
    root = log.write(tmp_path)

    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        assert offsets(root, mode=mode, ending_offsets=record.physical_offset) == placed(log, *range(17))
        assert offsets(root, mode=mode, starting_offsets=record.end) == placed(log, *range(18, 30))
    assert isinstance(Read(root, starting_offsets=record.end - 1).error, CorruptRecordError)


def test_damage_larger_than_a_piece_has_several_rows(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store_core.store.read.chunk_rows._DAMAGED_PIECE", 40)
    record = break_field(log, 17, MAGIC_AT, 1)
    rows = [row for row in Read(log.write(tmp_path), mode="PERMISSIVE").rows if row["_corrupt_record"] is not None]

    assert [row["physical_offset"] for row in rows] == [*range(record.physical_offset, record.end, 40)]
    assert b"".join(row["_corrupt_record"] for row in rows) == stored_bytes(tmp_path, record)


def test_every_damage_is_told_in_its_place(log: LogBuilder, tmp_path: Path) -> None:
    for number, at in ((0, MAGIC_AT), (3, CRC_AT), (4, SIZE_AT), (12, MAGIC_AT), (13, CRC_AT), (25, CRC_AT)):
        break_field(log, number, at, 1)
    root = log.write(tmp_path)

    for rows in (1, 2, 1000):
        assert Read(root, mode="PERMISSIVE", max_records_per_batch=rows).offsets == without(log)
        assert Read(root, mode="DROPMALFORMED", max_records_per_batch=rows).offsets == without(log, 0, 3, 4, 12, 13, 25)


def test_a_file_of_something_else_is_damage(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"something else entirely" * 10)

    assert "bad magic code at offset 0" in str(Read(tmp_path).error)
    assert Read(tmp_path, mode="DROPMALFORMED").rows == []
    assert [len(row["_corrupt_record"]) for row in Read(tmp_path, mode="PERMISSIVE").rows] == [230]


def test_a_compressed_body_that_can_not_be_expanded_is_damage_where_it_is_to_be(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append(b"first")
    log.append(b"no zlib stream", sys_flag=0x301)
    log.append(b"last")
    root = log.write(tmp_path)

    assert len(Read(root).rows) == 3
    assert Read(root, decompress=True).offsets == placed(log, 0)
    assert Read(root, decompress=True, mode="DROPMALFORMED").offsets == placed(log, 0, 2)
    assert Read(root, decompress=True, mode="PERMISSIVE").offsets == placed(log, 0, 1, 2)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_body_that_no_consumer_expands_is_null_and_its_record_keeps_all_else(
    field: Callable[[str], Path], rows: int
) -> None:
    """RocketMQ's decoder has a body, which may be empty, for seven of the fourteen."""
    path = field("compress-odd") / "store"
    stored = Read(path, mode="PERMISSIVE").rows
    found = Read(path, mode="PERMISSIVE", decompress=True, max_records_per_batch=rows).rows
    heads = [{**row, "body": None, "_corrupt_record": None} for row in found]
    lost = [row["keys"][0] for row in found if row["body"] is None]

    assert heads == [{**row, "body": None} for row in stored]
    assert lost == [
        *("plain-but-flagged", "raw-deflate", "gzip", "unknown-type-4"),
        *("zlib-truncated", "zlib-badadler", "lz4-type-zlib-bytes"),
    ]
    assert [row["keys"][0] for row in found if row["_corrupt_record"] is not None] == lost
    assert all(b"decompress=false" in row["_corrupt_record"] for row in found if row["body"] is None)
    assert len(Read(path, mode="DROPMALFORMED", decompress=True).rows) == 7
    assert "at offset 149" in str(Read(path, decompress=True).error)


@pytest.mark.parametrize(
    "options",
    [{}, {"columns": "keys"}, {"columns": "physical_offset"}, {"topic": "test-topic", "use_consume_queues": "never"}],
)
def test_a_record_must_match_the_checksum_over_all_of_it(field: Callable[[str], Path], options: dict[str, Any]) -> None:
    path = field("propcrc") / "store"
    found = Read(path, **options)

    assert len(found.rows) == 9
    assert "bad checksum over the record at offset 1800 of" in str(found.error)
    assert len(Read(path, mode="DROPMALFORMED", **options).rows) == 9
    assert len(Read(path, mode="PERMISSIVE", **options).rows) == 10
    assert len(Read(path, verify_crc=False, **options).rows) == 10


# -------------------------------------------------------------------------------------------- times that no table has

_BORN = {
    **dict(zip(("ok", "zero", "minus1", "micros"), (1_700_000_000_000, 0, -1, 1_700_000_000_000_000), strict=True)),
    **dict(zip(("nanos", "max", "min"), (1_700_000_000_000_000_000, (1 << 63) - 1, -(1 << 63)), strict=True)),
    **dict(zip(("y9999", "y10000", "seconds"), (253_402_300_799_999, 253_402_300_800_000, 1_700_000_000), strict=True)),
    **dict(zip(("us-limit", "us-limit1"), (9_223_372_036_854_775, 9_223_372_036_854_776), strict=True)),
    **dict(zip(("y2300", "before-gregorian"), (10_413_792_000_000, -12_219_292_800_001), strict=True)),
}
_NULL = ("micros", "nanos", "max", "min", "y10000", "us-limit", "us-limit1")


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_a_time_outside_the_calendar_is_null_with_one_warning_and_its_number_is_there(
    field: Callable[[str], Path], rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    columns = ["keys", "born_timestamp", "born_timestamp_ms", "store_timestamp", "store_timestamp_ms"]
    path = field("born-extreme") / "born" / "store"
    found = read_messages(path, columns=columns, max_records_per_batch=rows, max_partition_bytes=200).read_all()
    born = dict(zip((keys[0] for keys in found["keys"].to_pylist()), found["born_timestamp"].to_pylist(), strict=True))

    assert dict(zip(born, found["born_timestamp_ms"].to_pylist(), strict=True)) == _BORN
    assert tuple(name for name, time in born.items() if time is None) == _NULL
    assert born["y9999"] == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert [round(time.timestamp() * 1000) for time in found["store_timestamp"].to_pylist()] == found[
        "store_timestamp_ms"
    ].to_pylist()
    (record,) = caplog.records
    assert "offset 318: its born_timestamp is 1700000000000000 ms" in record.getMessage()
    assert "born_timestamp_ms" in record.getMessage()


# ------------------------------------------------------------------------------------------------- files that are wrong


def test_a_renamed_file_is_damage_and_told_so(root: Path) -> None:
    renamed = root / "commitlog" / f"{0:020d}"
    (root / "commitlog" / f"{SIZE:020d}").replace(renamed)
    read = Read(renamed)

    assert read.rows == []
    assert f"expected physical offset 0, found {SIZE}" in str(read.error)
    assert "If the file was renamed" in str(read.error)


@pytest.mark.parametrize("options", [{"fail_on_data_loss": False}, {"mode": "DROPMALFORMED"}])
def test_a_last_file_that_was_cut_inside_a_record_is_damage_and_read_as_far_as_it_goes(
    root: Path, log: LogBuilder, options: dict[str, Any]
) -> None:
    last = root / "commitlog" / f"{log.end // SIZE * SIZE:020d}"
    last.write_bytes(last.read_bytes()[: log.end % SIZE - 5])
    (root / "commitlog" / f"{(log.end // SIZE + 1) * SIZE:020d}").unlink()
    read = Read(root)

    assert read.offsets == placed(log, *range(29)) == offsets(root, **options)
    for text in ("torn record", "shorter than the others", "failOnDataLoss=false"):
        assert text in str(read.error)


def test_a_short_file_in_the_middle_is_read_as_far_as_it_goes(root: Path, log: LogBuilder) -> None:
    path = root / "commitlog" / f"{SIZE:020d}"
    path.write_bytes(path.read_bytes()[:1000])
    cut = [
        number
        for number, at in enumerate(without(log))
        if SIZE <= at < 2 * SIZE and log.records[number].end > SIZE + 1000
    ]

    with pytest.raises(SegmentLayoutError, match=f"is too short: expected {SIZE} bytes, found 1000"):
        read_messages(root)
    for options in ({"fail_on_data_loss": False}, {"mode": "DROPMALFORMED"}):
        assert offsets(root, **options) == without(log, *cut)
    assert Read(root, mode="PERMISSIVE").offsets == without(log, *cut[1:])


# --------------------------------------------------------------------------------------------------- files that vanish


def test_a_segment_that_vanishes_is_an_error_that_names_the_way_on(root: Path) -> None:
    reader = read_messages(root, max_records_per_batch=5)
    (root / "commitlog" / f"{SIZE:020d}").unlink()

    with pytest.raises(SegmentVanishedError, match=r"failOnDataLoss=false"):
        reader.read_all()


def test_a_segment_that_vanishes_is_left_out_if_the_options_say_so(
    root: Path, log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    reader = read_messages(root, fail_on_data_loss=False)
    (root / "commitlog" / f"{0:020d}").unlink()
    found = reader.read_all().column("physical_offset").to_pylist()

    assert found == [at for at in without(log) if at >= SIZE]
    assert f"deletes old segments. What it had from offset 0 to {SIZE} is lost" in caplog.text
    assert "fail_on_data_loss" not in caplog.text


def test_a_segment_that_became_shorter_is_not_mapped(root: Path) -> None:
    reader = read_messages(root)
    (root / "commitlog" / f"{SIZE:020d}").write_bytes(bytes(100))

    with pytest.raises(SegmentVanishedError, match="100 bytes now"):
        reader.read_all()


# -------------------------------------------------------------------------------------------------------------- ranges


def test_a_read_walks_every_segment_once(root: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def counted(
        raw: npt.NDArray[np.uint8], begin: int, end: int, start_offset: int, framing: Framing, *, lanes: int | None
    ) -> Scan:
        walked.append(start_offset + begin)
        return chain(raw, begin, end, start_offset, framing, lanes=lanes)

    monkeypatch.setattr("store_core.format.columnar.chain.chain", counted)

    assert offsets(root) == without(log)
    assert sorted(walked) == [0, SIZE, 2 * SIZE, 3 * SIZE]  # the last one is pre-allocated
