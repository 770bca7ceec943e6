# SPDX-License-Identifier: Apache-2.0
"""The reader equals a loop over the definition, whole or window by window; what is derived while encoding equals it."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import MessageStoreConfig
from store_core.errors import CorruptRecordError
from store_core.format.columnar import chain, property_columns, spans
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch, encode_batch
from store_core.format.record.encode import EncodeRules
from store_core.format.release import RELEASES as ALL_RELEASES
from store_core.format.release import Release
from store_core.format.segment_view import Piece, SegmentView
from store_core.queue.dispatch import dispatch_reader
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.dispatch_reader import DispatchReader, WindowReader
from store_core.queue.dispatch.rocketmq_check import REPUT, Strictness
from store_core.queue.dispatch.stored_batch import DerivedColumns, derive_columns
from store_core.queue.queue_path import QueueRules
from tests.builders import MAGIC_AT, MAGIC_BLANK, Record, blank_record
from tests.segment import windowed
from tests.store_core.format.columnar.test_encode_batch import BORN, TIME, batches
from tests.store_core.queue.dispatch_logs import (
    RELEASES,
    assert_reads_as_loop,
    dispatch_logs,
    readings,
)
from tests.strategies import Log, layouts, mutated

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt


RECOVERY = Strictness(check_crc=True, read_body=True)
MOST_MEMORY = 16 << 20
Reading = tuple[QueueRules, Strictness]

batch_rows = st.sampled_from([1, 2, 5, 1 << 14])


@pytest.fixture(scope="module", autouse=True)
def fast_paths_from_the_first_record() -> Iterator[None]:
    """Take every fast path, however little there is to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch_reader, "_FEW_BYTES", 0)
        patch.setattr(property_columns, "_FEWEST_ROWS", 1)
        yield


@contextmanager
def small_pieces() -> Iterator[None]:
    """Split logs as if they were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(property_columns, "_CUT_BYTES", 100)
        patch.setattr(property_columns, "_BLOCK", 200)
        patch.setattr(spans, "_TOGETHER_BYTES", 1 << 11)
        yield


@given(dispatch_logs() | layouts(), readings(), batch_rows)
def test_reader_equals_the_loop(log: Log, reading: Reading, batch_rows: int) -> None:
    assert_reads_as_loop(log, 0, *reading, batch_rows)


@given(mutated(dispatch_logs()), readings(), batch_rows)
def test_reader_equals_the_loop_on_damage(log: Log, reading: Reading, batch_rows: int) -> None:
    assert_reads_as_loop(log, 0, *reading, batch_rows)


@given(mutated(dispatch_logs()) | dispatch_logs(), readings(), batch_rows)
def test_reader_equals_the_loop_where_the_log_is_read_in_pieces(log: Log, reading: Reading, batch_rows: int) -> None:
    with small_pieces():
        assert_reads_as_loop(log, 0, *reading, batch_rows)


@given(mutated(dispatch_logs()), readings(), st.integers(0, 13))
def test_reader_equals_the_loop_from_any_record(log: Log, reading: Reading, number: int) -> None:
    position = log.starts[number] if number < len(log.starts) else number

    assert_reads_as_loop(log, position, *reading, 1 << 14)


def log_of(*records: Record | bytes) -> Log:
    return Log(b"".join(record if isinstance(record, bytes) else record.encode() for record in records))


def many(count: int, **fields: object) -> list[Record]:
    return [Record(b"%d" % number, queue_offset=number, **fields) for number in range(count)]  # type: ignore[arg-type]


def test_a_checksum_that_is_wrong_ends_the_log_only_where_it_is_checked() -> None:
    log = log_of(*many(30), Record(b"body", crc=1), *many(30))
    raw = np.frombuffer(log.data, np.uint8)

    assert 30 == sum(map(len, DispatchReader(Piece(raw, 0), 0, QueueRules(), RECOVERY)))
    assert 61 == sum(map(len, DispatchReader(Piece(raw, 0), 0, QueueRules(), REPUT)))


def test_a_reader_stopped_between_batches_stands_behind_the_last_one() -> None:
    log = log_of(*many(10), blank_record(100))
    reader = DispatchReader(Piece(np.frombuffer(log.data, np.uint8), 0), 0, QueueRules(), REPUT, batch_rows=4)
    batches = iter(reader)
    next(batches)

    assert len(log_of(*many(4)).data) == reader.position

    assert [4, 2] == [len(batch) for batch in batches]
    assert reader.end.is_blank
    assert len(log.data) - 100 == reader.position


@pytest.mark.parametrize("size", [(1 << 31) - 1, -(1 << 31), -1, 0, 1, 90])
@pytest.mark.parametrize("release", RELEASES)
def test_absurd_sizes_end_the_log_without_their_memory(size: int, release: Release) -> None:
    damaged = bytearray(Record(b"x" * 100).encode())
    struct.pack_into(">i", damaged, 0, size)
    log = log_of(*many(5), bytes(damaged), bytes(500))
    tracemalloc.start()
    try:
        assert_reads_as_loop(log, 0, QueueRules(release=release), RECOVERY, 1 << 14)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MOST_MEMORY


def test_every_record_of_another_queue_and_long_topics_read_as_the_loop() -> None:
    odd = [Record(topic="t" * 32_000 + str(number), version=2, queue_id=number) for number in range(8)]
    log = log_of(*(Record(topic=f"topic-{number}", queue_id=-number) for number in range(3000)), *odd)

    assert_reads_as_loop(log, 0, QueueRules(), REPUT, 1000)


def test_properties_of_separators_alone_read_as_the_loop() -> None:
    rows = [b"\x02" * 32_767, b"\x01" * 32_767, b"\x01\x02" * 16_000, b"KEYS\x01" + b" " * 32_000 + b"\x02"]
    log = log_of(*(Record(properties=row) for row in rows * 2))

    assert_reads_as_loop(log, 0, QueueRules(), REPUT, 1 << 14)


def test_strings_full_of_separators_take_bounded_memory() -> None:
    raw = np.frombuffer(log_of(*[Record(properties=b"\x02" * 32_767)] * 300).data, np.uint8)
    tracemalloc.start()
    try:
        rows = sum(map(len, DispatchReader(Piece(raw, 0), 0, QueueRules(), REPUT)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert rows == 300
    assert peak < 10 * MOST_MEMORY


def test_a_record_that_changed_since_is_an_error_and_not_another_request() -> None:
    data = bytearray(log_of(*many(3)).data)
    (batch,) = DispatchReader(Piece(np.frombuffer(data, np.uint8), 4096), 0, QueueRules(), REPUT)
    data[MAGIC_AT] = 0

    with pytest.raises(CorruptRecordError, match="changed while it was read at offset 4096"):
        batch.request(0)


@given(mutated(dispatch_logs()) | dispatch_logs() | layouts(), readings(), st.data())
def test_windows_give_what_all_bytes_give(
    log: Log, reading: tuple[QueueRules, Strictness], data: st.DataObject
) -> None:
    rules, checks = reading
    limit = data.draw(st.integers(0, len(log.data)) | st.just(len(log.data)))
    raw = np.frombuffer(log.data, np.uint8)
    whole = DispatchReader(Piece(raw, log.start_offset), 0, rules, checks)
    expected = [each for batch in whole for each in zip(batch.starts.tolist(), batch.requests(), strict=True)]
    found, few = [], data.draw(st.sampled_from([8, 200, 4096]))
    with patch.multiple(chain, _LEAST=150, _LARGEST=300), patch.multiple(dispatch_reader, _FEW_BYTES=few, _HEAD=120):
        reader = WindowReader(windowed(log.data, log.start_offset), 0, rules, checks, limit=limit)
        for batch, view in reader:
            first = view.start_offset - log.start_offset
            found += [
                (first + start, each) for start, each in zip(batch.starts.tolist(), batch.requests(), strict=True)
            ]

    is_at_limit = limit < len(log.data) and whole.position >= limit
    taken = [each for each in expected if each[0] < limit] if is_at_limit else expected
    assert taken == found
    assert is_at_limit == reader.is_at_limit
    if is_at_limit:
        assert next((start for start, _ in expected if start >= limit), whole.position) == reader.position
    else:
        assert (whole.position, whole.end) == (reader.position, reader.end)


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_a_blank_record_is_not_read_however_far_it_reaches(release: Release) -> None:
    size, record = 1 << 30, Record(b"body").encode()
    source = MostlyBlank(record + struct.pack(">iI", size - len(record), MAGIC_BLANK))
    strictness = Strictness(check_crc=True, read_body=True)
    reader = WindowReader(SegmentView(source, size, 0), 0, QueueRules(release=release), strictness)

    assert [0] == [start for batch, _ in reader for start in batch.starts.tolist()]
    assert reader.end.is_blank
    assert source.asked < 4 << 20  # the first window is one of a MiB


class MostlyBlank:
    """Gives the bytes of a segment whose first ones are known, and counts those that are asked for."""

    def __init__(self, first: bytes) -> None:
        self.first = first
        self.asked = 0

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range."""
        self.asked += end - begin
        known = np.frombuffer(self.first[begin:end], np.uint8)
        return np.concatenate([known, np.zeros(end - begin - known.size, np.uint8)])


DERIVED = ("4.3", "4.9", "5.3", "5.5")


def rules_of(release: Release, **options: Any) -> QueueRules:  # noqa: ANN401 -- any setting
    return MessageStoreConfig(release=release, **options).queue_rules()


def columns(records: EncodedBatch, rules: QueueRules) -> tuple[list[int], list[tuple[int, int]]]:
    """Complete records, and ask a reader of the log for tags codes, and for the row and hash of each key."""
    data = complete_batch(records, slice(0, len(records)), 0, np.zeros(len(records), np.int64), TIME)
    codes: list[int] = []
    keys: list[tuple[int, int]] = []
    for batch in DispatchReader(
        Piece(np.frombuffer(data, np.uint8), 0), 0, rules, Strictness(check_crc=True, read_body=True)
    ):
        found = batch.index_hashes(with_tags=rules.features.indexes_tags)
        keys += zip((found.rows + len(codes)).tolist(), found.hashes.tolist(), strict=True)
        codes += batch.tags_code.tolist()
    return codes, keys


def listed(derived: DerivedColumns) -> tuple[list[int], list[tuple[int, int]]]:
    keys = derived.index_hashes
    return derived.tags_code.tolist(), list(zip(keys.rows.tolist(), keys.hashes.tolist(), strict=True))


@given(batches(), st.sampled_from(DERIVED), st.booleans(), st.sampled_from([None, 18]))
def test_columns_are_those_that_a_reader_finds(
    drawn: tuple[list[dict[str, Any]], pa.RecordBatch], release: Release, crc: bool, max_level: int | None
) -> None:
    rules = EncodeRules(release, append_property_crc=crc and release not in ("4.3", "4.9"))
    encoded = encode_batch(drawn[1], rules, born_timestamp=BORN, max_delay_level=max_level)
    derived = derive_columns(encoded, rules_of(release))

    if derived is not None:
        assert columns(encoded, rules_of(release)) == listed(derived)


def messages(**given: list[Any]) -> pa.RecordBatch:
    count = len(next(iter(given.values())))
    kinds = {"properties": pa.map_(pa.string(), pa.string())}
    columns: dict[str, list[Any]] = {"topic": ["a", "bb"] * (count // 2), "body": [b"x"] * count}
    columns |= given
    return pa.RecordBatch.from_pydict({name: pa.array(each, kinds.get(name)) for name, each in columns.items()})


@pytest.mark.parametrize("release", DERIVED)
@pytest.mark.parametrize("count", [2, 5000])
def test_tags_and_keys_of_common_messages_are_known(release: Release, count: int) -> None:
    batch = messages(
        tags=["TagA", None] * (count // 2),
        keys=["one two", "é"] * (count // 2),
        properties=[{"UNIQ_KEY": f"{number:032X}"} for number in range(count)],
    )
    encoded = encode_batch(batch, EncodeRules(release))
    derived = derive_columns(encoded, rules_of(release))

    assert derived is not None
    assert (3 if release == "5.5" else 2.5) * count == derived.index_hashes.rows.size
    assert columns(encoded, rules_of(release)) == listed(derived)


@pytest.mark.parametrize(
    "batch",
    [
        messages(delay_level=[0, 3]),
        messages(properties=[{}, {"DELAY": "1"}]),
        messages(sys_flag=[0, 4]),
        messages(sys_flag=[12, 0]),
        messages(properties=[{"INNER_MULTI_DISPATCH": "%LMQ%a"}, {}]),
        messages(topic=[], body=[]),
    ],
)
def test_what_is_not_known_yet_or_rare_is_left_to_a_reader(batch: pa.RecordBatch) -> None:
    assert derive_columns(encode_batch(batch, EncodeRules("4.9"), max_delay_level=18), rules_of("4.9")) is None


def test_records_with_room_for_a_checksum_are_left_to_a_reader() -> None:
    encoded = encode_batch(messages(tags=["a", "b"]), EncodeRules(append_property_crc=True))

    assert derive_columns(encoded, rules_of("5.3")) is None


def test_without_an_index_keys_are_not_hashed() -> None:
    encoded = encode_batch(messages(keys=["a", "b"]))
    derived = derive_columns(encoded, rules_of("5.3", message_index_enable=False))

    assert derived is not None
    assert not derived.index_hashes.rows.size


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_a_part_of_the_columns_is_that_of_its_rows(keys: list[int], data: st.DataObject) -> None:
    rows = np.repeat(np.arange(len(keys)), keys)
    whole = DerivedColumns(np.arange(len(keys)) * 7, IndexHashes(rows, np.arange(rows.size, dtype=np.int32)))
    start = data.draw(st.integers(0, len(keys)))
    stop = data.draw(st.integers(start, len(keys)))
    codes, pairs = listed(whole.rows(slice(start, stop)))

    assert [7 * row for row in range(start, stop)] == codes
    assert [(row - start, code) for row, code in listed(whole)[1] if start <= row < stop] == pairs
