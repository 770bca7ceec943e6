# SPDX-License-Identifier: Apache-2.0
"""A store whose queues are in a RocksDB is scanned, and the plan says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.files.store_path import list_segments
from store_core.store.read.lookup.costs import LookUpCosts
from store_core.store.read.lookup.queue_look_up import Unsuitable, plan_queue_look_up
from store_core.store.read.read_options import ReadOptions
from tests.golden_stores import newer_store, unpack

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.golden
def test_rows_of_a_queue_are_those_of_a_scan(golden_directory: Path) -> None:
    golden = newer_store("5.5.0/rocksdb-crash")
    assert golden is not None
    store = unpack(golden, golden_directory)
    segments = list_segments(str(store.root)).segments
    options, costs = ReadOptions(topic=("orders",), queue_id=(1,)), LookUpCosts(least_log=0)

    plan = plan_queue_look_up(str(store.root), segments, 1 << 30, options, costs)
    assert isinstance(plan, Unsuitable)
    assert "in a RocksDB" in plan.reason
    rows = read_messages(store.root, columns=["queue_offset"], topic="orders", queue_id=1).read_all()
    assert [
        row["queue_offset"] for row in store.expected() if (row["topic"], row["queue_id"]) == ("orders", 1)
    ] == rows["queue_offset"].to_pylist()
