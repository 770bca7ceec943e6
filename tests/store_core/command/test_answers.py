# SPDX-License-Identifier: Apache-2.0
"""What the command of each answer does beyond the matrix: when it ends with a finding, and what its options do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.command.console import Console
from store_core.command.exit_code import ExitCode
from tests.builders import BODY_AT, SIZE_AT, LogBuilder, Record
from tests.life_logs import BEGIN, LifeLog
from tests.store_core.command.calls import call
from tests.viewed_store import make_viewed_store, write_config

if TYPE_CHECKING:
    from pathlib import Path


def test_a_bill_is_printed_as_text_and_json(store: Path, tmp_path: Path) -> None:
    called = call("bill", store, "--rows", 1, "--json", "--html", tmp_path / "page")

    (report,) = called.rows
    assert ExitCode.DONE == called.code
    assert ("commitlog-bill/1", 40) == (report["schema"], report["messages"])
    assert "Bytes by topic" in (tmp_path / "page").read_text()
    assert "40 messages of" in call("bill", store).text


def test_damage_ends_with_5(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[2].physical_offset + SIZE_AT, 1)

    assert ExitCode.DAMAGED == call("bill", log.write(tmp_path / "store")).code


def test_a_missing_segment_ends_with_5_and_is_told_in_the_command_s_words(log: LogBuilder, tmp_path: Path) -> None:
    store, page = log.write(tmp_path / "store"), tmp_path / "page"
    sorted((store / "commitlog").iterdir())[1].unlink()
    called = call("bill", store, "--html", page)

    assert ExitCode.DAMAGED == called.code
    for text in (called.text, page.read_text()):
        assert "is missing" in text
        assert "fail_on_data_loss" not in text
    assert ExitCode.DAMAGED == call("producers", store).code


def test_producers_who_sent_a_message_twice_are_a_finding(log: LogBuilder, store: Path, tmp_path: Path) -> None:
    assert ExitCode.DONE == call("producers", store).code
    log.append_all(b"one", b"two", properties={"UNIQ_KEY": "K1"})
    called = call("producers", log.write(tmp_path / "twice"), "--json")

    assert (ExitCode.FINDINGS, 1) == (called.code, called.rows[0]["duplicate_keys"])


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


def test_damage_ends_with_5_and_wrong_usage_with_2(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[2].physical_offset + SIZE_AT, 1)
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"

    assert ExitCode.DAMAGED == call("export", store, "--into", lake).code
    assert ExitCode.USAGE == call("export", store, "--into", lake, "--prove", "--topic", "orders").code
    assert ExitCode.USAGE == call("export", store, "--into", store / "lake").code
    assert ExitCode.USAGE == call("export", store, "--into", tmp_path / "none", "--prove").code


def nine() -> LogBuilder:
    made = LogBuilder()
    made.append_all(*(b"body %d" % number for number in range(9)))
    return made


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return nine().write(tmp_path / "sound")


def test_equal_logs_end_with_0(sound: Path, tmp_path: Path) -> None:
    called = call("diff", sound, nine().write(tmp_path / "other"))

    assert ExitCode.DONE == called.code
    assert "no differences" == called.lines[0]


def test_differing_logs_end_with_1_and_json_has_the_record(sound: Path, tmp_path: Path) -> None:
    changed = nine()
    changed.flip(changed.records[3].physical_offset + BODY_AT)
    called = call("diff", sound, changed.write(tmp_path / "other"), "--json")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-diff/1", "findings", 1) == (report["schema"], report["verdict"], report["changed_records"])
    assert {changed.records[3].physical_offset} == {row["physical_offset"] for row in report["tables"]["records"]}


def test_another_extent_is_a_finding_if_asked_for(sound: Path, tmp_path: Path) -> None:
    behind = nine()
    behind.truncate(behind.records[7].physical_offset)
    behind.write(tmp_path / "behind")

    assert ExitCode.DONE == call("diff", sound, tmp_path / "behind").code
    assert ExitCode.FINDINGS == call("diff", sound, tmp_path / "behind", "--same-extent").code


def test_a_sound_log_ends_with_0_and_nothing_is_written(tmp_path: Path) -> None:
    called = call("salvage", nine().write(tmp_path / "store"))

    assert ExitCode.DONE == called.code
    assert "nothing is lost" in called.text
    assert ["store"] == [path.name for path in tmp_path.iterdir()]


def test_a_damaged_log_ends_with_5_and_the_rest_is_in_a_new_store(tmp_path: Path) -> None:
    damaged = nine()
    damaged.flip(damaged.records[3].physical_offset + BODY_AT)
    called = call("salvage", damaged.write(tmp_path / "store"), "--into", tmp_path / "new", "--json")

    (report,) = called.rows
    assert ExitCode.DAMAGED == called.code
    assert ("commitlog-salvage/1", "damaged", 8) == (report["schema"], report["verdict"], report["records"])
    assert 8 == call("count", tmp_path / "new", "--format", "jsonl").rows[0]["messages"]
    (note,) = report["notes"]
    assert f"commitlog rebuild both {tmp_path / 'new'} --replace" in note


def test_a_target_that_exists_is_wrong_usage(tmp_path: Path) -> None:
    store = nine().write(tmp_path / "store")

    assert ExitCode.USAGE == call("salvage", store, "--into", tmp_path).code


def test_a_copy_is_made_or_refused(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one secret", b"two")
    store, copy = log.write(tmp_path / "store"), tmp_path / "copy"
    called = call("redact", store, "--into", copy, "--text", "secret", "--json")

    assert (ExitCode.DONE, 1) == (called.code, called.rows[0]["messages"])
    assert b"one ******" in (copy / "commitlog" / f"{0:020d}").read_bytes()
    assert ExitCode.REFUSED == call("redact", store, "--into", tmp_path / "no", "--text", "orders").code
    assert ExitCode.USAGE == call("redact", store, "--into", copy, "--text", "secret").code
    assert ExitCode.USAGE == call("redact", store, "--into", tmp_path / "no").code
    assert ["copy", "store"] == sorted(path.name for path in tmp_path.iterdir())


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


def test_transactions_ends_with_1_once_one_is_pending_for_too_long(tmp_path: Path) -> None:
    log = LifeLog()
    log.half("a")
    store = log.write(tmp_path)

    assert ExitCode.DONE == call("transactions", store, "--now", BEGIN).code
    late = call("transactions", store, "--now", "2024-01-01T00:00:00Z", "--older-than", 3600, "--json")
    (report,) = late.rows
    assert (ExitCode.FINDINGS, "commitlog-transactions/1", 1) == (late.code, report["schema"], report["old_pending"])


def test_trace_ends_with_1_for_a_dead_letter_and_with_2_for_nothing(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    log.send("b")
    store = log.write(tmp_path)
    dead = call("trace", store, "a", "--json")

    assert (ExitCode.FINDINGS, "commitlog-trace/1", 2) == (dead.code, dead.rows[0]["schema"], dead.rows[0]["records"])
    assert ExitCode.DONE == call("trace", store, "b", "--as", "key").code
    assert ExitCode.USAGE == call("trace", store, "c").code


def test_deadletters_ends_with_1_if_there_are_any(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    store = log.write(tmp_path)
    found = call("deadletters", store, "--json")

    assert (ExitCode.FINDINGS, "commitlog-deadletters/1", 1) == (
        found.code,
        found.rows[0]["schema"],
        found.rows[0]["here"],
    )
    assert ExitCode.DONE == call("deadletters", store, "--group", "none").code


def test_replay_appends_what_filters_choose_once(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    store, words = log.write(tmp_path / "store"), ("--topic", "%DLQ%billing", "--id", "T-1", "--into", tmp_path / "new")
    dry = call("replay", store, *words, "--dry-run")
    done, again = (call("replay", store, *words, "--json") for _ in range(2))

    assert (ExitCode.DONE, True) == (dry.code, "1 message of" in dry.text)
    assert [(1, False), (1, True)] == [
        (found.rows[0]["messages"], found.rows[0]["is_repeat"]) for found in (done, again)
    ]
    assert ExitCode.USAGE == call("replay", store, "--id", "").code


def test_delays_ends_with_1_once_messages_are_late(tmp_path: Path) -> None:
    log = LifeLog()
    log.delayed("a", 3)
    store = log.write(tmp_path / "store")

    assert ExitCode.DONE == call("delays", store, "--now", BEGIN).code
    late = call("delays", store, "--now", BEGIN + 100_000, "--late-after", 30, "--html", tmp_path / "delays.html")
    assert (ExitCode.FINDINGS, True) == (late.code, "1 is overdue" in late.text)
    assert "delays" in (tmp_path / "delays.html").read_text()
    assert ExitCode.USAGE == call("delays", store, "--now", "soon").code


@pytest.fixture
def consumed(tmp_path: Path) -> Path:
    return make_viewed_store(tmp_path / "store")


def test_wrong_offsets_end_with_1_and_messages_are_listed(consumed: Path, tmp_path: Path) -> None:
    options = ["--group", "billing", "--messages", "--rows", 2, "--now", "2035-01-01T00:00:00Z"]
    called = call("lag", consumed, *options, "--json", "--html", tmp_path / "page")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-lag/1", 20) == (report["schema"], report["messages"])
    assert [10, 11] == [row["queue_offset"] for row in report["tables"]["messages"]]
    assert [["k30"], ["k33"]] == [row["keys"] for row in report["tables"]["messages"]]
    assert "Messages not consumed, by group" in (tmp_path / "page").read_text()


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


def test_retention_ends_with_1_where_messages_go_that_nobody_consumed(consumed: Path, tmp_path: Path) -> None:
    now = ["--now", "2035-01-01T00:00:00Z", "--time-zone", "UTC", "--days", 3, "--disk-size", 10**9, "--disk-used", 1]
    called = call("retention", consumed, *now, "--daily-growth", 0, "--json", "--html", tmp_path / "page")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-retention/1", 2) == (report["schema"], report["deleted_segments"])
    assert "The disk at the end of each day" in (tmp_path / "page").read_text()
    kept = call("retention", consumed, *now, "--daily-growth", 0, "--file-reserved-time", 10**6)
    assert ExitCode.DONE == kept.code
    assert "no segment will go by 2035-01-04" in kept.text
    assert ExitCode.USAGE == call("retention", consumed, *now, "--delete-when", "noon").code
