# SPDX-License-Identifier: Apache-2.0
"""The commands ls, topics and view print what `read_view` reads."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_view
from store_core.command.exit_code import ExitCode
from store_core.views.view_columns import VIEWS
from tests.store_core.command.calls import call
from tests.store_core.files.rocksdbs import make_rocksdb

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Make a store with queues and an index."""
    root = tmp_path / "closed"
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=8, max_index_num=40)
    with DefaultMessageStore.open(root, config) as store:
        for number in range(30):
            store.put_message(Message("orders", b"body-%d" % number, queue_id=number % 2, keys=f"k-{number}"))
    return root


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


@pytest.mark.parametrize("command", [["topics"], ["view", "consumequeue"], ["replay", "--id=x", "--dry-run"]])
def test_a_topic_that_is_nowhere_in_the_store_is_wrong_usage(closed: Path, command: list[str]) -> None:
    name, *more = command
    unknown = call(name, closed, *more, "--topic=Nope")

    assert ExitCode.USAGE == unknown.code
    assert unknown.errors.count("Nope") == 1
    assert ExitCode.DONE == call(name, closed, *more, "--topic=orders").code


def test_a_topic_that_only_the_log_has_is_known(closed: Path) -> None:
    shutil.rmtree(closed / "consumequeue")
    (closed / "consumequeue" / "other" / "0").mkdir(parents=True)

    assert ExitCode.DONE == call("topics", closed, "--topic=orders").code


def test_filters_of_a_view_apply(closed: Path) -> None:
    assert [1] == [row["queue_id"] for row in call("topics", closed, "--queue-id=1", "--format=jsonl").rows]


def test_an_option_that_a_view_does_not_take_is_wrong_usage_and_named(closed: Path) -> None:
    called = call("ls", closed, "--tag=a")

    assert ExitCode.USAGE == called.code
    assert "option tag does not apply to view 'segments'" in called.errors


def test_what_else_is_in_a_store_is_noted(closed: Path) -> None:
    make_rocksdb(closed / "rocksdbstore", {"timer": {b"x" * 12: bytes(12)}})

    assert "commitlog: note: " in (errors := call("ls", closed).errors)
    assert "rocksdbstore holds data" in errors
    assert "rocksdbstore holds data" in " ".join(call("check", closed).text.split())
