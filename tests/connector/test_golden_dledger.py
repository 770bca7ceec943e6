# SPDX-License-Identifier: Apache-2.0
"""Golden stores with a DLedger log read through Spark as RocketMQ read them, field by field, whatever the split."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.format.columns import COLUMNS, STORE
from tests.golden_stores import GoldenStore, stores_of_kind, table_rows, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connector.stores import Reader

pytestmark = [pytest.mark.spark, pytest.mark.golden]

ALL = [column.name for column in COLUMNS if column.name != STORE]


@pytest.mark.parametrize("golden", stores_of_kind("dledger"), ids=attrgetter("name"))
def test_every_message_is_as_rocketmq_reads_it(read: Reader, golden: GoldenStore, golden_directory: Path) -> None:
    store = unpack(golden, golden_directory)
    table = read(store.root, columns=",".join(ALL), minPartitions="13").toArrow()

    assert store.expected() == table_rows(table)
    assert read_messages(store.root, columns=ALL).read_all().equals(table)
