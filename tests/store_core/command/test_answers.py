# SPDX-License-Identifier: Apache-2.0
"""What the command of each answer does beyond the matrix: when it ends with a finding, and what its options do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from store_core import MessageStoreConfig
from store_core.answers import Bill, Check, Export, Recover, Redact, Replay
from store_core.command.console import Console
from store_core.command.exit_code import ExitCode
from tests.builders import LogBuilder, Record
from tests.life_logs import LifeLog
from tests.store_core.command.calls import call
from tests.viewed_store import make_viewed_store, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.answers import Answer


def test_a_missing_segment_ends_with_5_and_is_told_in_the_command_s_words(log: LogBuilder, tmp_path: Path) -> None:
    store, page = log.write(tmp_path / "store"), tmp_path / "page"
    sorted((store / "commitlog").iterdir())[1].unlink()
    called = call("bill", store, "--html", page)

    assert ExitCode.DAMAGED == called.code
    for text in (called.text, page.read_text()):
        assert "is missing" in text
        assert "fail_on_data_loss" not in text
    assert ExitCode.DAMAGED == call("producers", store).code


def test_tables_are_narrowed_on_a_terminal_and_by_columns_only(tmp_path: Path) -> None:
    log, topic = LogBuilder(), "orders-" * 18
    log.append(Record(b"one", topic))
    store = log.write(tmp_path / "named")
    wide = call("bill", store).text
    narrow = [call("bill", store, around=around).text for around in (Console(width=80), Console(columns=80))]

    assert narrow[0] == narrow[1]
    assert topic in narrow[0]
    assert f"topic           {topic}" not in wide
    assert max(map(len, wide.splitlines())) > max(map(len, narrow[0].splitlines()))


def test_an_export_is_written_once_and_proved(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first, again = (call("export", store, "--into", lake, "--json") for _ in range(2))

    assert (ExitCode.DONE, 40) == (first.code, first.rows[0]["messages"])
    assert (ExitCode.DONE, None) == (again.code, again.rows[0]["number"])
    assert "nothing differs" in call("export", store, "--into", lake, "--prove").text
    next(lake.glob("topic=*/*/*.parquet")).unlink()
    assert ExitCode.FINDINGS == call("export", store, "--into", lake, "--prove").code


def test_a_key_that_no_message_has_is_wrong_usage_and_one_redacted_before_is_not(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(b"secret", properties={"KEYS": "k1 k2"})
    store, copy = log.write(tmp_path / "store"), tmp_path / "copy"
    unknown = call("redact", store, "--into", copy, "--key", "k3")

    assert ExitCode.USAGE == unknown.code
    assert "no message in" in unknown.errors
    assert "'k3'" in unknown.errors
    assert ExitCode.DONE == call("redact", store, "--into", copy, "--key", "k2").code
    assert ExitCode.DONE == call("redact", copy, "--into", tmp_path / "again", "--key", "k2").code


def test_trace_ends_with_1_for_a_dead_letter_and_with_2_for_nothing(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    log.send("b")
    store = log.write(tmp_path)
    dead = call("trace", store, "a", "--json")

    assert (ExitCode.FINDINGS, "commitlog-trace/1", 2) == (dead.code, dead.rows[0]["schema"], dead.rows[0]["records"])
    assert ExitCode.DONE == call("trace", store, "b", "--as", "key").code
    assert ExitCode.USAGE == call("trace", store, "c").code


@pytest.fixture
def consumed(tmp_path: Path) -> Path:
    return make_viewed_store(tmp_path / "store")


def test_to_be_behind_ends_with_0_and_ages_are_in_words(consumed: Path) -> None:
    write_config(consumed, "consumerOffset.json", '{"offsetTable":{"orders@billing":{0:10,1:30}}}')
    called = call("lag", consumed)

    assert ExitCode.DONE == called.code
    assert "20 messages of 2,400 bytes not consumed, by 1 group in 1 queue" in called.text
    assert "Queues of groups" in called.text


def test_an_earlier_time_is_said_with_what_can_be_known(consumed: Path) -> None:
    called = call("lag", consumed, "--topic", "orders", "--as-of", "2020-01-01", "--time-zone", "UTC")

    assert "no message is known to be left to consume as of 2020-01-01T00:00:00.000Z" in called.text
    assert "offsets of the past are not on disk" in " ".join(called.text.split())


@pytest.mark.parametrize(
    "options", [["--group", "nobody"], ["--topic", "nothing"], ["--as-of", "noon"], ["--as-of", "2024-05-01"]]
)
def test_what_is_not_there_is_wrong_usage(consumed: Path, options: list[str]) -> None:
    assert ExitCode.USAGE == call("lag", consumed, *options).code


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (Bill(rows=3), "commitlog bill /s --rows 3"),
        (Check(), "commitlog check /s"),
        (Check(check_crc=False, topic=("a b",)), "commitlog check /s --no-bodies --topic 'a b'"),
        (Redact("/new", text="jane@example.org"), "commitlog redact /s --into /new --text ..."),
        (Recover(release=("4.9", "5.3")), "commitlog recover /s --release 4.9 --release 5.3 --dry-run"),
        (Export("/lake", kind="delta", prove=True), "commitlog export /s --into /lake --format delta --prove"),
        (
            Replay.of("T-1", edit={"body": "x"}, into_config=MessageStoreConfig(), queue_id=3),
            "commitlog replay /s --id T-1 --edit body=x --queue-id 3",
        ),
    ],
)
def test_a_command_line_has_what_is_no_default(asked: Answer[Any], command: str) -> None:
    assert command == asked.command_line("/s")
    assert f"{command} --config b.conf" == asked.command_line("/s", "b.conf")
