# SPDX-License-Identifier: Apache-2.0
"""A check of a store that is being written finds what is wrong, and nothing that only is not there yet."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_view
from store_core.answers import Check, check, check_job
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.queue.index_service import IndexService
from store_core.snapshot import log_end
from store_core.snapshot.log_end import FoundEnd, LiveMoment
from store_core.store.parts import InProcess
from store_core.store.rebuild.findings import Finding, FindingKind, Tally
from store_core.store.recovery import store_recovery
from store_core.store.recovery.log_recovery import find_end_of_files
from tests.golden_stores import golden_stores
from tests.store_core.answers.planting import FAULTS, Fault, StoreCopy, counts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.format.release import Release
    from store_core.queue.queue_path import QueueRules
    from tests.golden_stores import Golden

CONFIG: Final = MessageStoreConfig(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400, max_hash_slot_num=20, max_index_num=200
)
HERE: Final = {store.name for store in golden_stores()}
AT_THE_END: Final = {
    *("last_segment_cut", "empty_segment_at_the_end", "garbage_after_the_end", "last_record_torn"),
    *("header_ends_after_the_log", "consumer_offset_after_the_end"),
}
"""Faults that look like what is being written, or was after the log's end was read."""

SEED: Final = 19
"""One by which `zeros_in_the_middle` are where reading stops, as at the end of a log."""

COUNT_AT: Final = 36
"""Where the header of an index file has its count of entries."""


Part = TypeVar("Part")
Partial = TypeVar("Partial")


class Writer:
    """Puts messages with keys into all queues of an open store."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store
        self._number = 0

    def write(self, count: int = 3) -> None:
        for _ in range(count):
            number = self._number = self._number + 1
            properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number % 9} k{number}", "TAGS": f"t{number % 2}"}
            body = b"x" * (number * 37 % 300)
            result = self._store.put_message(
                Message(f"topic{number % 3}", body, properties=properties, queue_id=number % 2)
            )
            assert result.is_ok
        if self._number % 2:
            self._store.reput_message_service.run_once()


class Writing(InProcess):
    """Runs parts one after another; before and after each the store is written."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        for part in parts:
            self._writer.write()
            made = call(part)
            self._writer.write()
            yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def writer(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """Open a store that is also written between any two ends that a check reads."""
    with DefaultMessageStore.open(root, CONFIG) as store:
        writer = Writer(store)
        writer.write(201)
        find = log_end.find_end

        def find_end(segments: Sequence[Segment], *, by_tail: bool = False) -> FoundEnd:
            writer.write()
            found = find(segments, by_tail=by_tail)
            writer.write()
            return found

        monkeypatch.setattr(check_job, "find_end", find)  # which else is the other one if it is imported now
        monkeypatch.setattr(log_end, "find_end", find_end)
        yield writer


def test_a_store_that_is_written_at_every_step_of_a_check_has_no_findings(root: Path, writer: Writer) -> None:
    for _ in range(6):
        report = Check().ask(root, engine=Writing(writer))

        assert {} == report.counts
        assert report.facts["is_live"]
        assert report.found.queues == report.found.complete_queues
        assert "the store was open" in report.to_text()
        assert "crash" not in report.to_text()


def test_a_fault_is_found_while_a_store_is_written(root: Path, writer: Writer) -> None:
    queue = StoreCopy(root).queues()[0]
    offset, size, code = queue.unit(queue.first + 2)
    queue.put(queue.first + 2, (offset, size + 1, code))

    assert {"unit_wrong_size": 1} == Check().ask(root, engine=Writing(writer)).counts


def test_a_unit_that_points_where_the_log_has_no_file_is_found_in_a_live_store(root: Path, writer: Writer) -> None:
    queue = StoreCopy(root).queues()[0]
    _, size, code = queue.unit(queue.first)
    queue.put(queue.first, (1 << 40, size, code))

    assert "unit_after_end" in Check().ask(root, engine=Writing(writer)).counts


@pytest.mark.golden
@pytest.mark.parametrize("fault", [each for each in FAULTS if str(each) not in AT_THE_END], ids=str)
def test_a_fault_is_found_in_a_store_that_a_broker_holds(fault: Fault, golden: Golden, tmp_path: Path) -> None:
    for name in [name for name in fault.stores if name in HERE][-1:]:
        release = golden(name).golden.release
        copy = StoreCopy(shutil.copytree(golden(name).root, tmp_path / "store"), SEED, release)
        expected = fault.plant(copy)
        with StoreLock(tmp_path / "store", OsFileSystem()):
            report = check(tmp_path / "store", release=release)

        assert counts_of(expected) == report.counts


@pytest.mark.parametrize("gathers_until", [2, 4, None])
def test_keys_are_missing_from_an_index_that_stands_still_only_after_many_looks(
    gathers_until: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[LiveMoment] = []
    take, write_back = LiveMoment.take, IndexService.write_back

    def noted(store: Path, rules: QueueRules, earlier: LiveMoment | None = None) -> LiveMoment:
        moments.append(take(store, rules, earlier))
        return moments[-1]

    def gathered(index: IndexService) -> None:
        if gathers_until is not None and len(moments) >= gathers_until:
            write_back(index)

    with DefaultMessageStore.open(tmp_path / "store", replace(CONFIG, max_index_num=20_000)) as store:
        writer = Writer(store)
        writer.write(201)
        with monkeypatch.context() as patched:
            patched.setattr(IndexService, "write_back", gathered)
            patched.setattr(LiveMoment, "take", noted)
            writer.write(20)
            report = Check().ask(tmp_path / "store", engine=Writing(writer))

    if gathers_until is None:
        assert ["index_missing"] == list(report.counts)
    else:
        assert {} == report.counts
        assert gathers_until <= len(moments)


# ---- an index file whose header is older than its slots


@pytest.fixture
def aged(golden: Golden, tmp_path: Path) -> Path:
    return shutil.copytree(golden("5.3.3/basic").root, tmp_path / "store")


def set_header_back(store: Path, entries: int) -> Path:
    """Let the header of the last index file count fewer entries."""
    path = max((store / "index").iterdir())
    with path.open("r+b") as file:
        count = struct.unpack(">i", os.pread(file.fileno(), 4, COUNT_AT))[0]
        os.pwrite(file.fileno(), struct.pack(">i", count - entries), COUNT_AT)
    return path


@pytest.mark.golden
@pytest.mark.parametrize("entries", [1, 2, 3, 10, 40])
def test_an_index_header_that_is_older_than_its_slots_is_a_note_in_a_store_that_was_not_closed(
    entries: int, aged: Path
) -> None:
    path = set_header_back(aged, entries)
    closed = check(aged, release="5.3")
    (aged / "abort").touch()
    report = check(aged, release="5.3")

    assert closed.counts
    assert {} == report.counts
    assert any(str(path) in note and "older than the slots" in note for note in report.facts["notes"])
    with StoreLock(aged, OsFileSystem()):
        assert {} == check(aged, release="5.3").counts


@pytest.mark.golden
@pytest.mark.parametrize("entries", [1, 10, 40])
def test_entries_are_shown_though_the_header_is_older_than_the_slots(entries: int, aged: Path) -> None:
    whole = read_view(aged, "index").read_all()
    set_header_back(aged, entries)

    assert whole.slice(0, whole.num_rows - entries) == read_view(aged, "index").read_all()


# ---- looking a second time


def found(kind: FindingKind, begin: int) -> Finding:
    return Finding(kind, "somewhere", begin=begin, found=f"seen at {begin}")


def test_only_what_is_seen_twice_is_a_finding() -> None:
    first, again = Tally(), Tally()
    first.add_all(found(FindingKind.UNIT_MISSING, begin) for begin in (1, 2))
    first.add_all([found(FindingKind.INDEX_CHAIN, 1)])
    again.add_all(found(FindingKind.UNIT_MISSING, begin) for begin in (2, 3))
    again.add_all([found(FindingKind.INDEX_MISSING, 1)])
    both = again.common_with(first)

    assert [found(FindingKind.UNIT_MISSING, 2)] == both.first
    assert ((FindingKind.UNIT_MISSING, 1),) == both.counts


def test_of_many_findings_as_many_are_real_as_were_seen_at_least() -> None:
    first, again = Tally(most=2), Tally(most=2)
    for tally, count in ((first, 70), (again, 90)):
        tally.add(FindingKind.UNIT_MISSING, count, [found(FindingKind.UNIT_MISSING, begin) for begin in range(5)])

    assert ((FindingKind.UNIT_MISSING, 70),) == again.common_with(first).counts


# ---- what a restart would do


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3", "5.5"])
def test_a_dry_run_beside_a_writer_is_as_of_one_moment(
    release: Release, root: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_and_grown(*arguments: object, **options: object) -> object:
        ends = find_end_of_files(*arguments, **options)  # type: ignore[arg-type]
        writer.write()
        return ends

    monkeypatch.setattr(store_recovery, "find_end_of_files", found_and_grown)
    report = DefaultMessageStore.dry_run(root, replace(CONFIG, release=release))

    assert report.is_live
    assert () == report.end.tails
    assert report.end_offset == report.recovery_end_offset
    assert not [each for each in report.decisions if each.what.startswith(("cut", "ended the log"))]
    assert "the store is open" in str(report)
    assert "not a record" not in str(report)
