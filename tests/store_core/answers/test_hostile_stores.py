# SPDX-License-Identifier: Apache-2.0
"""Answers go on without what they can do without, and name what was mistyped, compressed, broken or is missing."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from store_core import DefaultMessageStore, rebuild_consume_queue, rebuild_index
from store_core.answers import (
    Lag,
    Retention,
    check,
    dead_letters,
    delays,
    diff,
    export,
    lag,
    plan_repair,
    prove,
    recover,
    redact,
    repair,
    replay,
    salvage,
    trace,
    transactions,
)
from store_core.answers.disk_forecast import mistaken_settings
from store_core.answers.report import Verdict
from store_core.errors import (
    CorruptRecordError,
    InvalidOptionError,
    SegmentLayoutError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from store_core.files.file_system import OsFileSystem
from store_core.store.export.export_ledger import ExportLedger
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.new_directory import NewDirectory, named_places, places_beside
from tests.builders import LogBuilder
from tests.life_logs import BEGIN, LifeLog, write_config
from tests.store_core.answers.asked import answers_at
from tests.store_core.files.store_kinds import every_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.format.release import Release


CONFIGS = ("consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json")
OFFSETS = {"offsetTable": {"orders@billing": {"0": 1}}}
NOW = 1_800_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store with a message of each kind."""
    log = LifeLog(2048)
    sent = log.send("a")
    log.half("t")
    log.delayed("d", 3)
    log.dead(sent, "a", "billing", 17)
    log.op(log.half("settled"))
    for number in range(20):
        sent = log.send(f"more-{number}")
        if number % 5 == 0:
            log.dead(sent, f"more-{number}", "audit")
    return log.write(tmp_path / "store")


ANSWERS = answers_at(BEGIN, "a")
OF_LIFE = ("bill", "deadletters", "delays", "retention", "trace", "transactions")


# ---- broken configuration


@pytest.mark.parametrize("name", OF_LIFE)
def test_a_broken_configuration_is_a_note(name: str, store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    for each in CONFIGS:
        (store / "config" / each).write_text('{"broken')
    (note,) = [note for note in ANSWERS[name].ask(store).found.notes if "not known" in note and "bad JSON" in note][:1]

    assert str(store / "config") in note


def test_the_backup_of_a_broken_configuration_is_taken_as_a_broker_does(store: Path) -> None:
    write_config(store, consumerOffset=OFFSETS)
    path = store / "config" / "consumerOffset.json"
    path.rename(path.with_name("consumerOffset.json.bak"))
    path.write_text('{"broken')
    report = trace(store, "a")

    assert ["billing"] == report.tables["consumers"].filter(report.tables["consumers"]["is_past"])["group"].to_pylist()
    assert ["consumerOffset.json.bak was loaded instead" in note for note in report.found.notes] == [True]


READ_FILES = {
    "trace": CONFIGS[:2],
    "transactions": CONFIGS[:1],
    "delays": CONFIGS[1:2],
    "deadletters": CONFIGS[2:3],
    "bill": CONFIGS[3:],
    "lag": (CONFIGS[0], CONFIGS[2]),
}


@pytest.mark.parametrize(("answer", "name"), [(answer, name) for answer, names in READ_FILES.items() for name in names])
@pytest.mark.parametrize("text", ['{"broken', "", None])
def test_a_report_says_that_a_backup_was_read(answer: str, name: str, text: str | None, store: Path) -> None:
    write_config(store, consumerOffset=OFFSETS)
    path = store / "config" / name
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
    path.with_name(f"{name}.bak").write_text('{"offsetTable":{},"topicConfigTable":{},"subscriptionGroupTable":{}}')
    report = ANSWERS[answer].ask(store)

    assert [True] == [str(path) in note for note in report.found.notes if f"{name}.bak was loaded instead" in note]


def test_zeros_after_a_file_are_no_reason_for_its_backup(store: Path) -> None:
    write_config(store, consumerOffset=OFFSETS)
    path = store / "config" / "consumerOffset.json"
    before = lag(store)
    path.write_bytes(path.read_bytes() + bytes(4096))
    path.with_name("consumerOffset.json.bak").write_text('{"offsetTable":{"orders@billing":{0:0}}}')

    assert (before.tables, before.found.notes) == (lag(store).tables, lag(store).found.notes)


def test_lag_does_without_all_but_the_offsets(store: Path) -> None:
    write_config(store, consumerOffset=OFFSETS)
    (store / "config" / "subscriptionGroup.json").write_text("[")

    assert any("which groups there are is not known" in note for note in lag(store).found.notes)

    (store / "config" / "consumerOffset.json").write_text("{")
    with pytest.raises(CorruptRecordError, match=r"consumerOffset\.json"):
        lag(store)


# ---- compressed segments


def compress(store: Path, *numbers: int, suffix: str = "gz") -> list[Path]:
    """Compress segments as gzip does, which keeps their times; all of them if no number is given."""
    segments, made = sorted((store / "commitlog").iterdir()), []
    for path in [segments[number] for number in numbers] or segments:
        made.append(path.with_name(f"{path.name}.{suffix}"))
        made[-1].write_bytes(gzip.compress(path.read_bytes()))
        os.utime(made[-1], ns=(path.stat().st_mtime_ns,) * 2)
        path.unlink()
    return made


@pytest.mark.parametrize("numbers", [(), (0,), (1,), (0, 2)])
@pytest.mark.parametrize("name", OF_LIFE)
def test_an_answer_is_the_same_whichever_segments_are_compressed(
    name: str, numbers: tuple[int, ...], store: Path
) -> None:
    (store / "config").mkdir(exist_ok=True)
    expected = ANSWERS[name].ask(store).to_json()["tables"]
    compress(store, *numbers)
    found = ANSWERS[name].ask(store).to_json()["tables"]
    for tables in (expected, found):
        for row in tables.get("deletions", []):
            row.pop("segment"), row.pop("last_modified"), row.pop("deleted")

    assert expected == found


@pytest.mark.parametrize("suffix", ["gz", "GZ"])
def test_compressed_segments_are_exported_and_proved(suffix: str, store: Path, tmp_path: Path) -> None:
    expected = export(store, tmp_path / "plain").found.messages
    compress(store, suffix=suffix)

    assert (30, 30) == (expected, export(store, tmp_path / "lake").found.messages)
    assert 0 == prove(store, tmp_path / "lake").found.differences
    assert 0 == prove(store, tmp_path / "plain").found.differences
    assert export(store, tmp_path / "plain").found.number is None


# ---- exports


def test_nothing_to_export_is_said_as_such_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(StoreNotFoundError, match="nothing to read"):
        export(tmp_path / "empty", tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_a_topic_too_long_for_a_directory_is_exported_under_a_cut_name(tmp_path: Path) -> None:
    log, names = LogBuilder(1 << 14), ("%" * 100 + "a", "%" * 100 + "b", "%" * 83 + "\N{SNOWMAN}")
    for name in (*names, "orders"):
        log.append(b"body", topic=name)
    lake = tmp_path / "lake"
    assert 4 == export(log.write(tmp_path / "store"), lake).found.messages

    (entry,) = ExportLedger(lake, OsFileSystem()).entries()
    topics = {each.topic for each in entry.files}
    assert {*names, None} == topics
    for each in entry.files:
        metadata = pq.read_metadata(lake / each.path).metadata or {}
        assert each.topic == (metadata[b"commitlog.topic"].decode() if each.topic else None)
        assert max(map(len, each.path.split("/"))) <= 255
    assert 4 == len({each.path.split("/")[0] for each in entry.files})
    assert 0 == prove(tmp_path / "store", lake).found.differences
    assert export(tmp_path / "store", lake).found.number is None


# ---- mistyped names


def test_a_mistyped_name_is_refused_with_one_like_it(store: Path, tmp_path: Path) -> None:
    (store / "consumequeue" / "orders").mkdir(parents=True)
    write_config(store, consumerOffset=OFFSETS)

    assert 1 == dead_letters(store, group=("billing",)).found.letters
    with pytest.raises(InvalidOptionError, match=r"no consumer group 'biling' in .*; did you mean 'billing'\?"):
        dead_letters(store, group=("billing", "biling"))
    with pytest.raises(InvalidOptionError, match=r"has no topic 'ordrs'; did you mean 'orders'\?"):
        redact(store, tmp_path / "copy", topic=["orders", "ordrs"])
    with pytest.raises(InvalidOptionError, match=r"has no topic 'ordrs'; did you mean 'orders'\?"):
        export(store, tmp_path / "lake", topic=["ordrs"])
    assert [store] == list(tmp_path.iterdir())
    assert 1 == export(store, tmp_path / "lake", topic=["%DLQ%billing"]).found.messages  # which only the log knows


def test_a_group_that_is_known_and_has_no_letters_is_no_mistake(store: Path) -> None:
    write_config(store, consumerOffset={"offsetTable": {"orders@other": {"0": 1}}})

    assert 0 == dead_letters(store, group=("other",)).found.letters


# ---- errors that name what the user knows


def test_an_error_of_a_redaction_names_the_store_and_not_its_copy(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (store / "commitlog" / "junk").write_bytes(b"")
    min((store / "commitlog").glob("0*")).unlink()
    assert 0 == redact(store, tmp_path / "copy", text="body").found.messages
    assert str(store) in caplog.text
    assert ".copy.redact-" not in caplog.text

    for path in (store / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(StoreNotFoundError, match=f"no segment file in {store}") as caught:
        redact(store, tmp_path / "copy", text="body")
    assert ".copy.redact-" not in str(caught.value)


def test_an_error_of_the_system_names_the_target_and_not_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    places = places_beside(tmp_path / "new", "copy", str(tmp_path / "store"))
    text = str(places[1] / "commitlog")
    for error, expected in (
        (OSError(errno.ENOSPC, "No space left", text), tmp_path / "new" / "commitlog"),
        (CorruptRecordError("bad", text, 0, "a", "b", b""), tmp_path / "store" / "commitlog"),
        (CorruptRecordError("bad", "elsewhere", 0, "a", "b", b""), "elsewhere"),
        (OSError(errno.ENOSPC, "No space left", "elsewhere"), "elsewhere"),
    ):
        match = pytest.raises(type(error), match=str(expected))
        with match, NewDirectory(*places) as made, named_places(made, tmp_path / "store"):
            raise error


def test_a_target_that_can_not_be_made_is_named(store: Path) -> None:
    with pytest.raises(OSError, match="/proc/copy'"):
        redact(store, "/proc/copy", text="body")


def test_a_replay_of_an_inner_batch_names_the_message(tmp_path: Path) -> None:
    log = LifeLog(2048)
    log.send("a", sys_flag=0x80)

    with pytest.raises(UnsupportedStoreError, match=r"message [0-9A-F]{32} of topic orders is an inner batch"):
        replay(log.write(tmp_path / "store"), "T-1", tmp_path / "new")


# ---- times and settings that nobody can mean


@pytest.mark.parametrize("time", [-(2**63), -1, 253_339_228_800_001, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_refused(time: int, store: Path) -> None:
    with pytest.raises(InvalidOptionError, match="option now"):
        Lag(now=time)
    with pytest.raises(InvalidOptionError, match="option asOf"):
        Lag(as_of=time)
    with pytest.raises(InvalidOptionError, match=r"^option now: expected a time from 1970-01-01 to "):
        Retention(now=time)
    with pytest.raises(InvalidOptionError, match="option now"):
        delays(store, now=time)
    with pytest.raises(InvalidOptionError, match="option now"):
        transactions(store, now=time)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("delete_when", "99", "0 to 23"),
        ("delete_when", "04;-1", "found -1"),
        ("file_reserved_time", -5, "0 hours or more"),
        ("disk_max_used_space_ratio", 500, "percentage"),
    ],
)
def test_a_setting_that_nobody_can_mean_is_refused_by_its_name(name: str, value: Any, message: str) -> None:  # noqa: ANN401 -- of several types
    with pytest.raises(InvalidOptionError, match=rf"^{name}: .*{message}"):
        Retention(now=NOW, **{name: value})


def test_of_a_brokers_file_such_settings_are_taken_as_rocketmq_takes_them(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("deleteWhen=99\nfileReservedTime=-5\ndiskMaxUsedSpaceRatio=5\n")
    chosen = Retention(now=NOW, disk_size=2**40, disk_used=2**30, daily_growth=0)
    notes = chosen.ask(store, config=file).found.notes

    assert 3 == sum(note.startswith(("deleteWhen", "fileReservedTime", "disk_max")) for note in notes)
    assert [] == list(mistaken_settings(MessageStoreConfig()))


# ---- a segment is missing: nobody knows what was in it

SIZE = 4096
"""Bytes of a segment."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three segments and what a group has committed; the second segment is missing."""
    log = LifeLog(SIZE)
    log.send("key")
    log.roll()
    log.send("lost")
    log.roll()
    log.send("last")
    found = log.write(tmp_path)
    write_config(found, consumerOffset={"offsetTable": {"orders@billing": {"0": -1}}}, delayOffset={"offsetTable": {}})
    (found / "commitlog" / f"{SIZE:020}").unlink()
    return found


@pytest.mark.parametrize("name", ["trace", "deadletters", "delays", "transactions", "lag"])
def test_a_missing_segment_is_damage(name: str, root: Path) -> None:
    report = answers_at(BEGIN, "key")[name].ask(root)

    assert (Verdict.DAMAGED, SIZE) == (
        report.verdict,
        report.facts.get("missing_bytes", report.facts.get("lost_bytes")),
    )
    assert f"{SIZE:,} bytes of the log are" in "\n".join(report.lines)


def test_what_is_not_found_may_be_in_a_missing_segment(root: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="4,096 bytes of its log are missing, where one may have been"):
        trace(root, "lost")


def test_an_offset_below_0_of_a_queue_that_is_not_there_is_of_an_empty_one(root: Path) -> None:
    (row,) = (row for row in lag(root).tables["queues"].to_pylist() if row["topic"] == "orders")

    assert ("empty", 0) == (row["state"], row["messages"])


SEGMENT = 2048
REFUSING: dict[str, Callable[[Path], Any]] = {
    "check": check,
    "diff": lambda path: diff(path, path),
    "plan_repair": plan_repair,
    "rebuild_consume_queue": rebuild_consume_queue,
    "rebuild_index": rebuild_index,
    "redact": lambda path: redact(path, path.parent / "copy", text="body"),
    "salvage": salvage,
}


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Make a log of several segments, and the queues of it."""
    log = LogBuilder(SEGMENT)
    while len(log.records) < 60:
        log.append(b"body")
    root = log.write(tmp_path / "store")
    rebuild_consume_queue(root)
    shutil.move(root / "rebuilt" / "consumequeue", root)
    return root


@pytest.mark.parametrize("answer", [*REFUSING, "recover"])
def test_an_archive_is_refused_with_what_to_do(packed: Path, tmp_path: Path, answer: str) -> None:
    with tarfile.open(tmp_path / "backup.tar.gz", "w:gz") as backup:
        backup.add(packed, "store")
    with pytest.raises(UnsupportedStoreError, match=r"backup\.tar\.gz is an archive: .* Unpack it"):
        (REFUSING | {"recover": recover})[answer](tmp_path / "backup.tar.gz")


def test_a_repair_of_an_archive_is_refused_before_anything_is_locked(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan_repair(packed).to_json()))
    with tarfile.open(tmp_path / "backup.tar", "w") as backup:
        backup.add(packed, "store")
    with pytest.raises(UnsupportedStoreError, match=r"backup\.tar is an archive"):
        repair(tmp_path / "backup.tar", tmp_path / "plan.json")


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("answer", REFUSING)
def test_a_compressed_segment_is_refused_by_name_wherever_it_is_in_the_log(
    packed: Path, answer: str, number: int
) -> None:
    (path,) = compress(packed, number)
    before = every_file(packed)

    with pytest.raises(UnsupportedStoreError, match=f"{path} is compressed: .* put what it expands to in its place"):
        REFUSING[answer](packed)
    assert before == every_file(packed)
    assert not (packed.parent / "copy").exists()


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.5"])
def test_no_release_opens_a_log_with_a_compressed_segment(packed: Path, release: Release, number: int) -> None:
    (path,) = compress(packed, number)
    before = every_file(packed)
    report = recover(packed, release=release)

    assert "refused" == report.verdict.value
    assert f"{path}: expected a segment of {SEGMENT} bytes" in report.tables["releases"]["refusal"][0].as_py()
    with pytest.raises(SegmentLayoutError, match=f"{path}: .* put what it expands to in its place"):
        DefaultMessageStore.open(packed, MessageStoreConfig(release=release))
    assert before.items() <= every_file(packed).items()
