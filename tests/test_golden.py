# SPDX-License-Identifier: Apache-2.0
"""Every golden store is read as RocketMQ read it, field by field and in every way to read it, DLedger logs too."""

from __future__ import annotations

import json
import re
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from store_core import read_messages, read_view
from store_core.answers import check, diff
from store_core.errors import UnsupportedStoreError
from store_core.format.columnar.chain import scan
from store_core.format.columnar.records import Decoding, Records, decode_records
from store_core.format.columns import COLUMNS, STORE
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import StopReason, follow_frames
from tests.golden_stores import (
    GoldenStore,
    Row,
    UnpackedStore,
    assert_same_rows,
    message_rows,
    stores_of_kind,
    table_rows,
    unpack,
    unpack_field_case,
)
from tests.segment import assert_same_scan

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.golden

ALL = [column.name for column in COLUMNS if column.name != STORE]  # whose value is no message's


def scalar_rows(segment: Path, parser: PropertyParser) -> list[Row]:
    """Read a segment record by record."""
    data, start_offset = memoryview(segment.read_bytes()), int(segment.name)
    starts = follow_frames(data, start_offset=start_offset, verify_crc=True).starts.tolist()
    return message_rows((decode_message(data, start, start_offset, parser=parser) for start in starts), segment.name)


def test_record_by_record_every_message_is_as_rocketmq_reads_it(golden_store: UnpackedStore) -> None:
    parser = PropertyParser.of_release(golden_store.golden.release)
    actual = chain.from_iterable(scalar_rows(segment, parser) for segment in golden_store.segments)

    assert_same_rows(golden_store.expected(), list(actual))


def test_the_id_that_a_producer_got_is_the_first_unique_key(golden_store: UnpackedStore) -> None:
    """The last one, which RocketMQ reads, is that of the batch in messages of a client's batch."""
    first = re.compile(rb"(?:^|\x02)UNIQ_KEY\x01([^\x01\x02]+)")
    found = [first.search(packed) for packed in golden_store.raw_properties()]
    columns = [
        decode_records(
            Records(raw, scan(raw, start_offset=int(segment.name)).starts, segment.name, int(segment.name)),
            ["uniq_msg_id"],
            Decoding(),
        )
        .batch["uniq_msg_id"]
        .to_pylist()
        for segment in golden_store.segments
        for raw in [np.fromfile(segment, np.uint8)]
    ]

    assert list(chain.from_iterable(columns))[: len(found)] == [each and each[1].decode() for each in found]


@pytest.mark.parametrize("decompress", [False, True])
def test_read_messages_gives_what_rocketmq_reads(golden_store: UnpackedStore, decompress: bool) -> None:
    release = golden_store.golden.release
    table = read_messages(golden_store.root, columns=ALL, release=release, decompress=decompress).read_all()
    table.validate(full=True)

    assert_same_rows(golden_store.expected(decompress=decompress), table_rows(table))


def test_only_the_end_of_a_torn_log_is_warned_of(golden_store: UnpackedStore, caplog: pytest.LogCaptureFixture) -> None:
    read_messages(golden_store.root, release=golden_store.golden.release).read_all()

    assert ["the log ends"] * golden_store.golden.is_torn == [text.split(" at ")[0] for text in caplog.messages]


def test_small_batches_give_the_same_rows(golden_store: UnpackedStore) -> None:
    reader = read_messages(golden_store.root, max_records_per_batch=50)
    batches = list(reader)

    assert max((batch.num_rows for batch in batches), default=0) <= 50
    assert pa.Table.from_batches(batches, reader.schema).equals(read_messages(golden_store.root).read_all())


def test_cursors_and_chain_find_the_same_records(golden_store: UnpackedStore) -> None:
    for segment in golden_store.segments:
        data, start_offset = segment.read_bytes(), int(segment.name)
        expected = follow_frames(memoryview(data), start_offset=start_offset)
        for lanes in (None, 1, 100, 1000):
            assert_same_scan(expected, scan(np.frombuffer(data, np.uint8), start_offset=start_offset, lanes=lanes))


def test_segments_end_as_rocketmq_ended_them(golden_store: UnpackedStore) -> None:
    """All but the last end with a blank record, the last one with zeros, or with its damage."""
    ends = [
        follow_frames(memoryview(path.read_bytes()), start_offset=int(path.name), verify_crc=True)
        for path in golden_store.segments
    ]
    written = [end for end in ends if end.stop]
    last = written[-1]

    assert {end.reason for end in written[:-1]} <= {StopReason.END_OF_FILE}
    assert last.reason.is_damage is golden_store.golden.is_torn
    if golden_store.golden.is_torn:
        start_offset = int(golden_store.segments[len(written) - 1].name)
        assert start_offset + last.stop == golden_store.info["tornRecordPhysicalOffset"]


@pytest.fixture(params=stores_of_kind("dledger"), ids=attrgetter("name"))
def dledger(request: pytest.FixtureRequest, golden_directory: Path) -> UnpackedStore:
    golden: GoldenStore = request.param
    return unpack(golden, golden_directory)


def rows_of(dledger: UnpackedStore, name: str, *columns: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_view(dledger.root, name, columns=list(columns)).read_all().to_pylist()
    return rows


@pytest.mark.parametrize("size", [None, 20_000])
def test_every_message_of_a_dledger_log_is_as_rocketmq_reads_it(
    dledger: UnpackedStore, size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    table = read_messages(dledger.root, columns=ALL, max_partition_bytes=size).read_all()
    table.validate(full=True)
    assert not caplog.messages
    assert_same_rows(dledger.expected(), table_rows(table))


def test_entries_are_numbered_and_committed(dledger: UnpackedStore) -> None:
    columns = ["segment", "dledger_index", "dledger_term", "dledger_committed"]
    rows = read_messages(dledger.root, columns=columns).read_all().to_pylist()
    old = {path.name for path in dledger.segments if path.parent.name == "commitlog"}
    entries = [row for row in rows if row["segment"] not in old]

    assert [(number, 0, True) for number in range(762)] == [
        (row["dledger_index"], row["dledger_term"], row["dledger_committed"]) for row in entries
    ]
    assert all(row[name] is None for row in rows if row["segment"] in old for name in columns[1:])


def test_units_and_bounds_of_queues_are_those_that_rocketmq_reads(dledger: UnpackedStore) -> None:
    lines = map(json.loads, dledger.path.joinpath("queues.jsonl").read_text().splitlines())
    queues = [line for line in lines if line["type"] == "queue"]
    units = rows_of(dledger, "consumequeue", "topic", "queue_id", "queue_offset", "physical_offset", "store_size")
    found = rows_of(dledger, "topics", "topic", "queue_id", "min_offset", "max_offset", "newest_store_timestamp")
    times = {row["physical_offset"]: row["store_timestamp"] for row in dledger.expected()}
    last = {(queue["topic"], queue["queueId"]): times[queue["units"][-1]["pos"]] for queue in queues if queue["units"]}

    assert {
        (queue["topic"], queue["queueId"], unit["offset"], unit["pos"], unit["size"])
        for queue in queues
        for unit in queue["units"]
    } == {tuple(row.values()) for row in units}
    assert {
        (line["topic"], line["queueId"], line["minOffset"], line["maxOffset"]) for line in queues if line["units"]
    } == {tuple(row.values())[:4] for row in found}
    assert last == {
        (row["topic"], row["queue_id"]): round(row["newest_store_timestamp"].timestamp() * 1000) for row in found
    }


def test_the_log_ends_where_rocketmq_ends_it(dledger: UnpackedStore) -> None:
    rows = rows_of(dledger, "segments", "data_end", "messages", "is_last", "stop_reason")

    assert dledger.info["maxPhyOffset"] == rows[-1]["data_end"]
    assert len(dledger.expected()) == sum(row["messages"] for row in rows)
    assert [False] * (len(rows) - 1) + [True] == [row["is_last"] for row in rows]


# ---- a log in several directories


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """Unpack a store of RocketMQ 4.9.7 whose DLedger log is in three directories, beside its configuration."""
    root = unpack_field_case("dledger-multipath", tmp_path) / "store"
    paths = ",".join(f"{root}/multi/{name}" for name in "abc")
    (tmp_path / "broker.conf").write_text(
        f"storePathRootDir={root}\nenableDLegerCommitLog=true\ndLegerSelfId=n0\nstorePathDLedgerCommitLog={paths}\n"
    )
    return root


def test_a_dledger_log_in_several_directories_is_read_by_its_configuration(
    spread: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = read_messages(spread, config=tmp_path / "broker.conf", columns=["queue_offset", "body"]).read_all()
    topics = read_view(spread, "topics", config=tmp_path / "broker.conf", columns=["messages"]).read_all()

    assert list(range(1000)) == rows["queue_offset"].to_pylist()
    assert [1000] == topics["messages"].to_pylist()
    assert not caplog.records


@pytest.mark.parametrize("order", ["abc", "cab"])
def test_a_dledger_log_in_several_directories_is_read_from_their_list(
    spread: Path, tmp_path: Path, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = read_messages(spread, config=tmp_path / "broker.conf").read_all()
    rows = read_messages([spread / "multi" / name for name in order]).read_all()

    assert whole.equals(rows)
    assert 1 == sum("which of its entries are committed is not known" in each.getMessage() for each in caplog.records)
    assert (
        read_messages(spread, store_path_commit_log=f"{spread}/multi/a,{spread}/multi/b,{spread}/multi/c")
        .read_all()
        .equals(whole)
    )


def test_a_dledger_log_in_several_directories_is_refused_by_name_where_it_is_not_read(
    spread: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedStoreError, match="DLedger"):
        check(spread, config=tmp_path / "broker.conf")
    with pytest.raises(UnsupportedStoreError, match="DLedger"):
        diff(spread / "multi" / "a", spread / "multi" / "b")
