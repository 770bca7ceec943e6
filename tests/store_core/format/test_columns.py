# SPDX-License-Identifier: Apache-2.0
"""Names, order and types of the columns; times in them; suggestions for mistyped names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError, StoreError
from store_core.format.columns import (
    COLUMNS,
    DEFAULT_COLUMNS,
    TIME_RANGE,
    arrow_schema,
    iso_time,
    resolve_columns,
    table_time,
    table_times,
)
from store_core.format.words import did_you_mean, known_names

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


def test_the_nearest_name_is_asked_for_whatever_its_case() -> None:
    assert "did you mean 'Orders'?" == did_you_mean("ordres", ["payments", "Orders"])
    assert "did you mean 'queueNums'?" == did_you_mean("QUEUENUM", ["queueNums"])


def test_nothing_is_asked_if_no_name_is_near() -> None:
    assert not did_you_mean("xyz", ["payments", "orders"])
    assert not did_you_mean("xyz", [])


def test_of_many_names_the_first_are_shown() -> None:
    assert "a, b" == known_names({"b", "a"})
    assert "a, b, c, d, e and 2 more" == known_names("abcdefg")


FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (1, 9999))


@given(st.integers(FIRST, LAST))
def test_a_time_reads_back_as_itself_to_the_millisecond(milliseconds: int) -> None:
    text = iso_time(milliseconds)

    assert text.endswith("Z")
    assert len("2023-11-14T22:18:19.500Z") == len(text)
    since_1970 = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    assert milliseconds == since_1970 // timedelta(milliseconds=1)


def test_what_only_hostile_bytes_say_is_shown_too() -> None:
    assert "292278994-08-17T07:12:55.807Z" == iso_time(2**63 - 1)
    assert "-9223372036854775808 ms" == iso_time(-(2**63))


longs = st.integers(-(1 << 63), (1 << 63) - 1)
near = st.sampled_from([TIME_RANGE.start, TIME_RANGE.stop]).flatmap(lambda bound: st.integers(bound - 2, bound + 2))


def test_the_range_is_that_of_the_calendar() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first, last = (time.replace(tzinfo=UTC) - epoch for time in (datetime.min, datetime.max))  # noqa: DTZ901 -- as UTC

    assert (TIME_RANGE[0], TIME_RANGE[-1]) == (first // timedelta(milliseconds=1), last // timedelta(milliseconds=1))


@given(st.lists(longs | near))
def test_a_column_of_times_has_the_time_of_each(times: list[int]) -> None:
    column = table_times(np.array(times, np.int64))

    assert column.cast(pa.int64()).to_pylist() == [table_time(time) for time in times]
    assert all(value is None or 1 <= value.year for value in column.to_pylist())


@given(st.lists(longs | near))
def test_for_calculations_no_time_is_null_and_their_order_stays(times: list[int]) -> None:
    column = table_times(np.array(sorted(times), np.int64), is_nearest=True).cast(pa.int64()).to_pylist()

    assert column == sorted(column)
    assert all(
        value == time * 1000 for value, time in zip(column, sorted(times), strict=True) if abs(time) < (1 << 63) // 1000
    )
