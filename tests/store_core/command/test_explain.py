# SPDX-License-Identifier: Apache-2.0
"""The command explain says how a read would be made, and get reads so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core import explain
from store_core.command.exit_code import ExitCode
from store_core.store.read.read_messages import read_messages
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_it_says_what_the_core_says(store: Path) -> None:
    expected = explain(store, topic="orders")
    (row,) = call("explain", store, "--topic=orders", "--format=jsonl").rows

    assert (expected.plan, expected.why, expected.bytes) == (row["plan"], row["why"], row["bytes"])
    assert f"plan     {expected.plan}" in call("explain", store, "--topic=orders").lines


def test_one_message_is_read_at_its_position(store: Path) -> None:
    row = call("get", store, "k-5", "--format=jsonl").rows[0]

    for option in (f"--msg-id={row['msg_id']}", f"--physical-offset={row['physical_offset']}"):
        (found,) = call("explain", store, option, "--format=jsonl").rows
        assert "position" == found["plan"]


def test_get_reads_an_id_by_the_look_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = call("get", store, "k-5", "--format=jsonl").rows[0]
    asked: list[dict[str, Any]] = []

    def noted(path: str, **options: Any) -> Any:  # noqa: ANN401 -- as of the reader
        asked.append(options)
        return read_messages(path, **options)

    monkeypatch.setattr("store_core.store.read.one_message.read_messages", noted)

    assert [row] == call("get", store, row["msg_id"].lower(), "--format=jsonl").rows
    assert [row["msg_id"]] == [options["msg_id"] for options in asked]


def test_an_unknown_topic_or_store_is_named(store: Path, tmp_path: Path) -> None:
    assert ExitCode.USAGE == call("explain", tmp_path / "none").code
    assert ExitCode.USAGE == call("explain", store, "--mode=FAST").code
    assert ExitCode.USAGE == call("explain", store, "--topic=Nope").code
    assert ExitCode.DONE == call("explain", store, "--topic=orders").code
