# SPDX-License-Identifier: Apache-2.0
"""The reader as Spark uses it, without Spark: its schemas, its plans, and what is read in another process."""

from __future__ import annotations

import gc
import inspect
import pickle
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from pyspark_commitlog import CommitLogDataSource, reader
from pyspark_commitlog.reader import (
    CommitLogReader,
    ReadSchema,
    dataframe_schema,
    keep_old_objects,
    with_old_objects_kept,
)
from store_core import ReadOptions, plan_ranges, read_messages, read_range
from store_core.errors import InvalidOptionError, StoreError, StoreNotFoundError
from store_core.format.columns import COLUMNS, arrow_schema
from store_core.store.read.option_table import READ_OPTIONS
from tests.builders import LogBuilder
from tests.store_core.store.read.lookup_stores import ALWAYS, lie_in_queues, small_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.connector.stores import WrittenStore


READ_NAMES = {option.field: option.name for option in READ_OPTIONS}


def source(path: Path | str, **options: str) -> CommitLogDataSource:
    return CommitLogDataSource(CaseInsensitiveDict(path=str(path), **options))


def make_reader(path: Path | str, **options: str) -> DataSourceReader:
    made = source(path, **options)
    return made.reader(made.schema())


def batches(reader: DataSourceReader, partition: InputPartition) -> list[pa.RecordBatch]:
    """Run one task."""
    return [batch for batch in reader.read(partition) if isinstance(batch, pa.RecordBatch)]


def test_reader_and_partitions_pickle_and_read_the_same(store: WrittenStore) -> None:
    reader = make_reader(store.root, columns="physical_offset", minPartitions="5")
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 -- our own bytes
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301

    found = [batch for partition in partitions for batch in batches(copy, partition)]

    assert store.offsets == [offset for batch in found for offset in batch["physical_offset"].to_pylist()]


def test_a_partition_can_be_read_again_as_a_retried_task_does(store: WrittenStore) -> None:
    reader = make_reader(store.root)
    partition = reader.partitions()[1]

    assert batches(reader, partition) == batches(reader, partition)
    assert batches(reader, partition)


def test_the_records_of_a_look_up_are_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small_store(tmp_path)
    expected = read_messages(tmp_path, topic="t1", columns="physical_offset").read_all()["physical_offset"].to_pylist()
    monkeypatch.setattr("pyspark_commitlog.reader.plan_ranges", partial(plan_ranges, costs=ALWAYS))
    caplog.set_level("INFO", "store_core")

    reader = make_reader(tmp_path, topic="t1", columns="physical_offset")
    (partition,) = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301

    found = [offset for batch in batches(reader, partition) for offset in batch["physical_offset"].to_pylist()]
    assert set(found) <= set(expected)
    assert found == sorted(found)
    assert ["INFO"] == [record.levelname for record in caplog.records if record.getMessage().startswith("queues: ")]


@pytest.mark.parametrize("seed", range(8))
def test_the_tasks_of_a_look_up_read_what_one_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also where queues lie, so that what they lead to is scanned in tasks."""
    small_store(tmp_path)
    drawn = Random(seed)  # noqa: S311 -- reproducible
    for _ in range(seed // 2):
        lie_in_queues(tmp_path, drawn)
    monkeypatch.setattr("pyspark_commitlog.reader.plan_ranges", partial(plan_ranges, costs=ALWAYS))

    for options in ({"topic": "t1"}, {"topics_pattern": "t[02]"}, {"topic": "t0", "queue_id": "1"}):
        in_spark = {READ_NAMES[name]: value for name, value in options.items()}
        made = make_reader(tmp_path, columns="physical_offset,topic,queue_id", **in_spark)
        parts = pickle.loads(pickle.dumps(made.partitions()))  # noqa: S301
        asked = ReadOptions.parse(columns="physical_offset,topic,queue_id", **options)
        plan = plan_ranges(tmp_path, asked, ALWAYS)
        rows = [row for part in parts for batch in batches(made, part) for row in batch.to_pylist()]
        assert rows == [row for part in plan.ranges for batch in read_range(part, asked) for row in batch.to_pylist()]


def test_a_topic_without_queues_is_warned_of_once_when_a_read_is_planned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogBuilder(segment_size=1024)
    while len(log.segments()) < 3:
        log.append(b"x" * 50, topic="logged")
    root = log.write(tmp_path / "store")
    made = make_reader(root, topic="loged")
    assert not [batch for part in made.partitions() for batch in batches(made, part)]
    assert not caplog.records  # without queues nothing shows which topics there are

    (root / "consumequeue" / "logged" / "0").mkdir(parents=True)
    assert not [batch for part in made.partitions() for batch in batches(made, part)]
    assert [True] == ["did you mean 'logged'?" in record.getMessage() for record in caplog.records]
    assert make_reader(root, topic="logged").partitions()
    assert len(caplog.records) == 1


def test_the_partition_of_an_empty_plan_has_no_rows(store: WrittenStore) -> None:
    assert list(make_reader(store.root).read(InputPartition(None))) == []


def test_planning_never_raises_what_spark_takes_for_one_partition_without_a_value() -> None:
    """Spark 4.3 ignores a NotImplementedError of `partitions`: the DataFrame would be empty."""
    reader = make_reader("nosuch://bucket/store")
    with pytest.raises(StoreError, match="nosuch://bucket") as caught:
        reader.partitions()

    assert not isinstance(caught.value, NotImplementedError)


def test_filters_are_not_pushed() -> None:
    assert "pushFilters" not in vars(CommitLogReader)


def test_an_error_of_the_store_reaches_spark_without_our_frames() -> None:
    with pytest.raises(StoreNotFoundError) as caught:
        make_reader("/no/such/store").partitions()

    assert len(caught.traceback) <= 2  # this test, and the place that re-raises
    assert caught.value.__cause__ is None


def test_an_old_pyspark_is_refused_by_version(monkeypatch: pytest.MonkeyPatch, store: WrittenStore) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.1")

    needed = r"format 'commitlog' needs PySpark 4\.1 or later, found 4\.0\.1; pip install 'pyspark>=4\.1'"
    with pytest.raises(StoreError, match=needed):
        source(store.root).schema()


def test_a_scan_of_a_large_log_is_hinted_at_once_unless_an_option_narrows_it(
    store: WrittenStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "_HINTED", set())

    def hints(**options: str) -> int:
        caplog.clear()
        make_reader(store.root, **options).partitions()
        return sum(record.getMessage().startswith("hint: this query reads the whole log") for record in caplog.records)

    assert 0 == hints()
    monkeypatch.setattr(reader, "_LARGE", 1)
    assert 0 == hints(topic="orders") + hints(startingTimestamp="1") + hints(key="k") + hints(endingOffsets="100")
    assert [1, 0, 0] == [hints(columns="topic", timeZone="UTC"), hints(), hints(mode="PERMISSIVE")]


# ---- schemas


ALL = tuple(column.name for column in COLUMNS)
NULLABLE = {column.name for column in COLUMNS if column.nullable}


def spark_sees(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark compares batches with; PySpark 4.1 knows no other zone than UTC."""
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **zone)


@st.composite
def user_schemas(draw: st.DrawFn) -> StructType:
    """Draw some columns in any order, spelled in any case, with any nullability that is true."""
    names = draw(st.lists(st.sampled_from(ALL), min_size=1, unique=True))
    fields = []
    for field in dataframe_schema(names, nullable=False):
        kind = field.dataType
        if isinstance(kind, ArrayType):
            kind = ArrayType(kind.elementType, draw(st.booleans()))
        if isinstance(kind, MapType):
            kind = MapType(kind.keyType, kind.valueType, draw(st.booleans()))
        spelling = draw(st.sampled_from([str.lower, str.upper, str.title]))
        fields.append(StructField(spelling(field.name), kind, field.name in NULLABLE or draw(st.booleans())))
    return StructType(fields)


@pytest.mark.parametrize("nullable", [False, True])
def test_the_schema_of_all_columns_is_the_core_s_own(*, nullable: bool) -> None:
    assert arrow_schema(ALL, nullable=nullable) == spark_sees(dataframe_schema(ALL, nullable=nullable))


@given(user_schemas())
def test_a_user_s_schema_gives_the_arrow_schema_that_spark_expects(schema: StructType) -> None:
    read = ReadSchema.of(schema, named=None, nullable=False)

    assert spark_sees(schema) == read.arrow
    assert [name.lower() for name in schema.names] == list(read.columns)


@given(user_schemas())
def test_batches_get_the_names_and_the_nullability_of_the_user_s_schema(schema: StructType) -> None:
    read = ReadSchema.of(schema, named=None, nullable=False)
    stored = arrow_schema(read.columns)
    batch = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in stored], schema=stored)

    assert spark_sees(schema) == read.conform(batch).schema


def columns_of(*fields: tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(*field) for field in fields])


CONTRADICTION = (
    "option columns says body, topic, and the schema says topic, body; "
    "give one of the two, or the same columns in the same order"
)


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (columns_of(("topics", StringType(), True)), {}, "unknown column 'topics'; did you mean 'topic'?"),
        (
            columns_of(("topic", StringType(), True), ("TOPIC", StringType(), True)),
            {},
            "column 'topic' is named twice in topic, TOPIC",
        ),
        (columns_of(), {}, f"no column is named; the columns are {', '.join(ALL)}"),
        *(
            (columns_of((name, wrong, True)), {}, f"column {name!r} of the schema: {says}")
            for name, wrong, says in (
                ("queue_id", LongType(), "expected type int, found bigint"),
                ("body", StringType(), "expected type binary, found string"),
                ("topic", StringType("UNICODE_CI"), "expected type string, found string collate UNICODE_CI"),
                ("store_timestamp", TimestampNTZType(), "expected type timestamp, found timestamp_ntz"),
                ("Keys", ArrayType(BinaryType()), "expected type array<string>, found array<binary>"),
                ("properties", StringType(), "expected type map<string,string>, found string"),
            )
        ),
        *(
            (
                columns_of((name, kind, False)),
                {"nullable": is_permissive},
                f"column {name!r} of the schema is declared NOT NULL, but can be null; declare it {told} alone",
            )
            for name, kind, is_permissive, told in (
                ("tags", StringType(), False, "string"),
                ("queue_offset", LongType(), True, "bigint"),  # in a row of a damaged range
            )
        ),
        (
            dataframe_schema(["topic", "body"], nullable=False),
            {"named": ("body", "topic")},
            CONTRADICTION,
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema: StructType, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        ReadSchema.of(schema, **{"named": None} | options)

    assert says == str(caught.value)


# ---- objects of workers


@pytest.fixture
def objects_as_before() -> Iterator[None]:
    keep_old_objects.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("objects_as_before")
def test_the_first_task_sets_aside_what_is_there_and_further_ones_nothing() -> None:
    task = with_old_objects_kept(sorted)
    first, kept = task([2, 1], reverse=True), gc.get_freeze_count()
    made: list[list[int]] = [[] for _ in range(1000)]
    second, still = task([3, 4]), gc.get_freeze_count()

    assert [[2, 1], [3, 4]] == [first, second]
    assert kept > 0
    assert still <= kept
    assert 1000 == len(made)
