# SPDX-License-Identifier: Apache-2.0
"""The DataFrame's schema and the Arrow schema are the same to Spark, whatever schema the user gives."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from pyspark_commitlog.schema import ReadSchema, dataframe_schema
from store_core.errors import InvalidOptionError
from store_core.format.columns import COLUMNS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = tuple(column.name for column in COLUMNS)
NULLABLE = {column.name for column in COLUMNS if column.nullable}


def spark_sees(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark compares batches with; PySpark 4.1 knows no other zone than UTC."""
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **zone)


def refusal(schema: StructType, named: Sequence[str] | None = None, *, nullable: bool = False) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        ReadSchema.of(schema, named=named, nullable=nullable)
    return str(caught.value)


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


def test_permissive_makes_every_column_nullable() -> None:
    assert all(field.nullable for field in dataframe_schema(ALL, nullable=True))


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


def test_conforming_keeps_the_values() -> None:
    schema = StructType(
        [StructField("KEYS", ArrayType(StringType(), containsNull=False)), StructField("Topic", StringType())]
    )
    stored = arrow_schema(["keys", "topic"])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([["a", "b"], None], stored[0].type), pa.array(["x", "y"])], schema=stored
    )

    conformed = ReadSchema.of(schema, named=None, nullable=False).conform(batch)

    assert conformed.to_pylist() == [{"KEYS": ["a", "b"], "Topic": "x"}, {"KEYS": None, "Topic": "y"}]


def test_a_schema_pickles() -> None:
    read = ReadSchema.of(dataframe_schema(ALL, nullable=False), named=None, nullable=False)

    assert read == pickle.loads(pickle.dumps(read))  # noqa: S301 -- our own bytes


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    assert refusal(StructType().add("topics", "string")) == "unknown column 'topics'; did you mean 'topic'?"


def test_a_column_named_twice_is_refused() -> None:
    assert "column 'topic' is named twice" in refusal(StructType().add("topic", "string").add("TOPIC", "string"))


def test_no_column_at_all_is_refused() -> None:
    assert refusal(StructType()).startswith("no column is named")


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("queue_id", LongType(), "expected type int, found bigint"),
        ("body", StringType(), "expected type binary, found string"),
        ("topic", StringType("UNICODE_CI"), "expected type string, found string collate UNICODE_CI"),
        ("store_timestamp", TimestampNTZType(), "expected type timestamp, found timestamp_ntz"),
        ("Keys", ArrayType(BinaryType()), "expected type array<string>, found array<binary>"),
        ("properties", StringType(), "expected type map<string,string>, found string"),
    ],
)
def test_a_wrong_type_is_refused_with_what_is_expected(name: str, wrong: DataType, says: str) -> None:
    assert f"column {name!r} of the schema: {says}" == refusal(StructType([StructField(name, wrong)]))


def test_a_column_that_can_be_null_is_not_taken_as_not_null() -> None:
    schema = StructType([StructField("tags", StringType(), nullable=False)])

    assert (
        refusal(schema) == "column 'tags' of the schema is declared NOT NULL, but can be null; declare it string alone"
    )


def test_with_permissive_no_column_is_taken_as_not_null() -> None:
    schema = StructType([StructField("queue_offset", LongType(), nullable=False)])

    assert "'queue_offset' of the schema is declared NOT NULL" in refusal(schema, nullable=True)


def test_a_schema_that_contradicts_option_columns_is_refused() -> None:
    text = refusal(dataframe_schema(["topic", "body"], nullable=False), named=("body", "topic"))

    assert text.startswith("option columns says body, topic, and the schema says topic, body;")


def test_a_schema_that_agrees_with_option_columns_is_taken() -> None:
    named = ("body", "topic")

    assert named == ReadSchema.of(dataframe_schema(named, nullable=False), named=named, nullable=False).columns
