# SPDX-License-Identifier: Apache-2.0
"""A store whose queues are in a RocksDB shows Spark the rows and views that Python reads, and that RocketMQ read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import read_view
from store_core.format.columns import COLUMNS, STORE
from tests.golden_stores import table_rows, unpack_newer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connector.stores import Reader

pytestmark = [pytest.mark.spark, pytest.mark.golden]


def test_rows_and_views_of_queues(read: Reader, golden_directory: Path) -> None:
    store = unpack_newer("5.5.0/rocksdb-crash", golden_directory)

    rows = read(
        store.root, columns=",".join(column.name for column in COLUMNS if column.name != STORE), release="5.5"
    ).toArrow()
    assert store.expected() == table_rows(rows)
    for view, options in (("consumequeue", {"maxPartitionBytes": "10000"}), ("topics", {})):
        found = read(store.root, view=view, **options).toArrow()
        assert read_view(store.root, view).read_all().to_pylist() == found.to_pylist()
