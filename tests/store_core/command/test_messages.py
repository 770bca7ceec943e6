# SPDX-License-Identifier: Apache-2.0
"""The commands that print rows as the reader reads them, how it reads, counts of messages, and views."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store_core import explain, read_messages, read_view
from store_core.answers import group_table
from store_core.command.console import Console
from store_core.command.exit_code import ExitCode
from store_core.command.program import program
from store_core.format.columns import COLUMNS
from store_core.store.read.option_table import READ_OPTIONS
from store_core.views.view_columns import VIEWS
from tests.builders import LogBuilder, Record
from tests.store_core.command.calls import call
from tests.store_core.fakes import FakeClock
from tests.store_core.files.rocksdbs import make_rocksdb

if TYPE_CHECKING:
    from pathlib import Path


def bodies(store: Path, **options: str) -> list[str]:
    table = read_messages(store, columns="body", **options).read_all()  # type: ignore[arg-type]  # text, as on a command line
    return [body.decode() for body in table.column("body").to_pylist()]


def test_cat_prints_the_rows_of_the_reader_in_their_order(store: Path) -> None:
    called = call("cat", store, "--format=jsonl", "--columns=body")

    assert (ExitCode.DONE, bodies(store)) == (called.code, [row["body"] for row in called.rows])
    assert "" == called.errors


@pytest.mark.parametrize(
    ("option", "value"),
    [("topic", "payments"), ("tag", "a"), ("key", "k-7"), ("queue_id", "1"), ("topics_pattern", "pay.*"),
     ("ending_offsets", "700"), ("starting_timestamp", "2023-11-15T00:00:00Z"), ("filter", "b")],
)  # fmt: skip
def test_every_filter_of_the_reader_is_an_option(store: Path, option: str, value: str) -> None:
    called = call("cat", store, "--format=jsonl", "--columns=body", f"--{option.replace('_', '-')}", value)

    assert bodies(store, **{option: value}) == [row["body"] for row in called.rows]
    assert 0 < len(called.rows) < len(bodies(store))


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_head_prints_the_first_rows_and_tail_the_last(store: Path, rows: int) -> None:
    expected = bodies(store)

    first = call("head", store, "-n", rows, "--format=jsonl", "--columns=body")
    last = call("tail", store, "-n", rows, "--format=jsonl", "--columns=body")

    assert expected[:rows] == [row["body"] for row in first.rows]
    assert expected[max(len(expected) - rows, 0) :] == [row["body"] for row in last.rows]


def test_tail_finds_the_last_rows_of_a_filter_in_earlier_segments(log: LogBuilder, tmp_path: Path) -> None:
    log.append(b"early", topic="rare")
    log.fill(3)
    store = log.write(tmp_path / "store")

    assert ["early"] == [row["body"] for row in call("tail", store, "--topic=rare", "--format=jsonl").rows]


def test_a_table_has_the_columns_that_fit_a_terminal_and_other_formats_have_all(store: Path) -> None:
    table = call("head", store, "-n1", "--color=never", around=Console(width=80)).lines

    assert ["store_timestamp", "topic", "queue_id", "queue_offset", "tags", "keys", "body"] == table[0].split()
    assert max(map(len, table)) <= 80
    assert read_messages(store).schema.names == list(call("head", store, "-n1", "--format=jsonl").rows[0])


def test_bodies_that_are_json_are_printed_with_their_fields_on_request(log: LogBuilder, tmp_path: Path) -> None:
    for body in (b'{"order":"o-1","lines":[1,2]}', b"no json", b'{"a":1,"a":2}'):
        log.append(body, topic="json")
    store = log.write(tmp_path / "store")
    asked = ("cat", store, "--topic=json", "--columns=body")

    rows = call(*asked, "--json-body", "--format=jsonl").rows
    assert [{"order": "o-1", "lines": [1, 2]}, "no json", '{"a":1,"a":2}'] == [row["body"] for row in rows]
    assert rows == call(*asked, "--bytes=json", "--format=jsonl").rows
    lines = call(*asked, "--json-body", "--format=fields", "--color=never").lines
    assert ["body  order=o-1", "      lines=[1, 2]", ""] == lines[:3]
    assert '{"order":"o-1","lines":[1,2]}' == call(*asked, "--json-body").lines[1]


def test_with_mode_permissive_a_table_shows_damaged_bytes_and_where_they_are(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[3].physical_offset, 8)
    store = log.write(tmp_path / "store")

    header = call("cat", store, "--mode=PERMISSIVE").lines[0]

    assert ["physical_offset", "_corrupt_record"] == header.split()[-2:]


@pytest.mark.parametrize("command", ["cat", "count", "tail"])
def test_a_read_without_rows_fails_where_queues_can_not_tell_of_a_topic(store: Path, command: str) -> None:
    (store / "consumequeue").touch()
    called = call(command, store, "--topic=nosuch")

    assert ExitCode.FAILED == called.code
    assert "whether there is a topic 'nosuch' is not known: the queues of" in called.errors


@pytest.mark.parametrize("command", ["cat", "count"])
def test_what_is_left_out_since_it_is_damaged_or_gone_ends_with_5(
    command: str, log: LogBuilder, tmp_path: Path
) -> None:
    log.flip(log.records[3].physical_offset, 8)
    damaged = log.write(tmp_path / "damaged")
    gone = LogBuilder(1024)
    gone.append_all(*[b"%d" % number for number in range(30)])
    lacking = gone.write(tmp_path / "lacking")
    sorted((lacking / "commitlog").iterdir())[1].unlink()

    assert ExitCode.DAMAGED == call(command, damaged, "--mode=DROPMALFORMED").code
    assert (
        ExitCode.DONE
        == call(command, damaged, "--mode=DROPMALFORMED", f"--ending-offsets={log.records[3].physical_offset}").code
    )
    assert ExitCode.DAMAGED == call(command, lacking, "--no-fail-on-data-loss").code


def test_damage_ends_a_strict_read_with_the_reader_s_words_after_the_rows_before_it(
    log: LogBuilder, tmp_path: Path
) -> None:
    log.flip(log.records[3].physical_offset, 8)
    store = log.write(tmp_path / "store")

    called = call("cat", store, "--format=jsonl")

    assert (ExitCode.FAILED, 3) == (called.code, len(called.rows))
    assert f"at offset {log.records[3].physical_offset}" in called.errors
    assert 1 == called.errors.count("\n")


def test_no_row_of_a_known_topic_is_no_error(store: Path) -> None:
    (store / "consumequeue" / "empty" / "0").mkdir(parents=True)

    assert ExitCode.DONE == call("cat", store, "--topic=empty").code


def test_arrow_and_parquet_hold_the_very_rows(store: Path, tmp_path: Path) -> None:
    expected = read_messages(store).read_all()

    arrow = call("cat", store, "--format=arrow").data
    parquet = call("cat", store, "--format=parquet").data
    assert call("cat", store, "-o", tmp_path / "rows.parquet").data == b""

    assert expected.equals(pa.ipc.open_stream(arrow).read_all())
    assert expected.equals(pq.read_table(io.BytesIO(parquet)).cast(expected.schema))
    assert expected.equals(pq.read_table(tmp_path / "rows.parquet").cast(expected.schema))


# ------------------------------------------------------------------------------------------------------------- follow


class GrowingClock(FakeClock):
    """A clock whose naps are used to append to a store; after the last one comes ^C."""

    def __init__(self, log: LogBuilder, store: Path, steps: list[list[bytes]]) -> None:
        super().__init__()
        self._log, self._store, self._steps = log, store, steps

    def sleep(self, seconds: float) -> None:
        del seconds
        if not self._steps:
            raise KeyboardInterrupt
        self._log.append_all(*self._steps.pop(0))
        self._log.write(self._store)


def test_what_is_appended_is_printed_once_across_segments_until_it_is_interrupted(log: LogBuilder, store: Path) -> None:
    last = log.records[-1].body.decode()
    grown = [f"new-{number}" for number in range(50)]
    clock = GrowingClock(log, store, [[], [b"new-0"], [body.encode() for body in grown[1:]], []])

    called = call("tail", store, "-n1", "-f", "--format=jsonl", "--columns=body", around=Console(clock=clock))

    assert [last, *grown] == [row["body"] for row in called.rows]
    assert (130, "") == (called.code, called.errors)


@pytest.mark.parametrize(("tolerant", "code"), [([], ExitCode.FAILED), (["--no-fail-on-data-loss"], 130)])
def test_a_log_that_is_truncated_while_it_is_followed_is_named(
    log: LogBuilder, store: Path, tolerant: list[str], code: int
) -> None:
    class CutClock(GrowingClock):
        def sleep(self, seconds: float) -> None:
            if len(self._steps) == 1:
                log.truncate(log.records[-2].physical_offset)
            super().sleep(seconds)

    around = Console(clock=CutClock(log, store, [[], []]))

    called = call("tail", store, "-n0", "-f", "--format=jsonl", *tolerant, around=around)

    assert code == called.code
    assert "the log was truncated behind the position that was read" in called.errors


@pytest.mark.parametrize("end", ["--ending-offsets=700", "--as-of=2024-05-01T12:00:00Z"])
def test_a_log_is_not_followed_to_an_end(store: Path, end: str) -> None:
    called = call("tail", store, "--follow", end)

    assert ExitCode.USAGE == called.code
    assert "leave out ending_offsets" in called.errors


# ---------------------------------------------------------------------------------------------------------------- get


@pytest.mark.parametrize("more", [(), ("--starting-timestamp=0",), ("--ending-timestamp=9998-01-01T00:00:00Z",)])
@pytest.mark.parametrize("what", ["k-5", f"{5:032X}", "orders/1/1"])
def test_a_message_is_found_by_key_by_its_producer_s_id_and_by_position(
    store: Path, what: str, more: tuple[str, ...]
) -> None:
    assert ["body-5"] == [row["body"] for row in call("get", store, what, "--format=jsonl", *more).rows]


def test_another_broker_s_id_with_the_same_offset_is_not_found(store: Path) -> None:
    msg_id = call("get", store, "k-5", "--format=jsonl").rows[0]["msg_id"]

    assert ExitCode.USAGE == call("get", store, f"7F000009{msg_id[8:]}").code


def test_a_key_that_looks_like_a_position_is_found(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(Record(b"x", "orders", {"KEYS": "a/1/2"}))

    assert 1 == len(call("get", log.write(tmp_path), "a/1/2", "--format=jsonl").rows)


@pytest.mark.parametrize(
    ("what", "kind"),
    [("k-500", "key"), ("orders/1/5000", "position"), ("k-5", "position"), ("k-5", "id"), ("F" * 32, "id"),
     ("7" * 56, "id"), ("orders/1/999999999999999999", None)],
)  # fmt: skip
def test_what_is_not_there_is_wrong_usage_and_named(store: Path, what: str, kind: str | None) -> None:
    called = call("get", store, what, *([f"--as={kind}"] if kind else []))

    assert ExitCode.USAGE == called.code
    assert repr(what) in called.errors


def test_a_message_is_shown_as_a_line_per_field(store: Path) -> None:
    lines = call("get", store, "k-5", "--columns=topic,keys,properties,body").lines

    assert [
        "topic       orders",
        "keys        k-5 all",
        "properties  KEYS=k-5 all",
        "            TAGS=b",
        f"            UNIQ_KEY={5:032X}",
        "body        body-5",
        "            (6 bytes)",
    ] == lines


# ------------------------------------------------------------------------------------------------------------ explain


def test_explain_says_what_the_core_says(store: Path) -> None:
    expected = explain(store, topic="orders")
    (row,) = call("explain", store, "--topic=orders", "--format=jsonl").rows

    assert (expected.plan, expected.why, expected.bytes) == (row["plan"], row["why"], row["bytes"])
    assert f"plan     {expected.plan}" in call("explain", store, "--topic=orders").lines


def test_get_reads_an_id_by_the_look_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = call("get", store, "k-5", "--format=jsonl").rows[0]
    asked: list[dict[str, Any]] = []

    def noted(path: str, **options: Any) -> Any:  # noqa: ANN401 -- as of the reader
        asked.append(options)
        return read_messages(path, **options)

    monkeypatch.setattr("store_core.store.read.read_messages.read_messages", noted)

    assert [row] == call("get", store, row["msg_id"].lower(), "--format=jsonl").rows
    assert [row] == call("get", store, row["msg_id"], "--as=id", "--format=jsonl").rows
    assert [row["msg_id"]] * 2 == [options["msg_id"] for options in asked]


def counted(store: Path, *columns: str) -> dict[tuple[object, ...], tuple[int, int]]:
    """Count row by row."""
    messages: Counter[tuple[object, ...]] = Counter()
    sizes: Counter[tuple[object, ...]] = Counter()
    for row in read_messages(store, columns=[*columns, "store_size"]).read_all().to_pylist():
        group = tuple(row[name] for name in columns)
        messages[group] += 1
        sizes[group] += row["store_size"]
    return {group: (messages[group], sizes[group]) for group in messages}


@pytest.mark.parametrize(
    "columns", [(), ("topic",), ("topic", "queue_id"), ("tags",), ("topic", "tags", "queue_id"), ("property.KEYS",)]
)
def test_groups_are_counted_and_in_their_order(store: Path, columns: tuple[str, ...]) -> None:
    rows = call("count", store, *(["--by", ",".join(columns)] if columns else []), "--format=jsonl").rows

    found = {tuple(row[name] for name in columns): (row["messages"], row["bytes"]) for row in rows}
    assert counted(store, *columns) == found
    assert sorted(found) == list(found)


def test_messages_without_tags_are_a_group(log: LogBuilder, tmp_path: Path) -> None:
    log.append(b"without")
    rows = call("count", log.write(tmp_path), "--by=tags", "--format=jsonl").rows

    assert [None] == [row["tags"] for row in rows if row["messages"] == 1]


@pytest.mark.parametrize(("unit", "count"), [("minute", 40), ("hour", 7), ("day", 2)])
def test_messages_are_counted_by_their_store_time(store: Path, unit: str, count: int) -> None:
    rows = call("count", store, f"--by={unit}", "--format=jsonl").rows

    assert (count, 40) == (len(rows), sum(row["messages"] for row in rows))
    assert sorted(row[unit] for row in rows) == [row[unit] for row in rows]


@pytest.mark.parametrize("unit", ["minute", "hour", "day"])
def test_times_that_a_column_can_t_hold_are_in_a_group_of_their_own(log: LogBuilder, tmp_path: Path, unit: str) -> None:
    log.append(b"early", store_timestamp=-(2**62))
    rows = call("count", log.write(tmp_path), f"--by={unit}", "--format=jsonl").rows

    assert [1] == [row["messages"] for row in rows if row[unit] is None]
    assert 41 == sum(row["messages"] for row in rows)


def test_more_groups_than_memory_should_hold_are_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_table, "_MOST", 10)

    called = call("count", store, "--by=physical_offset")

    assert (ExitCode.USAGE, b"") == (called.code, called.data)
    assert "more than 10 groups by physical_offset" in called.errors


@pytest.mark.parametrize(
    ("by", "problem"),
    [("keys", "one value a message"), ("properties", "one value a message"), ("topik", "did you mean 'topic'?"),
     ("hours", "did you mean 'hour'?"), ("week", "; and minute, hour, day"),
     ("topic,TOPIC", "named twice"), ("hour,hour", "named twice"), ("_corrupt_record", "one value a message")],
)  # fmt: skip
def test_what_messages_cannot_be_counted_by_is_refused(store: Path, by: str, problem: str) -> None:
    called = call("count", store, "--by", by)

    assert ExitCode.USAGE == called.code
    assert problem in called.errors


def test_where_nothing_is_counted_the_names_of_the_columns_are_written(store: Path) -> None:
    called = call("count", store, "--topic=order", "--by=tags", "--format=csv")

    assert (ExitCode.USAGE, "tags,messages,bytes\n") == (called.code, called.text)


@pytest.mark.parametrize("has_queues", [False, True])
@pytest.mark.parametrize("command", ["count", "cat", "head", "explain"])
def test_an_unknown_queue_is_wrong_usage_too(store: Path, command: str, has_queues: bool) -> None:
    if has_queues:
        (store / "consumequeue" / "orders" / "0").mkdir(parents=True, exist_ok=True)
    called = call(command, store, "--queue-id=99")

    assert ExitCode.USAGE == called.code
    assert "queue 99: " in called.errors
    assert "the ids are 0" in called.errors
    assert ExitCode.DONE == call(command, store, "--queue-id=0").code


# -------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize("name", ["consumequeue", "segments", "topics", "checkpoint"])
def test_every_row_and_column_of_a_view_is_printed(closed: Path, name: str) -> None:
    table = read_view(closed, name).read_all()

    rows = call("view", closed, name, "--format=jsonl").rows

    assert (table.num_rows, table.schema.names) == (len(rows), list(rows[0]))


@pytest.mark.parametrize(("command", "name"), [("ls", "segments"), ("topics", "topics")])
def test_a_table_has_the_columns_that_fit_a_terminal(closed: Path, command: str, name: str) -> None:
    lines = call(command, closed).lines

    assert read_view(closed, name).read_all().num_rows == len(lines) - 1
    assert set(lines[0].split()) < {column.name for column in VIEWS[name].columns}
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("words", [["ls"], ["topics"], ["replay", "--id=x", "--dry-run"]])
def test_help_shows_the_options_that_a_command_takes(closed: Path, words: list[str]) -> None:
    command = program.commands.get(words[0]) or program.get_command(click.Context(program), words[0])
    values = {
        "columns": "topic" if words[0] == "topics" else "segment",
        "time_zone": "UTC",
        "storage": "region=x",
        "release": "5.5",
        "starting_timestamp": "0",
        "ending_timestamp": "1900000000000",
        "as_of": "1900000000000",
        "mode": "FAILFAST",
        "queue_id": "0",
        "topic": "orders",
        "physical_offset": "0",
        "msg_id": "0" * 32,
    }
    for option in command.params if command is not None else ():
        if isinstance(option, click.Option) and option.name in {each.field for each in READ_OPTIONS}:
            given = [option.opts[0]] if option.secondary_opts else [option.opts[0], values.get(option.name, "0")]
            said = call(words[0], closed, *words[1:], *given).errors

            assert option.hidden == ("does not apply" in said or "is not one of a replay" in said), said


def test_each_option_of_a_query_applies_or_is_refused_in_words(closed: Path) -> None:
    command = program.get_command(click.Context(program), "sql")
    fields = {each.field for each in READ_OPTIONS}
    options = [each for each in command.params if isinstance(each, click.Option)] if command is not None else []
    for option in (each for each in options if each.name in fields):
        given = [option.opts[0]] if option.secondary_opts else [option.opts[0], "0"]
        called = call("sql", closed, "SELECT topic FROM messages", *given)
        assert called.code in (ExitCode.DONE, ExitCode.USAGE), called.errors

    assert ExitCode.USAGE == call("sql", closed, "SELECT topic FROM messages", "--columns=topic").code


def test_a_topic_that_only_the_log_has_is_known(closed: Path) -> None:
    shutil.rmtree(closed / "consumequeue")
    (closed / "consumequeue" / "other" / "0").mkdir(parents=True)

    assert ExitCode.DONE == call("topics", closed, "--topic=orders").code


def test_what_else_is_in_a_store_is_noted(closed: Path) -> None:
    make_rocksdb(closed / "rocksdbstore", {"timer": {b"x" * 12: bytes(12)}})

    assert "commitlog: note: " in (errors := call("ls", closed).errors)
    assert "rocksdbstore holds data" in errors
    assert "rocksdbstore holds data" in " ".join(call("check", closed).text.split())


def instants(rows: list[dict[str, Any]]) -> list[datetime | None]:
    times = [row["first_store_timestamp"] for row in rows]
    return [None if time is None else datetime.fromisoformat(time) for time in times]


def test_times_are_in_the_zone_that_is_asked_for(closed: Path) -> None:
    words = ("view", closed, "segments", "--columns=segment,first_store_timestamp", "--format=jsonl")
    there = call(*words, "--time-zone=+05:30").rows

    assert all(row["first_store_timestamp"].endswith("+05:30") for row in there if row["first_store_timestamp"])
    assert instants(call(*words).rows) == instants(there)
    assert ExitCode.USAGE == call(*words, "--time-zone=Mars").code


def test_the_text_of_a_report_is_in_the_zone_that_is_asked_for(closed: Path) -> None:
    words = ("diff", closed, closed)
    here, there = (call(*words, *zone).text for zone in ((), ("--time-zone=Asia/Tokyo",)))

    assert here.count("Z") == there.count("+09:00") > 0
    assert call(*words, "--json").text == call(*words, "--json", "--time-zone=Asia/Tokyo").text


def test_every_column_of_a_message_is_listed_with_its_type() -> None:
    rows = call("schema", "--format=jsonl").rows

    assert [(column.name, str(column.type)) for column in COLUMNS] == [(row["column"], row["type"]) for row in rows]
