# SPDX-License-Identifier: Apache-2.0
"""Parts of a rebuild: pieces of units, sizes inferred from files, kept index files, the checkpoint."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.files.file_sync import DeferredSyncFileSystem, sync_directories, sync_files
from store_core.files.file_system import OsFileSystem
from store_core.queue.queue_assignment import QueueUnits, UnitBuffer, UnitRows
from store_core.store.parts import packed, unpacked
from store_core.store.rebuild.queue_files import UnitGaps
from store_core.store.rebuild.swap import ATTEMPTS, RebuildAttempt, update_checkpoint
from store_core.store.store_layout import DerivedSizes
from store_core.store.store_state import StoreCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import UnpackedStore


units = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 2**62),
        st.integers(1, 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 12) | st.integers(0, 2**57),
    ),
    max_size=40,
)


CARRIED = (
    *("physical_offset", "size", "tags_code", "queue_offset"),
    *("store_timestamp", "message_base_offset", "batch_size", "is_light"),
)


def rows_of(made: list[tuple[int, ...]]) -> UnitRows:
    table = np.array([unit[1:] for unit in made], np.int64).reshape(-1, 4)
    nothing = np.zeros(len(made), np.int64)
    return UnitRows(
        row=nothing,
        code=nothing,
        physical_offset=table[:, 0],
        size=table[:, 1],
        tags_code=table[:, 2],
        queue_offset=table[:, 3],
        store_timestamp=table[:, 0] // 2,
        message_base_offset=table[:, 3] + 1,
        batch_size=(table[:, 1] % 100).astype(np.int16),
        is_light=table[:, 1] % 2 == 1,
    )


def edges_of(count: int, cuts: list[int]) -> list[int]:
    return sorted({0, count, *(cut for cut in cuts if cut < count)})


@given(units, st.lists(st.integers(0, 40)))
def test_a_buffer_returns_each_queue_its_units_in_order(made: list[tuple[int, ...]], cuts: list[int]) -> None:
    rows, buffer = rows_of(made), UnitBuffer(40)
    coded = rows._replace(code=np.array([unit[0] for unit in made], np.int64))
    for start, stop in pairwise(edges_of(len(made), cuts)):
        buffer.add(coded.slice(start, stop))
    assert len(buffer) == len(made)
    assert buffer.room == 40 - len(made)
    taken = buffer.take()
    order = sorted(range(len(made)), key=lambda place: made[place][0])

    assert taken.row.tolist() == order
    for name in ("code", *CARRIED):
        assert getattr(taken, name).tolist() == [getattr(coded, name).tolist()[place] for place in order]
    assert (len(buffer), buffer.room) == (0, 40)


QUEUES = [("T", 0), ("T", 1), ("", 3), ("\udc80", 0), ("U", 2**31 - 1)]


def coded(made: list[tuple[int, ...]]) -> UnitRows:
    return rows_of(made)._replace(code=np.array([unit[0] for unit in made], np.int64))


def by_queue(pieces: list[QueueUnits], names: tuple[str, ...]) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for queues, rows in pieces:
        columns = (getattr(rows, name).tolist() for name in names)
        for code, *values in zip(rows.code.tolist(), *columns, strict=True):
            found.setdefault(queues[code], []).append(tuple(values))
    return found


@given(units, st.lists(st.integers(0, 40)), st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_units_of_a_queue_are_the_same_after_they_were_divided_sent_and_joined(
    made: list[tuple[int, ...]], cuts: list[int], groups: list[int]
) -> None:
    edges = edges_of(len(made), cuts)
    pieces = [QueueUnits(QUEUES, coded(made[start:stop]).ordered()) for start, stop in pairwise(edges)]
    sent: dict[int, list[QueueUnits]] = {}
    for piece in pieces:
        for group, table in piece.tables(np.array(groups)):
            sent.setdefault(group, []).append(QueueUnits.of_table(unpacked(packed(table))).used())
    joined = [QueueUnits.joined(some) for some in sent.values()]

    assert by_queue(joined, CARRIED) == by_queue(pieces, CARRIED)
    assert all((np.diff(each.units.code) >= 0).all() for each in joined)
    for group, some in sent.items():
        assert {groups[QUEUES.index(queue)] for each in some for queue in each.queues} <= {group}


@given(st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=6), st.none() | st.integers(0, 3))
def test_gaps_are_those_of_a_plain_loop(pieces: list[list[int]], expected: int | None) -> None:
    gaps, found = UnitGaps(expected), []
    for offset in (offset for piece in pieces for offset in piece):
        if expected is not None and offset != expected:
            found.append((offset, expected))
        expected = offset + 1
    for piece in pieces:
        if piece:
            gaps.look_at(np.array(piece), np.array(piece))

    assert len(found) == gaps.count
    assert found[:20] == [(gap.queue_offset, gap.expected) for gap in gaps.first]


@pytest.mark.golden
def test_files_tell_the_sizes_they_were_made_with(golden_store: UnpackedStore) -> None:
    found = DerivedSizes.find(golden_store.root)
    scenario = golden_store.golden.scenario
    slots, entries, size = (5000, 20_000, 600_000) if scenario == "live" else (100, 400, 800)

    assert size == found.consume_queue_file_size
    assert (slots, entries) == (found.max_hash_slot_num, found.max_index_num)
    assert (scenario == "ext") == found.has_ext
    assert (frozenset({"bcq_topic"}) if scenario == "bcq" else frozenset()) == found.batch_topics
    assert (scenario == "lmq") == found.has_light


def test_nothing_tells_no_sizes(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261121100000000").write_bytes(bytes(8440))
    (tmp_path / "index" / "20261121100000001").write_bytes(b"\xff" * 8440)
    (tmp_path / "consumequeue" / "t" / "0").mkdir(parents=True)

    assert DerivedSizes() == DerivedSizes.find(tmp_path)


@pytest.mark.parametrize(
    ("before", "is_whole", "index", "after"),
    [
        ((900, 800, 700), True, 850, (900, 1000, 850)),
        ((900, 800, 700), False, None, (900, 800, 700)),
        ((5000, 5000, 5000), False, None, (1000, 1000, 1000)),
        ((0, 0, 0), True, 0, (0, 1000, 0)),
        ((900, 1200, 700), False, 0, (900, 1000, 0)),
    ],
)
def test_the_checkpoint_never_claims_what_the_log_does_not_have(
    before: tuple[int, ...], is_whole: bool, index: int | None, after: tuple[int, ...], tmp_path: Path
) -> None:
    checkpoint = StoreCheckpoint(tmp_path, OsFileSystem())
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp = before
    checkpoint.confirm_physical_offset = 77
    checkpoint.flush()
    update_checkpoint(
        tmp_path, OsFileSystem(), "5.3",
        last_store_timestamp=1000, end_offset=60, are_queues_whole=is_whole, index_timestamp=index,
    )  # fmt: skip
    found = StoreCheckpoint(tmp_path, OsFileSystem()).load()

    assert after == (found.physic_msg_timestamp, found.logics_msg_timestamp, found.index_msg_timestamp)
    assert 60 == found.confirm_physical_offset


def test_files_are_synced_when_they_are_told_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda _: synced.append("directory"))
    monkeypatch.setattr("os.fdatasync", lambda _: synced.append("file"))
    system = DeferredSyncFileSystem()
    system.make_directories(tmp_path / "a" / "b")
    for name in ("a/x", "a/b/y"):
        file = system.open(tmp_path / name, create=True)
        file.write(memoryview(b"data"), 0)
        file.sync()
    system.sync_directory(tmp_path / "a")

    assert [] == synced
    sync_files(tmp_path)
    sync_directories(tmp_path)
    assert ["file"] * 2 + ["directory"] * 3 == synced


Queues = tuple[tuple[str, int], ...]


def write(root: Path, queues: Queues, text: str) -> None:
    """Write a file for each queue."""
    for topic, queue_id in queues:
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        (directory / f"{0:020d}").write_text(text)


def settled(target: Path) -> dict[str, str]:
    """Return what is in place, by path."""
    assert not list((target / ATTEMPTS).iterdir())
    paths = [path for path in target.rglob("*") if path.is_file()]
    return {str(path.relative_to(target).parent): path.read_text() for path in paths}


@pytest.mark.parametrize("others", [(("a", 1), ("b", 0)), (("b", 0), ("c", 0)), (("a", 0), ("a", 1))], ids=str)
def test_queues_of_several_attempts_are_all_there_and_the_first_stays(others: Queues, tmp_path: Path) -> None:
    mine: Queues = (("a", 0), ("b", 1))
    with RebuildAttempt(tmp_path) as first, RebuildAttempt(tmp_path) as second:
        write(first.root, mine, "first")
        write(second.root, others, "second")
        first.settle()
        second.settle()

    expected = {f"consumequeue/{topic}/{queue_id}": "second" for topic, queue_id in others}
    assert settled(tmp_path) == expected | {f"consumequeue/{topic}/{queue_id}": "first" for topic, queue_id in mine}


def test_a_topic_is_moved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "consumequeue").mkdir()
    renamed, rename = [], os.rename

    def counted(source: str, target: str) -> None:
        renamed.append(target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", counted)
    with RebuildAttempt(tmp_path) as attempt:
        write(attempt.root, tuple(("a", queue_id) for queue_id in range(50)), "x")
        attempt.settle()

    assert [f"{tmp_path}/consumequeue/a"] == renamed
    assert len(settled(tmp_path)) == 50


def test_an_index_comes_as_a_whole_and_stays(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with RebuildAttempt(tmp_path) as attempt:
            (attempt.root / "index").mkdir(parents=True)
            (attempt.root / "index" / "20260101000000000").write_text(text)
            attempt.settle()

    assert settled(tmp_path) == {"index": "first"}


def test_files_of_one_index_come_together_and_the_last_stays(tmp_path: Path) -> None:
    for text, name in (("first", "20260101000000000"), ("first", "20260101000000001"), ("second", "20260101000000000")):
        with RebuildAttempt(tmp_path) as attempt:
            (attempt.root / "index").mkdir(parents=True)
            (attempt.root / "index" / name).write_text(text)
            attempt.settle_index_files()

    assert {path.name: path.read_text() for path in (tmp_path / "index").iterdir()} == {
        "20260101000000000": "second",
        "20260101000000001": "first",
    }


def test_an_attempt_that_is_not_settled_leaves_nothing(tmp_path: Path) -> None:
    with RebuildAttempt(tmp_path) as attempt:
        write(attempt.root, (("a", 0),), "x")

    assert settled(tmp_path) == {}
