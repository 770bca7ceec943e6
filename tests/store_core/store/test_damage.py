# SPDX-License-Identifier: Apache-2.0
"""Damaged stores are recovered as in RocketMQ 4.3.0, 4.9.7, 5.3.3, 5.3.4, 5.4.0, 5.5.0 and 5.5.1.

Each store is opened with an overlay in memory; some also on disk, to see that the result is the same.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore
from store_core.errors import StoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.store.get_message import LogLookup
from tests.golden_stores import read_conf
from tests.store_core.fakes import FakeClock
from tests.store_core.files.store_kinds import every_file
from tests.store_core.store.damaged_stores import (
    RELEASES,
    Opened,
    batch_topics_of,
    config_of,
    damaged_archives,
    expected_answers,
    open_damaged,
    unpack_damaged,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.store.recovery.log_recovery import RecoveryReport


pytestmark = pytest.mark.golden

ARCHIVES: Final = damaged_archives()
KEYS_ASKED: Final = 15
"""How many of the keys that RocketMQ was asked for are asked here, for each store."""

HANGS: Final = "never returns from start()"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    directory = tmp_path_factory.mktemp("damaged")
    return lambda archive: unpack_damaged(archive, directory)


def keys_of(expected: dict[str, Any]) -> list[tuple[str, str, list[int]]]:
    """Return the keys that RocketMQ was asked for, and the offsets that it found."""
    keys: list[tuple[str, str, list[int]]] = expected.get("found") or expected.get("index") or []
    return keys


def opened_in_memory(path: Path, version: str, expected: dict[str, Any]) -> Opened:
    conf = read_conf(path / "store.conf")
    keys = [(topic, key) for topic, key, _ in keys_of(expected)]
    keys = keys[:: max(1, len(keys) // KEYS_ASKED)] if expected.get("indexStable") else []
    system = OverlayFileSystem(OsFileSystem(), FakeClock())
    return open_damaged(path / "store", config_of(conf, version), batch_topics_of(conf), keys, system)


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def test_damaged_store_becomes_what_it_becomes_in_rocketmq(
    unpacked: Callable[[Path], Path], archive: Path, version: str
) -> None:
    path = unpacked(archive)
    expected = expected_answers(path).get(version)
    if expected is None:
        return  # RocketMQ was not asked
    opened = opened_in_memory(path, version, expected)

    if expected["load"] == HANGS:
        # Waiting for ever is not an answer: the store is refused, and the error names the hole.
        assert not opened.load
        assert "a segment is missing" in opened.refusal
        return
    assert expected["load"] == opened.load, opened.refusal
    if not opened.load:
        return
    for ours, theirs in ((opened.after_load, expected["afterLoad"]), (opened.after_start, expected["afterStart"])):
        _settle_index_time(ours, theirs, opened)
        assert theirs == ours
    assert expected["units"] == opened.units
    answered = opened.found if "found" in expected else opened.index
    answers = {(topic, key): sorted(offsets) for topic, key, offsets in keys_of(expected)}
    assert not [key for key, offsets in answered.items() if answers[key] != sorted(offsets)]


def _settle_index_time(ours: dict[str, Any], theirs: dict[str, Any], opened: Opened) -> None:
    """Let RocketMQ's checkpoint have the index time of any full file.

    RocketMQ records it in a separate thread for each full file, and answered while these threads were running.
    """
    assert theirs["checkpoint"]["indexMsgTimestamp"] in opened.index_times
    ours["checkpoint"]["indexMsgTimestamp"] = theirs["checkpoint"]["indexMsgTimestamp"]


def test_record_of_the_wrong_size_is_a_message_without_a_topic_in_4_3_after_a_crash(
    unpacked: Callable[[Path], Path], tmp_path: Path
) -> None:
    """While the store is open: RocketMQ's next start does not find that queue either."""
    archive = next(archive for archive in ARCHIVES if archive.name.startswith("garble-size-a"))
    shutil.copytree(unpacked(archive) / "store", tmp_path / "store")
    config = config_of(read_conf(unpacked(archive) / "store.conf"), "4.3.0")
    with DefaultMessageStore.open(tmp_path / "store", config) as store:
        told = [decision for decision in store.recovery_report.decisions if "no name" in decision.where]
        result = store.get_message("g", "", 0, 0, 32)
        counts = [store.get_max_offset_in_queue("", queue_id) for queue_id in (0, 1)]
    with DefaultMessageStore.open(tmp_path / "store", config) as store:
        counts.append(store.get_max_offset_in_queue("", 0))

    assert [1, 0, 0] == counts
    assert 1 == len(told)
    assert result is not None
    assert ("MESSAGE_WAS_REMOVING", 1) == (result.status.name, result.next_begin_offset)
    assert not (tmp_path / "store" / "consumequeue" / "0").exists()


# ---- reports match what was done


def told(root: Path, report: RecoveryReport) -> dict[str, tuple[str, int]]:
    return {str(change.path.relative_to(root)): (change.kind, change.first_changed) for change in report.changes}


def done(before: dict[str, bytes | None], after: dict[str, bytes | None]) -> dict[str, tuple[str, int]]:
    found = dict.fromkeys(before.keys() - after.keys(), ("removed", 0))
    found |= dict.fromkeys(after.keys() - before.keys(), ("created", 0))
    for name in before.keys() & after.keys():
        old, new = before[name] or b"", after[name] or b""
        if old != new:
            shared = min(len(old), len(new))
            first = next((at for at in range(shared) if old[at] != new[at]), shared)
            found[name] = ("truncated" if len(new) < len(old) else "written", first)
    return found


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("archive", ARCHIVES[:: max(1, len(ARCHIVES) // 24)], ids=lambda path: path.name.split(".")[0])
def test_dry_run_tells_what_opening_does(
    unpacked: Callable[[Path], Path], tmp_path: Path, archive: Path, version: str
) -> None:
    path, copy = unpacked(archive), tmp_path / "store"
    shutil.copytree(path / "store", copy)
    conf = read_conf(path / "store.conf")
    settings: dict[str, Any] = {"config": config_of(conf, version), "batch_topics": batch_topics_of(conf)}
    before = every_file(copy)
    report = DefaultMessageStore.dry_run(copy, **settings, clock=FakeClock())
    assert before == every_file(copy)

    opened = open_damaged(copy, settings["config"], settings["batch_topics"], [])
    assert opened.load is not report.is_refused
    assert told(copy, report) == done(before, every_file(copy))
    if opened.report is not None:
        assert str(opened.report) == str(replace(report, changes=()))
    else:
        assert opened.refusal == report.refusal


@pytest.mark.parametrize("version", RELEASES)
def test_refused_stores_are_left_as_they_are(unpacked: Callable[[Path], Path], tmp_path: Path, version: str) -> None:
    archive = next(archive for archive in ARCHIVES if archive.name.startswith("cqfile-short-a"))
    path, copy = unpacked(archive), tmp_path / "store"
    shutil.copytree(path / "store", copy)
    before = every_file(copy)
    config = config_of(read_conf(path / "store.conf"), version)
    if version == "4.3.0":
        DefaultMessageStore.open(copy, config).close()
        return
    with pytest.raises(StoreError, match="expected a segment of 200 bytes, found 100 bytes"):
        DefaultMessageStore.open(copy, config)

    assert before == {name: content for name, content in every_file(copy).items() if name in before}
    assert {"lock"} >= every_file(copy).keys() - before.keys()


GOLDEN: Final = Path(__file__).parents[2] / "golden" / "damage"
FEW: Final = [archive for archive in ARCHIVES if (GOLDEN / archive.name).exists()]
ASKED: Final = ("4.3.0", "4.9.7", "5.3.3", "5.5.0", "5.5.1")
"""Releases that were asked for the messages of damaged stores; of the others only what became of the files is known."""
_MOST: Final = 32
"""Messages that RocketMQ was asked for at a time."""


def any_bytes(self: LogLookup, physical_offset: int, size: int) -> memoryview | None:
    """Return what RocketMQ takes for a record (``CommitLog.getMessage``): of offset 0 the oldest file has it."""
    queue = self._queue
    file = queue.find_mapped_file_by_offset(physical_offset, return_first=not physical_offset)
    return None if file is None else file.select(physical_offset % queue.file_size, size)


def pulled(archive: Path, directory: Path, version: str) -> int:
    """Compare all gets of a store with those of a release; return how many there are."""
    path = unpack_damaged(archive, directory)
    expected = expected_answers(path).get(version, {})
    if expected.get("load") is not True:
        return 0
    conf, gets = read_conf(path / "store.conf"), expected.get("pull", [])
    topics = batch_topics_of(conf)
    opened = DefaultMessageStore.open(path / "store", config_of(conf, version), batch_topics=topics, read_only=True)
    with opened as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogLookup, "get_message", any_bytes)
        for topic, queue_id, offset, *answer in gets:
            found = store.get_message("group", topic, queue_id, offset, _MOST)
            assert found is not None
            assert answer == [found.status.name, found.next_begin_offset, found.message_count], (topic, offset)
    return len(gets)


@pytest.mark.parametrize("version", ASKED)
@pytest.mark.parametrize("archive", FEW, ids=lambda path: path.name.split(".")[0])
def test_gets_of_a_damaged_store_are_those_of_rocketmq(archive: Path, version: str, tmp_path: Path) -> None:
    pulled(archive, tmp_path, version)


@pytest.mark.soak
@pytest.mark.parametrize("version", ASKED)
def test_all_gets_of_damaged_stores_are_those_of_rocketmq(version: str, tmp_path: Path) -> None:
    assert sum(pulled(archive, tmp_path, version) for archive in ARCHIVES)
