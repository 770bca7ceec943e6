# SPDX-License-Identifier: Apache-2.0
"""Names, order and types of the columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from store_core.errors import InvalidOptionError, StoreError
from store_core.format.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema, resolve_columns

TIMESTAMP = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.field("element", pa.string()))
STRING_MAP = pa.map_(pa.string(), pa.string())

DEFAULTS = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "physical_offset": pa.int64(),
    "store_size": pa.int32(),
    "store_timestamp": TIMESTAMP,
    "born_timestamp": TIMESTAMP,
    "store_host": pa.string(),
    "born_host": pa.string(),
    "tags": pa.string(),
    "keys": STRINGS,
    "properties": STRING_MAP,
    "body": pa.binary(),
    "body_crc": pa.int32(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "magic_code": pa.int32(),
}
ON_REQUEST = {
    "body_text": pa.string(),
    "store_timestamp_ms": pa.int64(),
    "born_timestamp_ms": pa.int64(),
    "msg_id": pa.string(),
    "unique_key": pa.string(),
    "uniq_msg_id": pa.string(),
    "properties_string": pa.binary(),
    "tags_code": pa.int64(),
    "segment": pa.string(),
    "transaction_type": pa.string(),
    "compression": pa.string(),
    "dledger_index": pa.int64(),
    "dledger_term": pa.int64(),
    "dledger_committed": pa.bool_(),
    "store": pa.string(),
    "_corrupt_record": pa.binary(),
}


def test_default_columns_have_their_order_and_types() -> None:
    schema = arrow_schema(DEFAULT_COLUMNS)

    assert dict(zip(schema.names, schema.types, strict=True)) == DEFAULTS
    assert schema.names == list(DEFAULTS)


def test_columns_on_request_follow_the_default_ones() -> None:
    assert {column.name: column.type for column in COLUMNS if not column.default} == ON_REQUEST
    assert [column.name for column in COLUMNS] == [*DEFAULTS, *ON_REQUEST]


_TIMES = ("store_timestamp", "born_timestamp")


def test_only_what_may_be_missing_is_nullable() -> None:
    nullable = {column.name for column in COLUMNS if column.nullable}

    of_entries = {"dledger_index", "dledger_term", "dledger_committed"}
    assert nullable == {
        "tags",
        "keys",
        "body_text",
        "unique_key",
        "uniq_msg_id",
        "compression",
        *_TIMES,
        *of_entries,
        "_corrupt_record",
    }


def test_every_column_is_nullable_where_damage_has_rows() -> None:
    assert all(field.nullable for field in arrow_schema([column.name for column in COLUMNS], nullable=True))


def test_every_column_is_documented() -> None:
    assert all(column.doc for column in COLUMNS)


def test_names_match_without_regard_to_case() -> None:
    assert resolve_columns([" Topic", "QUEUE_ID", "_Corrupt_Record "]) == ("topic", "queue_id", "_corrupt_record")


def test_a_property_is_a_column_by_its_own_name_whose_case_matters() -> None:
    names = resolve_columns(["Topic", " Property.Region", "property.region", "property.a.b é"])

    assert names == ("topic", "property.Region", "property.region", "property.a.b é")
    assert arrow_schema(names).field("property.a.b é") == pa.field("property.a.b é", pa.string(), nullable=True)


def test_views_have_no_columns_of_properties() -> None:
    with pytest.raises(InvalidOptionError, match=r"unknown column 'property\.a'"):
        resolve_columns(["property.a"], COLUMNS[:3])


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["topics"], "did you mean 'topic'"),
        (["topic", "queueid"], "did you mean 'queue_id'"),
        (["zzzzzz"], "the columns are topic, queue_id"),
        (["topic", "Topic"], "'topic' is named twice"),
        (["property.a", "PROPERTY.a"], r"'property\.a' is named twice"),
        (["property."], r"unknown column 'property\.'"),
        ([], "no column is named"),
        ([""], "unknown column ''"),
    ],
)
def test_names_that_lead_to_no_column_are_refused(names: list[str], told: str) -> None:
    with pytest.raises(InvalidOptionError, match=told) as caught:
        resolve_columns(names)
    assert isinstance(caught.value, StoreError)
    assert isinstance(caught.value, ValueError)
