# SPDX-License-Identifier: Apache-2.0
"""The views as Spark reads them: planned in one process, read in another; docs/views.md asks each in SQL."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_commitlog import CommitLogDataSource
from store_core import InvalidOptionError, StoreError, read_view
from store_core.views.view_columns import VIEWS
from tests.builders import stored_timer
from tests.store_core.files.rocksdbs import make_rocksdb
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_viewed_store(tmp_path_factory.mktemp("viewed") / "store")
    make_rocksdb(root / "rocksdbstore", {"timer": dict([stored_timer(5_000, "A", 0), stored_timer(6_000, "B", 100)])})
    return root


def source(path: Path, **options: str) -> CommitLogDataSource:
    return CommitLogDataSource(CaseInsensitiveDict(path=str(path), **options))


def read(path: Path, schema: Any = None, **options: str) -> list[pa.RecordBatch]:  # noqa: ANN401 -- of PySpark
    """Plan and read as Spark does, each step from a pickle."""
    made = source(path, **options)
    reader = pickle.loads(pickle.dumps(made.reader(schema or made.schema())))  # noqa: S301 -- our own bytes
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301
    return [batch for partition in partitions for batch in reader.read(partition)]


@pytest.mark.parametrize("view", VIEWS)
def test_the_rows_are_those_of_read_view(view: str, viewed: Path) -> None:
    expected = read_view(viewed, view).read_all().to_pylist()

    assert expected == [row for batch in read(viewed, view=view) for row in batch.to_pylist()]


def test_a_schema_selects_columns_and_their_order(viewed: Path) -> None:
    made = source(viewed, view="topics", columns="MESSAGES,topic", topic="orders")

    rows = [row for batch in read(viewed, made.schema(), view="topics", topic="orders") for row in batch.to_pylist()]

    assert "struct<messages:bigint,topic:string>" == made.schema().simpleString()
    assert [[30, "orders"]] * 2 == [list(row.values()) for row in rows]


def test_columns_of_another_view_are_refused(viewed: Path) -> None:
    with pytest.raises(InvalidOptionError, match="unknown column 'body'"):
        source(viewed, view="topics", columns="body").schema()


def test_an_option_that_makes_no_sense_is_refused_with_those_that_do(viewed: Path) -> None:
    with pytest.raises(InvalidOptionError, match="minPartitions does not apply to view"):
        source(viewed, view="topics", minPartitions="4").schema()
    with pytest.raises(InvalidOptionError, match="which takes columns, startingOffsets, endingOffsets, asOf"):
        source(viewed, view="segments", topic="x").schema()


def test_times_without_a_zone_wait_for_that_of_the_session(viewed: Path) -> None:
    made = source(viewed, view="index", startingTimestamp="2020-01-01T00:00:00")
    reader = made.reader(made.schema())
    (partition, *_) = reader.partitions()

    with pytest.raises(InvalidOptionError, match=r"spark\.sql\.session\.timeZone is not set"):
        list(reader.read(partition))
    assert 180 == sum(batch.num_rows for batch in read(viewed, view="index", startingTimestamp="2020-01-01T00:00:00Z"))


def test_a_view_as_of_a_time_ends_where_the_log_ended_then(viewed: Path) -> None:
    times = read_view(viewed, "messages", columns=["store_timestamp"]).read_all()["store_timestamp"]
    middle = times.cast(pa.int64()).to_pylist()[45] // 1000

    for view in ("consumequeue", "topics"):
        expected = read_view(viewed, view, as_of=middle).read_all().to_pylist()

        assert expected == [row for batch in read(viewed, view=view, asOf=str(middle)) for row in batch.to_pylist()]
    with pytest.raises(InvalidOptionError, match="option asOf"):
        source(viewed, view="topics", asOf="2024-05-01T12:00:00").schema()


def test_bounded_partitions_group_small_files(viewed: Path) -> None:
    made = source(viewed, view="consumequeue")
    small = source(viewed, view="consumequeue", maxPartitionBytes="1")

    assert 1 == len(made.reader(made.schema()).partitions())
    assert 6 == len(small.reader(small.schema()).partitions())


def test_queues_in_a_rocksdb_are_an_error_and_not_an_empty_table(tmp_path: Path) -> None:
    database = tmp_path / "store" / "consumequeue"
    database.mkdir(parents=True)
    database.joinpath("CURRENT").write_text("MANIFEST-000001")
    made = source(tmp_path / "store", view="consumequeue")
    reader = made.reader(made.schema())

    with pytest.raises(StoreError, match="RocksDB") as refused:
        reader.partitions()
    assert not isinstance(refused.value, NotImplementedError)


def test_views_are_not_written(viewed: Path) -> None:
    made = source(viewed, view="topics")

    with pytest.raises(InvalidOptionError, match="view"):
        made.writer(made.schema(), overwrite=False)


def test_an_empty_plan_gives_no_rows(viewed: Path) -> None:
    made = source(viewed, view="topics", topic="none")
    reader = made.reader(made.schema())

    assert [] == reader.partitions()
    assert [] == list(reader.read(None))  # type: ignore[arg-type]  # what Spark makes of an empty list
