# SPDX-License-Identifier: Apache-2.0
"""Golden stores through the connector: read as RocketMQ read them, and written again byte for byte."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from store_core import read_messages, read_view
from store_core.format.columns import COLUMNS, STORE
from store_core.format.layout import head_dtype
from store_core.format.properties import PROPERTY_CRC
from tests.connector.stores import append_rows
from tests.golden_stores import GoldenStore, UnpackedStore, stores_of_kind, table_rows, unpack, unpack_newer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.connector.stores import Reader


ALL = ",".join(column.name for column in COLUMNS if column.name != STORE)
BROKERS_DATABASE = "5.5.0/rocksdb-crash"


def assert_rows_are_rocketmqs(read: Reader, store: UnpackedStore, partitions: int) -> None:
    options = {"columns": ALL, "release": store.golden.release, "minPartitions": str(partitions)}

    assert store.expected() == table_rows(read(store.root, **options).toArrow())


@pytest.mark.golden
@pytest.mark.spark
def test_every_message_is_as_rocketmq_reads_it(read: Reader, golden_store: UnpackedStore) -> None:
    assert_rows_are_rocketmqs(read, golden_store, 5)


@pytest.mark.golden
@pytest.mark.spark
@pytest.mark.parametrize("store", stores_of_kind("dledger"), ids=attrgetter("name"))
def test_so_is_every_message_of_a_dledger_log(read: Reader, store: GoldenStore, golden_directory: Path) -> None:
    assert_rows_are_rocketmqs(read, unpack(store, golden_directory), 13)


@pytest.mark.golden
@pytest.mark.spark
def test_so_is_every_message_beside_queues_in_a_rocksdb(read: Reader, golden_directory: Path) -> None:
    store = unpack_newer(BROKERS_DATABASE, golden_directory)

    assert_rows_are_rocketmqs(read, store, 1)
    for view, options in (("consumequeue", {"maxPartitionBytes": "10000"}), ("topics", {})):
        found = read(store.root, view=view, **options).toArrow()
        assert read_view(store.root, view).read_all().to_pylist() == found.to_pylist()


@pytest.mark.golden
@pytest.mark.spark
@pytest.mark.parametrize("store", stores_of_kind("timer"), ids=attrgetter("name"))
def test_views_of_timers_are_those_of_the_files(read: Reader, store: GoldenStore, golden_directory: Path) -> None:
    root = unpack(store, golden_directory).root

    for view in ("timerlog", "timerwheel"):
        assert read_view(root, view).read_all().equals(read(root, view=view).toArrow())


# ---- copies


COPIED: Final = (
    *("topic", "queue_id", "body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host", "store_timestamp"),
    *("reconsume_times", "prepared_transaction_offset", "properties_string"),
)
FIELDS: Final[Mapping[str, Any]] = head_dtype().fields or {}
PHYSICAL_OFFSET: Final = FIELDS["physical_offset"][1]
QUEUE_OFFSET: Final = FIELDS["queue_offset"][1]
LONG: Final = 8

ROLLED_AS_ONE: Final = "a batch that has no room left in a segment goes to the next as a whole; rows go one by one"
FIRST_DELETED: Final = "its first segments were deleted: a copy begins at offset 0, and so do its queues"
INNER_BATCHES: Final = "inner batches are refused: only the store itself can number their messages"
CUT: Final = "its log is damaged at the end, or the next segment was made ahead: a copy has neither"
SCRATCH: Final = "RocketMQ 4.3 fills the end of a segment with what was in its buffer"

REASONS: Final = {
    **dict.fromkeys((f"{version}/batch" for version in ("4.3.0", "4.9.7", "5.3.3", "5.5.0")), ROLLED_AS_ONE),
    **dict.fromkeys(
        (f"{version}/{scenario}" for version in ("5.3.3", "5.5.0") for scenario in ("propcrc", "v2topic")),
        ROLLED_AS_ONE,
    ),
    **dict.fromkeys(
        (f"{version}/{scenario}" for version in ("5.3.3", "5.5.0") for scenario in ("aged", "aged-rebuilt")),
        FIRST_DELETED,
    ),
    **dict.fromkeys(("5.3.3/bcq", "5.5.0/bcq"), INNER_BATCHES),
    **{
        f"{release}/{scenario}": CUT
        for release in ("4.9.7", "5.3.3", "5.5.0")
        for scenario in ("crash", "torn-garble", "torn-header", "torn-zero")
    },
    **{
        f"4.3.0/{scenario}": SCRATCH
        for scenario in ("basic", "crash", "delay", "ext", "torn-garble", "torn-header", "torn-zero", "tx")
    },
}
"""Stores whose copy is a different log, and why; for all others every segment is the same."""


def copied(store: UnpackedStore, target: Path) -> int:
    """Read a store and write it again, as ``df.write`` does; return the number of rows that were refused."""
    return len(
        append_rows(
            target,
            read_messages(store.root, columns=list(COPIED), release=store.golden.release),
            release=store.golden.release,
            preserveStoreTimestamp="true",
            badRows="skip",
            mappedFileSizeCommitLog=str(max(path.stat().st_size for path in store.segments)),
            mappedFileSizeConsumeQueue="60000",
            maxHashSlotNum="100",
            maxIndexNum="20000",
            enabledAppendPropCRC=str(store.golden.scenario == "propcrc").lower(),
        ).refused
    )


def records_of(root: Path, release: str) -> dict[int, bytes]:
    """Return the bytes of each record by its physical offset."""
    table = read_messages(root, columns=["physical_offset", "store_size"], release=release).read_all()
    segments = {int(path.name): path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
    starts, found = list(segments), {}
    for offset, size in zip(*(column.to_pylist() for column in table.columns), strict=True):
        start = starts[bisect_right(starts, offset) - 1]
        found[offset] = segments[start][offset - start : offset - start + size]
    return found


def without_place(record: bytes, reason: str) -> bytes:
    """Blank what depends on where a record is."""
    data = np.frombuffer(record, np.uint8).copy()
    data[PHYSICAL_OFFSET : PHYSICAL_OFFSET + LONG] = 0
    if reason is FIRST_DELETED:
        data[QUEUE_OFFSET : QUEUE_OFFSET + LONG] = 0
    at = record.rfind(PROPERTY_CRC.encode())
    if at > 0:
        data[at + len(PROPERTY_CRC) + 1 : at + len(PROPERTY_CRC) + 11] = 0
    return data.tobytes()


@pytest.mark.golden
def test_a_golden_store_read_and_written_again_is_the_same_log(golden_store: UnpackedStore, tmp_path: Path) -> None:
    reason, release = REASONS.get(golden_store.golden.name), golden_store.golden.release
    refused = copied(golden_store, tmp_path / "copy")
    log, copy = records_of(golden_store.root, release), records_of(tmp_path / "copy", release)

    assert (refused > 0) == (reason is INNER_BATCHES)
    if reason is None:
        files = [golden_store.root / "commitlog", tmp_path / "copy" / "commitlog"]
        original, again = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in files)
        assert original == again
    elif reason in (CUT, SCRATCH):
        assert log == copy
    elif reason is INNER_BATCHES:
        assert len(log) == len(copy) + refused
    else:
        assert [without_place(each, reason) for each in log.values()] == [
            without_place(each, reason) for each in copy.values()
        ]
