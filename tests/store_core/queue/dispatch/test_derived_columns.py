# SPDX-License-Identifier: Apache-2.0
"""Data derived from records while encoding equals what a reader of the log derives from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import MessageStoreConfig
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch, encode_batch
from store_core.format.record.encode import EncodeRules
from store_core.format.segment_view import Piece
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.dispatch.precomputed_batch import DerivedColumns, derive_columns
from store_core.queue.dispatch.rocketmq_check import Strictness
from tests.store_core.format.columnar.test_encode_batch import BORN, TIME, batches

if TYPE_CHECKING:
    from store_core.format.release import Release
    from store_core.queue.queue_path import QueueRules

RELEASES = ("4.3", "4.9", "5.3", "5.5")


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


@given(batches(), st.sampled_from(RELEASES), st.booleans(), st.sampled_from([None, 18]))
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


@pytest.mark.parametrize("release", RELEASES)
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
