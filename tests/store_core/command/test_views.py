# SPDX-License-Identifier: Apache-2.0
"""The commands ls, topics and view print what `read_view` reads."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import TYPE_CHECKING

import click
import pytest

from store_core import read_view
from store_core.command.exit_code import ExitCode
from store_core.command.program import program
from store_core.format.columns import COLUMNS
from store_core.store.read.option_table import READ_OPTIONS
from store_core.views.view_columns import VIEWS
from tests.store_core.command.calls import call
from tests.store_core.files.rocksdbs import make_rocksdb

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_topic_that_only_the_log_has_is_known(closed: Path) -> None:
    shutil.rmtree(closed / "consumequeue")
    (closed / "consumequeue" / "other" / "0").mkdir(parents=True)

    assert ExitCode.DONE == call("topics", closed, "--topic=orders").code


def test_what_else_is_in_a_store_is_noted(closed: Path) -> None:
    make_rocksdb(closed / "rocksdbstore", {"timer": {b"x" * 12: bytes(12)}})

    assert "commitlog: note: " in (errors := call("ls", closed).errors)
    assert "rocksdbstore holds data" in errors
    assert "rocksdbstore holds data" in " ".join(call("check", closed).text.split())


def test_times_are_in_the_zone_that_is_asked_for(closed: Path) -> None:
    words = ("view", closed, "segments", "--columns=segment,first_store_timestamp", "--format=jsonl")
    there = call(*words, "--time-zone=+05:30").rows

    assert all(row["first_store_timestamp"].endswith("+05:30") for row in there if row["first_store_timestamp"])
    assert [
        None if time is None else datetime.fromisoformat(time)
        for row in call(*words).rows
        for time in [row["first_store_timestamp"]]
    ] == [
        None if time is None else datetime.fromisoformat(time)
        for row in there
        for time in [row["first_store_timestamp"]]
    ]
    assert ExitCode.USAGE == call(*words, "--time-zone=Mars").code


def test_the_text_of_a_report_is_in_the_zone_that_is_asked_for(closed: Path) -> None:
    words = ("diff", closed, closed)
    here, there = (call(*words, *zone).text for zone in ((), ("--time-zone=Asia/Tokyo",)))

    assert here.count("Z") == there.count("+09:00") > 0
    assert call(*words, "--json").text == call(*words, "--json", "--time-zone=Asia/Tokyo").text


def test_every_column_of_a_message_is_listed_with_its_type() -> None:
    rows = call("schema", "--format=jsonl").rows

    assert [(column.name, str(column.type)) for column in COLUMNS] == [(row["column"], row["type"]) for row in rows]
