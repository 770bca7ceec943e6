# SPDX-License-Identifier: Apache-2.0
"""Every golden store reads through Spark as RocketMQ read it, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.format.columns import COLUMNS, STORE
from tests.golden_stores import UnpackedStore, table_rows

if TYPE_CHECKING:
    from tests.connector.stores import Reader

pytestmark = [pytest.mark.spark, pytest.mark.golden]

ALL = ",".join(column.name for column in COLUMNS if column.name != STORE)


def test_every_message_is_as_rocketmq_reads_it_whatever_the_split(read: Reader, golden_store: UnpackedStore) -> None:
    options = {"columns": ALL, "release": golden_store.golden.release, "minPartitions": "5"}

    assert golden_store.expected() == table_rows(read(golden_store.root, **options).toArrow())
