# SPDX-License-Identifier: Apache-2.0
"""Staged records are read back as they were, or not at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import CorruptRecordError, StoreNotFoundError
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.record.encode import EncodeRules
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.stored_batch import DerivedColumns
from store_core.store.sink.staged_batch import StagedBatch, StagedBatchWriter, read_staged, stage_batches
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.sink.staging import CONFIG, stage, table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("times", [None, [5, 6, 7]])
@pytest.mark.parametrize("append_property_crc", [False, True])
def test_records_come_back_as_they_were(times: list[int] | None, append_property_crc: bool, tmp_path: Path) -> None:
    rules = EncodeRules(append_property_crc=append_property_crc)
    records = encode_batch(table([b"a", b"", b"c" * 5000]), rules)
    with StagedBatchWriter(tmp_path / "staged", FaultyFileSystem()) as writer:
        for _ in range(2):
            writer.write(StagedBatch(records, None if times is None else np.array(times, np.int64)))
        staged = writer.finish()
    found = list(read_staged(staged))

    assert (6, 2 * records.data.size) == (staged.records, staged.log_bytes)
    assert len(found) == 2
    for batch in found:
        assert batch.records.data.flags.writeable
        for name in ("data", "starts", "queue_index", "is_queued", "v6_bits"):
            assert np.array_equal(getattr(records, name), getattr(batch.records, name))
        assert (records.queues, append_property_crc) == (batch.records.queues, batch.records.append_property_crc)
        assert times == (None if batch.store_timestamps is None else batch.store_timestamps.tolist())


@pytest.mark.parametrize("is_index_enabled", [False, True])
def test_what_is_derived_comes_back_with_the_records(is_index_enabled: bool, tmp_path: Path) -> None:
    rules = replace(CONFIG, message_index_enable=is_index_enabled).queue_rules()
    batch = StagedBatch(encode_batch(table([b"a", b"b", b"c"]))).with_derived(rules)
    with StagedBatchWriter(tmp_path / "staged", FaultyFileSystem()) as writer:
        for each in (batch, replace(batch, derived=None)):
            writer.write(each)
        staged = writer.finish()
    found, without = (each.derived for each in read_staged(staged))

    assert batch.derived is not None
    assert found is not None
    assert without is None
    assert 3 * is_index_enabled == found.index_hashes.rows.size
    assert _columns(batch.derived) == _columns(found)


def _columns(derived: DerivedColumns) -> list[tuple[str, list[int]]]:
    columns = derived.tags_code, derived.index_hashes.rows, derived.index_hashes.hashes
    return [(str(column.dtype), column.tolist()) for column in columns]


def test_hashes_that_are_none_are_refused(tmp_path: Path) -> None:
    records = encode_batch(table([b"a"]))
    derived = DerivedColumns(np.zeros(1, np.int64), IndexHashes(np.zeros(1, np.int64), np.array([-1], np.int32)))
    with StagedBatchWriter(tmp_path / "staged", FaultyFileSystem()) as writer:
        writer.write(StagedBatch(records, derived=derived))
        staged = writer.finish()

    with pytest.raises(CorruptRecordError, match="hashes of keys are not valid"):
        list(read_staged(staged))


def test_a_batch_without_records_is_not_written(tmp_path: Path) -> None:
    with StagedBatchWriter(tmp_path / "staged", FaultyFileSystem()) as writer:
        writer.write(StagedBatch(encode_batch(table([]))))
        staged = writer.finish()

    assert (0, []) == (staged.records, list(read_staged(staged)))


@given(sizes=st.lists(st.integers(1, 9), max_size=6), file_bytes=st.integers(1, 2000))
def test_batches_lie_in_files_of_moderate_size_in_their_order(
    sizes: list[int], file_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("staged")
    batches = [StagedBatch(encode_batch(table([b"x"] * size))) for size in sizes]
    paths = (directory / f"{number}" for number in count())
    files = list(stage_batches(batches, paths, FaultyFileSystem(), file_bytes))
    found = [batch.records.data.tobytes() for file in files for batch in read_staged(file)]

    assert [batch.records.data.tobytes() for batch in batches] == found
    assert [file.path for file in files] == [directory / f"{number}" for number in range(max(len(files), 1))]
    for file in files[:-1]:
        *before, last = (len(batch.records.data) for batch in read_staged(file))
        assert sum(before) < file_bytes <= sum(before) + last


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    staged = stage(tmp_path / "staged", [b"a"])
    staged.path.unlink()

    with pytest.raises(StoreNotFoundError, match="staged, where a task left its records, is gone"):
        list(read_staged(staged))


@given(data=st.data())
def test_a_file_with_a_changed_byte_is_refused_or_has_as_many_records(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    staged = stage(tmp_path_factory.mktemp("staged") / "a", [b"one", b"two"], [b"three"])
    content = bytearray(staged.path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    staged.path.write_bytes(content)
    try:
        found = sum(len(batch.records) for batch in read_staged(staged))
    except CorruptRecordError:
        return

    assert found == staged.records


@pytest.mark.parametrize("name", ["records", "log_bytes", "file_size"])
def test_a_file_that_is_not_what_its_writer_remembers_is_refused(name: str, tmp_path: Path) -> None:
    staged = stage(tmp_path / "staged", [b"a"])

    with pytest.raises(CorruptRecordError, match="expected"):
        list(read_staged(replace(staged, **{name: getattr(staged, name) + 1})))


def test_another_arrow_file_is_refused(tmp_path: Path) -> None:
    staged = stage(tmp_path / "staged", [b"a"])
    other = pa.table({"a": [1]})
    with pa.ipc.new_stream(str(staged.path), other.schema) as stream:
        stream.write_table(other)

    with pytest.raises(CorruptRecordError, match="no staged records"):
        list(read_staged(replace(staged, file_size=staged.path.stat().st_size)))
