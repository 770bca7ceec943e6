# SPDX-License-Identifier: Apache-2.0
"""Columns that no message has are reported, with what to do; tested without Spark."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from pyspark_commitlog.schema import dataframe_schema
from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.schema import check_columns
from store_core.errors import InvalidOptionError
from store_core.format.columns import COLUMNS

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "map": MapType(StringType(), StringType()),
    "timestamp_ntz": TimestampNTZType(),
}


def schema_of(text: str) -> StructType:
    """Make a schema of names and types; Spark's own parser runs in Java."""
    fields = [field.split(" ") for field in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def refusal(schema: StructType | str, **options: str) -> str:
    """Return the error for a DataFrame with this schema."""
    given = schema_of(schema) if isinstance(schema, str) else schema
    with pytest.raises(InvalidOptionError) as caught:
        check_columns(given, WriteOptions.from_spark({"path": "/store", **options}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (
            "topic string, id bigint, value string",
            'found topic string, id bigint, value string: create it, for example with selectExpr("CAST(',
        ),
        ("key binary, value binary, topic string", 'selectExpr("CAST(value AS BINARY) AS body", ...)'),
        ("topic string, note string", "CAST(note AS BINARY)"),
        ("topic string", 'create it, for example with selectExpr("CAST(value AS BINARY) AS body", ...)'),
        (
            "body string",
            "messages need a column 'topic'; found body string: create it, for example with withColumn('topic',",
        ),
    ],
)
def test_a_missing_column_is_named_with_what_is_there_and_how_to_make_it(schema: str, says: str) -> None:
    assert says in refusal(schema)


def test_unknown_columns_are_all_named() -> None:
    assert refusal("topic string, body string, propertes map, region string").startswith(
        "a message can't have a column 'propertes', nor 'region'; did you mean 'properties'?"
    )


@pytest.mark.parametrize("name", ["born_timestamp", "store_timestamp"])
def test_a_time_without_a_zone_is_refused(name: str) -> None:
    keeps = str(name == "store_timestamp").lower()
    text = refusal(f"topic string, body string, {name} timestamp_ntz", preserveStoreTimestamp=keeps)

    assert f"column '{name}' of type timestamp_ntz: expected timestamp with a time zone, or epoch ms" in text


@pytest.mark.parametrize("keeps_times", ["false", "true"])
@pytest.mark.parametrize("columns", [None, [column.name for column in COLUMNS]], ids=["default", "all"])
def test_rows_just_read_are_recognised_and_exactly_the_columns_to_drop_are_named(
    keeps_times: str, columns: list[str] | None
) -> None:
    names = columns or [column.name for column in COLUMNS if column.default]
    schema = dataframe_schema(names, nullable=False)
    text = refusal(schema, preserveStoreTimestamp=keeps_times)
    told = text[text.index("df.drop(") + len("df.drop(") :].split(")")[0]
    dropped = [name.strip("'") for name in told.split(", ")]

    assert "these rows were read from a store" in text
    assert "--from-store" in text
    assert ("store_timestamp" in dropped) == (keeps_times == "false")
    kept = StructType([field for field in schema if field.name not in dropped])
    check_columns(kept, WriteOptions.from_spark({"path": "/store", "preserveStoreTimestamp": keeps_times}))
    for name in dropped:
        assert refusal(StructType([*kept, schema[name]]), preserveStoreTimestamp=keeps_times)
