# SPDX-License-Identifier: Apache-2.0
"""Every golden store is read as RocketMQ read it, field by field, in every way to read it."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from store_core import read_messages
from store_core.format.columnar.decode_batch import Decoding, decode_records
from store_core.format.columnar.lockstep import scan
from store_core.format.columnar.records import Records
from store_core.format.columns import COLUMNS, STORE
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import StopReason, follow_chain
from tests.golden_stores import Row, UnpackedStore, message_rows, table_rows
from tests.segment import assert_same_scan

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.golden

ALL = [column.name for column in COLUMNS if column.name != STORE]  # whose value is no message's


def assert_same_rows(expected: list[Row], actual: list[Row]) -> None:
    """Compare row by row first: the difference of two rows is readable, that of two thousand is not."""
    for row, other in zip(expected, actual, strict=False):
        assert row == other
    assert len(expected) == len(actual)


def scalar_rows(segment: Path, parser: PropertyParser) -> list[Row]:
    """Read a segment record by record."""
    data, start_offset = memoryview(segment.read_bytes()), int(segment.name)
    starts = follow_chain(data, start_offset=start_offset, verify_crc=True).starts.tolist()
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
        expected = follow_chain(memoryview(data), start_offset=start_offset)
        for lanes in (None, 1, 100, 1000):
            assert_same_scan(expected, scan(np.frombuffer(data, np.uint8), start_offset=start_offset, lanes=lanes))


def test_segments_end_as_rocketmq_ended_them(golden_store: UnpackedStore) -> None:
    """All but the last end with a blank record, the last one with zeros, or with its damage."""
    ends = [
        follow_chain(memoryview(path.read_bytes()), start_offset=int(path.name), verify_crc=True)
        for path in golden_store.segments
    ]
    written = [end for end in ends if end.stop]
    last = written[-1]

    assert {end.reason for end in written[:-1]} <= {StopReason.END_OF_FILE}
    assert last.reason.is_damage is golden_store.golden.is_torn
    if golden_store.golden.is_torn:
        start_offset = int(golden_store.segments[len(written) - 1].name)
        assert start_offset + last.stop == golden_store.info["tornRecordPhysicalOffset"]
