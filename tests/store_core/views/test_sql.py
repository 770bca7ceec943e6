# SPDX-License-Identifier: Apache-2.0
"""SQL over a store gives the rows that the same query over all of its rows gives."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_commitlog.sample import orders_store
from store_core import Store, read_messages, read_view
from store_core.errors import CorruptRecordError, InvalidOptionError, StoreNotFoundError
from store_core.format.columns import COLUMNS, CORRUPT_RECORD
from store_core.views.sql import ViewDataset, options_of, sql
from tests.builders import SIZE_AT, LogBuilder, patch

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [column.name for column in COLUMNS if column.name != CORRUPT_RECORD]
LISTED = (
    'if_else(is_valid(topic), is_in(topic, {value_set=string:[\n  "a",\n  "b"\n], '
    "null_matching_behavior=MATCH}), null[bool])"
)
"""How Arrow writes ``topic IN ('a', 'b')``, as DuckDB asks it."""

ORDERED = "SELECT physical_offset, topic, queue_id FROM messages WHERE {} ORDER BY physical_offset"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return orders_store(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def messages(store: Path) -> pa.Table:
    return read_messages(store, columns=NAMES).read_all()


def _plainly(query: str, messages: pa.Table) -> list[tuple[object, ...]]:
    """Ask DuckDB about a table in memory that has all rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("messages", messages)
        rows: list[tuple[object, ...]] = connection.execute(query).fetchall()
        return rows


def _rows(query: str, store: Path) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in sql(query, store).read_all().to_pylist()]


def _literal(value: object) -> str:
    return "'{}'".format(value.replace("'", "''")) if isinstance(value, str) else str(value)


@st.composite
def conditions(draw: st.DrawFn, row: dict[str, object]) -> str:
    """Draw a condition, whose values are those of a row, or others."""
    name = draw(
        st.sampled_from(["topic", "queue_id", "queue_offset", "tags", "uniq_msg_id", "physical_offset", "msg_id"])
    )
    odd = ['x") and (queue_id == 1', "\\", '"', "", "nope"] if isinstance(row[name], str) else [-1, 0, 2**31 - 1]
    values = st.sampled_from([row[name], *odd]) if row[name] is not None else st.sampled_from(["nope"])
    kind = draw(st.sampled_from(["=", "in", "<=", ">", "<>", "null", "time", "ms"]))
    if kind == "in":
        return f"{name} IN ({', '.join(_literal(value) for value in draw(st.lists(values, min_size=1, max_size=3)))})"
    if kind == "null":
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "time":
        sign = draw(st.sampled_from(["<", "<=", ">", ">=", "="]))
        return f"store_timestamp {sign} TIMESTAMPTZ '{row['store_timestamp']}'"
    if kind == "ms":
        return f"store_timestamp_ms {draw(st.sampled_from(['<', '>=', '=']))} {row['store_timestamp_ms']}"
    return f"{name} {kind} {_literal(draw(values))}"


@given(data=st.data())
def test_the_rows_are_those_of_the_same_query_over_all_rows(
    data: st.DataObject, store: Path, messages: pa.Table
) -> None:
    row = messages.slice(data.draw(st.integers(0, messages.num_rows - 1)), 1).to_pylist()[0]
    parts = data.draw(st.lists(conditions(row), min_size=1, max_size=3))
    joined = data.draw(st.sampled_from([" AND ", " OR "])).join(parts)
    query = ORDERED.format(data.draw(st.sampled_from([joined, f"NOT ({joined})"])))

    assert _plainly(query, messages) == _rows(query, store)


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ('(topic == "orders")', {"topic": ["orders"]}),
        ('((topic == "orders") and (queue_id == 1))', {"topic": ["orders"], "queue_id": ["1"]}),
        ('((topic == "orders") or (queue_id == 1))', {}),
        ('(topic == "x\\") and (queue_id == 1")', {}),
        ('(topic != "orders")', {}),
        ("(physical_offset == 198)", {"physical_offset": "198"}),
        (
            "((store_timestamp >= 2020-01-01 10:00:00.123456Z) and (store_timestamp < 2021-01-01 00:00:00.000000Z))",
            {"starting_timestamp": 1577872800123, "ending_timestamp": 1609459200001},
        ),
        (
            "(store_timestamp == 1970-01-01 00:34:34.343000Z)",
            {"starting_timestamp": 2074343, "ending_timestamp": 2074344},
        ),
        ("(store_timestamp < 12000-01-01 00:00:00.000000Z)", {"ending_timestamp": 316516204800001}),
        (
            LISTED,
            {"topic": ["a", "b"]},
        ),
    ],
)
def test_conditions_that_are_sure_narrow_what_is_read(condition: str, options: dict[str, object]) -> None:
    assert options == options_of(condition)


@given(
    values=st.lists(st.integers(-9, 2**31 - 1), max_size=40)
    | st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"'), max_size=200), max_size=40)
)
@example(list(range(30)))
@example(["orders"] * 30)
@example(["x" * 127, "orders"])
@example(["orders" + "订单" * 60])  # which Arrow cuts amid a letter
def test_a_list_narrows_by_each_of_its_values_or_not_at_all(values: list[int] | list[str]) -> None:
    name, kind = ("queue_id", pa.int32()) if all(isinstance(each, int) for each in values) else ("topic", pa.string())
    listed = pc.field(name).isin(pa.array(values, kind))
    condition = pc.if_else(pc.field(name).is_valid(), listed, pa.scalar(None, pa.bool_()))
    asked: list[tuple[list[str], dict[str, object]]] = []

    def read(_view: str, *, columns: list[str], **narrowed: object) -> pa.RecordBatchReader:
        asked.append((columns, narrowed))
        return dataset.schema.empty_table().select(columns).to_reader()

    dataset = ViewDataset(read, "messages")
    dataset.scanner(["queue_offset"], condition).to_table()

    ((columns, narrowed),) = asked
    assert {"queue_offset", name} <= {*columns}
    assert narrowed in ({}, {name: list(map(str, values))})


@pytest.mark.parametrize("name", ["topic", "tags"])
def test_rows_of_a_list_of_long_foreign_names_are_found(name: str, store: Path, messages: pa.Table) -> None:
    names = ["订单" * 60, messages[name][0].as_py(), "订" * 100]
    query = ORDERED.format(f"{name} IN ({', '.join(map(_literal, names))})")

    assert _plainly(query, messages) == _rows(query, store) != []


@pytest.mark.parametrize("values", ["queue_id IN ({})", "queue_id NOT IN ({})"])
def test_rows_of_long_lists_are_those_of_the_same_query_over_all_rows(
    values: str, store: Path, messages: pa.Table
) -> None:
    query = ORDERED.format(values.format(", ".join(map(str, range(-12, 19)))))

    assert _plainly(query, messages) == _rows(query, store)


def test_duckdb_hands_on_the_columns_and_conditions_of_a_query(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    read = ViewDataset.scanner

    def scanner(self: ViewDataset, columns: list[str], **given_: object) -> object:
        asked.append((list(columns), options_of(str(given_["filter"]))))
        return read(self, columns, **given_)

    monkeypatch.setattr(ViewDataset, "scanner", scanner)
    sql("SELECT sum(store_size) FROM messages WHERE topic = 'orders' AND queue_id IN (1, 2)", store).read_all()

    assert [(["store_size"], {"topic": ["orders"], "queue_id": ["1", "2"]})] == asked


@pytest.mark.parametrize("view", ["topics", "segments", "consumequeue", "index", "consumer_offsets"])
def test_each_view_is_a_table(view: str, store: Path) -> None:
    expected = read_view(store, view).read_all()

    assert expected.to_pylist() == sql(f"SELECT * FROM {view}", store).read_all().to_pylist()  # noqa: S608 -- a test


def test_views_and_messages_join(store: Path) -> None:
    query = """
        SELECT count(*) AS behind FROM messages JOIN consumer_offsets AS found USING (topic, queue_id)
        WHERE consumer_group = 'warehouse' AND topic = 'orders' AND queue_offset >= committed_offset
    """

    assert [{"behind": 404}] == sql(query, store).read_all().to_pylist()


def test_sums_are_whole_numbers(store: Path) -> None:
    assert pa.int64() == sql("SELECT sum(store_size) AS bytes FROM messages", store).schema.field("bytes").type


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT topic, 1 AS topic, 2 AS x FROM messages LIMIT 1", {"topic": "clicks", "topic_1": 1, "x": 2}),
        ('SELECT INTERVAL 90 MINUTE AS "a""b", union_value(x := 1) AS c', {'a"b': "01:30:00", "c": "1"}),
        ("SELECT map{} AS a, [1] AS b", {"a": "{}", "b": [1]}),
    ],
)
def test_columns_have_names_and_types_for_all_formats(query: str, expected: dict[str, object], store: Path) -> None:
    assert [expected] == sql(query, store).read_all().to_pylist()


def test_a_reader_that_is_left_early_ends(store: Path) -> None:
    for _ in range(5):
        reader = sql("SELECT * FROM messages JOIN topics USING (topic, queue_id)", store)
        reader.read_next_batch()
        del reader
        gc.collect()


@pytest.mark.parametrize("query", ["SELEC", "SELECT nope FROM messages", "SELECT * FROM nope", ""])
def test_what_is_no_query_is_refused_by_name(query: str, store: Path) -> None:
    with pytest.raises(InvalidOptionError, match="query"):
        sql(query, store)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT sum(store_timestamp_ms::HUGEINT * 1000000000000) FROM messages", "CAST larger ones AS DOUBLE"),
        ("SELECT CASE range WHEN 99999 THEN 'x'::INT ELSE 1 END FROM range(100000)", "Conversion Error"),
        ("SELECT topic::INT FROM messages", "Conversion Error"),
        ("SELECT count(*) FROM messages WHERE tags::INT = 1", "Conversion Error"),
    ],
)
def test_what_a_query_can_not_compute_is_told_in_words(query: str, told: str, store: Path) -> None:
    with pytest.raises(InvalidOptionError, match=told):
        sql(query, store).read_all()


def test_no_variable_of_a_program_is_a_table(store: Path) -> None:
    secret = pa.table({"a": [1]})

    with pytest.raises(InvalidOptionError, match="secret"):
        sql("SELECT * FROM secret", store)
    assert 1 == secret.num_rows


def test_errors_of_reading_are_those_of_the_reader(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        sql("SELECT * FROM messages", tmp_path / "nope").read_all()

    log = LogBuilder(4096)
    log.append_all(b"one", b"two", b"three")
    log.write(tmp_path / "store")
    patch(tmp_path / "store" / "commitlog" / f"{0:020d}", log.records[1].physical_offset + SIZE_AT, b"\x7f\xff\xff\xff")
    with pytest.raises(CorruptRecordError):
        sql("SELECT count(*) FROM messages", tmp_path / "store").read_all()


def test_a_name_that_begins_with_a_blank_is_another_one(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    for topic in ("lead", " lead", " lead"):
        log.append(b"x", topic=topic)
    log.write(tmp_path)

    assert [(2,)] == _rows("SELECT count(*) FROM messages WHERE topic = ' lead'", tmp_path)
    assert 2 == read_messages(tmp_path, topic=[" lead"]).read_all().num_rows
    assert 1 == read_messages(tmp_path, topic=" lead").read_all().num_rows


@pytest.mark.parametrize("condition", ["topic = 'payments'", "store_timestamp < '{}'", "store_timestamp > '{}'"])
@pytest.mark.parametrize(
    "name", ["starting_offsets", "ending_offsets", "starting_timestamp", "ending_timestamp", "topic"]
)
def test_options_hold_beside_the_conditions_of_a_query(
    name: str, condition: str, store: Path, messages: pa.Table
) -> None:
    row = messages.slice(messages.num_rows // 2, 1).to_pylist()[0]
    values = {"topic": "orders", "offsets": row["physical_offset"], "timestamp": row["store_timestamp_ms"]}
    given = {name: values[name.rpartition("_")[2]]}
    query = ORDERED.format(condition.format(messages["store_timestamp"][messages.num_rows // 3].as_py()))

    expected = _plainly(query, read_messages(store, columns=NAMES, **given).read_all())
    assert expected == [tuple(each.values()) for each in sql(query, store, **given).read_all().to_pylist()]


def test_a_store_is_asked_and_given_to_an_engine(store: Path) -> None:
    opened = Store(store)
    query = "SELECT count(*) AS found FROM messages WHERE topic = 'orders'"
    messages = opened.scan()
    found = duckdb.sql(query)

    assert [{"found": 2539}] == opened.sql(query).read_all().to_pylist()
    assert found is not None
    assert [(2539,)] == found.fetchall()
    assert messages.schema.names == NAMES
