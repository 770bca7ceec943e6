# SPDX-License-Identifier: Apache-2.0
"""What the command of each answer does beyond the matrix: when it ends with a finding, and what its options do."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from store_core import MessageStoreConfig
from store_core.answers import Bill, Check, Export, Recover, Redact, Replay
from store_core.answers.store_recover import MOST_MESSAGES
from store_core.command.console import Console
from store_core.command.exit_code import ExitCode
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from tests.builders import LogBuilder, Record
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


@pytest.mark.parametrize("options", [["--group", "nobody"], ["--as-of", "noon"], ["--as-of", "2024-05-01"]])
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


# ---- check: findings and certificates


def test_the_report_is_printed_as_json_and_written_as_a_certificate(closed: Path, config: Path, tmp_path: Path) -> None:
    target = tmp_path / "certificate.json"

    (printed,) = call("check", closed, "--config", config, "--json", "--certificate", target).rows

    assert "commitlog-check/1" == printed["schema"]
    assert printed == json.loads(target.read_text())
    assert [15, 15] == [each["records"] for each in printed["tables"]["certificates"]]


def test_few_findings_of_each_kind_are_printed(closed: Path, config: Path) -> None:
    shutil.rmtree(closed / "consumequeue" / "orders" / "1")
    shutil.rmtree(closed / "index")

    lines = call("check", closed, "--config", config, around=Console(width=80)).lines
    rows = lines[lines.index("The first of each kind:") : lines.index("Next:")]

    assert ["orders/1/0", "orders/1/1", "orders/1/2"] == [
        row.split()[1] for row in rows if row.startswith("unit_missing")
    ]
    assert 3 == sum(row.startswith("index_missing") for row in rows)
    assert 80 >= max(map(len, rows))


# ---- repair: it plans by default, and does only what a plan says


@pytest.fixture
def broken(closed: Path) -> Path:
    shutil.rmtree(closed / "consumequeue" / "orders" / "1")
    return closed


def test_a_plan_in_a_file_is_carried_out_and_then_nothing_is_left_to_do(
    broken: Path, config: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    planned = call("repair", broken, "--config", config, "--plan", plan, "--json")
    applied = call("repair", broken, "--apply", plan)

    assert planned.rows == [json.loads(plan.read_text())]
    assert ExitCode.DONE == applied.code
    assert "made what was missing in 1 place: there are no old files to keep" in applied.lines
    assert ExitCode.DONE == call("check", broken, "--config", config).code
    again = call("repair", broken, "--apply", plan)
    assert (ExitCode.DONE, True) == (again.code, "queues and index are right: nothing was replaced" in again.lines)


def test_a_plan_that_does_not_fit_and_a_held_store_are_refused(broken: Path, config: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    call("repair", broken, "--config", config, "--plan", plan)
    with StoreLock(broken, OsFileSystem()):
        assert ExitCode.REFUSED == call("repair", broken, "--apply", plan).code
    shutil.rmtree(broken / "consumequeue" / "orders" / "0")
    called = call("repair", broken, "--apply", plan)

    assert ExitCode.REFUSED == called.code
    assert "another state of the store: consumequeue/orders/0" in called.errors


@pytest.mark.parametrize(
    "options", [["--release", "5.3"], ["--config", "x"], ["--index-num", "9"], ["--plan", "other.json"]]
)
def test_a_plan_is_applied_as_it_is(options: list[str], broken: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}")

    assert ExitCode.USAGE == call("repair", broken, "--apply", plan, *options).code


# ---- recover: it shows what a start would do


MESSAGES = 150


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Make a crashed store whose second record has another magic code: the log ends before it."""
    log = LogBuilder()
    for number in range(MESSAGES + 1):
        log.append(b"body", properties=b"KEYS\x01key-%d\x02" % (number - 1))
    log.patch(log.records[1].physical_offset + 4, b"\0\0\0\0")
    root = log.write(tmp_path / "torn")
    (root / "abort").touch()
    return root


def test_a_dry_run_says_first_that_nothing_was_changed_if_something_would(closed: Path, config: Path) -> None:
    told = "nothing was changed: opening the store for writing would do this"
    whole = call("recover", closed, "--dry-run", "--config", config).lines
    shutil.rmtree(closed / "consumequeue")
    lines = call("recover", closed, "--dry-run", "--config", config).lines

    assert told not in whole
    assert told in lines[2:4]
    assert any(line.startswith("would create") for line in lines)


def test_messages_that_would_be_truncated_are_listed(torn: Path, config: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("recover", torn, "--dry-run", "--config", config)
    (few,) = call(*words, "--json", "--html", page).rows
    (everything,) = call(*words, "--json", "--messages").rows

    assert MESSAGES - 1 == few["truncated_messages"] == everything["truncated_messages"]
    assert MOST_MESSAGES == len(few["tables"]["messages"])
    assert [f"key-{number}" for number in range(1, MESSAGES)] == [
        row["keys"][0] for row in everything["tables"]["messages"]
    ]
    assert f"{MESSAGES - 1} sound messages would be truncated" in page.read_text()
    assert any(line.endswith("more, which the JSON has") for line in call(*words).lines)
    assert MESSAGES - 1 == sum("key-" in line for line in call(*words, "--messages").lines)


def test_without_dry_run_it_is_wrong_usage(closed: Path) -> None:
    called = call("recover", closed)

    assert ExitCode.USAGE == called.code
    assert "recover never changes a store: it shows what a broker's start would" in called.errors
    assert "--dry-run" in called.errors


def test_a_dry_run_speaks_in_the_conditional_and_of_times_that_people_read(torn: Path, config: Path) -> None:
    text = call("recover", torn, "--dry-run", "--config", config).text
    done = ("deleted", "written", "removed", "created", "truncated", "ended", "cut", "indexed", "dispatched")

    assert "would end the log" in text
    assert "would write" in text
    assert not [line for line in text.splitlines() if line.startswith(done)]
    assert not re.search(r"\b1[67][0-9]{11}\b", text)
