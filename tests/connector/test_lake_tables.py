# SPDX-License-Identifier: Apache-2.0
"""A session without Delta or Iceberg says by name what it lacks, and leaves nothing; `tests/interop` has the jars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.answers import export, prove
from pyspark_commitlog.command import main
from store_core.errors import InvalidOptionError, UnsupportedStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from store_core.store.export.lake_table import LakeFormat
    from tests.connector.stores import WrittenStore

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("kind", "table", "needed"),
    [
        ("delta", None, r"io\.delta:delta-spark_\d\.\d_2\.13"),
        ("iceberg", "lake.db.t", r"org\.apache\.iceberg:iceberg-spark-runtime-\d\.\d_2\.13, and a catalog"),
    ],
)
def test_what_a_session_lacks_is_named(
    spark: SparkSession, store: WrittenStore, tmp_path: Path, kind: LakeFormat, table: str | None, needed: str
) -> None:
    with pytest.raises(UnsupportedStoreError, match=rf"format {kind} does not work in this session: .*{needed}"):
        export(spark, store.root, tmp_path / "lake", kind=kind, table=table)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".json", ".parquet", ".pending"}]


def test_a_table_is_named_where_the_format_needs_it(spark: SparkSession, store: WrittenStore, tmp_path: Path) -> None:
    for kind, table in (("iceberg", None), ("delta", "t"), ("parquet", "t")):
        with pytest.raises(InvalidOptionError, match="Iceberg needs CATALOG"):
            prove(spark, store.root, tmp_path, kind=kind, table=table)
    with pytest.raises(InvalidOptionError, match="expected one of parquet, iceberg, delta, found 'hudi'"):
        prove(spark, store.root, tmp_path, kind="hudi")
    assert 2 == main(["export", str(store.root), "--into", str(tmp_path), "--format", "iceberg"])
