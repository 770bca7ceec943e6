# SPDX-License-Identifier: Apache-2.0
"""Golden stores of every kind read through Spark as RocketMQ read them, field by field, whatever the split."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

from store_core import read_view
from store_core.format.columns import COLUMNS, STORE
from tests.golden_stores import GoldenStore, UnpackedStore, stores_of_kind, table_rows, unpack, unpack_newer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connector.stores import Reader

pytestmark = [pytest.mark.spark, pytest.mark.golden]

ALL = ",".join(column.name for column in COLUMNS if column.name != STORE)
BROKERS_DATABASE = "5.5.0/rocksdb-crash"


def assert_rows_are_rocketmqs(read: Reader, store: UnpackedStore, partitions: int) -> None:
    options = {"columns": ALL, "release": store.golden.release, "minPartitions": str(partitions)}

    assert store.expected() == table_rows(read(store.root, **options).toArrow())


def test_every_message_is_as_rocketmq_reads_it(read: Reader, golden_store: UnpackedStore) -> None:
    assert_rows_are_rocketmqs(read, golden_store, 5)


@pytest.mark.parametrize("store", stores_of_kind("dledger"), ids=attrgetter("name"))
def test_so_is_every_message_of_a_dledger_log(read: Reader, store: GoldenStore, golden_directory: Path) -> None:
    assert_rows_are_rocketmqs(read, unpack(store, golden_directory), 13)


def test_so_is_every_message_beside_queues_in_a_rocksdb(read: Reader, golden_directory: Path) -> None:
    store = unpack_newer(BROKERS_DATABASE, golden_directory)

    assert_rows_are_rocketmqs(read, store, 1)
    for view, options in (("consumequeue", {"maxPartitionBytes": "10000"}), ("topics", {})):
        found = read(store.root, view=view, **options).toArrow()
        assert read_view(store.root, view).read_all().to_pylist() == found.to_pylist()


@pytest.mark.parametrize("store", stores_of_kind("timer"), ids=attrgetter("name"))
def test_views_of_timers_are_those_of_the_files(read: Reader, store: GoldenStore, golden_directory: Path) -> None:
    root = unpack(store, golden_directory).root

    for view in ("timerlog", "timerwheel"):
        assert read_view(root, view).read_all().equals(read(root, view=view).toArrow())
