# SPDX-License-Identifier: Apache-2.0
"""An index whose files are written by tasks of their own is the one that a single writer makes."""

from __future__ import annotations

import pickle
import random
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.queue.index_format import MessageKeys
from store_core.queue.queue_path import QueueRules
from store_core.store.parts import RunReader, RunSpill, SpilledRun, packed, unpacked
from store_core.store.rebuild.index_files import IndexFilesJob, IndexReport, IndexWriter, KeptIndex, slice_entries
from tests.store_core.fakes import FakeClock
from tests.store_core.rebuilt import index_files

if TYPE_CHECKING:
    from store_core.format.release import Release

RELEASES: tuple[Release, ...] = ("4.3", "4.9", "5.3")


class Message(NamedTuple):
    """What the index gets of a message.

    * `size`: How far before the next one it says that it is; a broker takes a message wherever it says that it is.
    """

    size: int
    delay: int
    hashes: list[int]


# few hashes, so that chains are long; time also goes back
messages = st.lists(
    st.builds(
        Message,
        st.integers(100, 5000) | st.just(100) | st.integers(-300, 0),
        st.integers(-3000, 90_000),
        st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 5), max_size=4),
    ),
    max_size=24,
)


def entries_of(some: list[Message], first: int) -> MessageKeys:
    offsets = np.cumsum([0] + [message.size for message in some])[:-1] + first
    rows = [row for row, message in enumerate(some) for _ in message.hashes]
    return MessageKeys(
        offsets.astype(np.int64),
        (np.cumsum([message.delay for message in some], dtype=np.int64) + 1_600_000_000_000 + first * 7),
        np.array(rows, np.int64),
        np.array([code for message in some for code in message.hashes], np.int32),
    )


def runs_of(made: list[Message], cuts: list[int]) -> list[MessageKeys]:
    edges = sorted({0, len(made), *(cut for cut in cuts if cut < len(made))})
    firsts = np.cumsum([0] + [message.size for message in made]).tolist()
    return [entries_of(made[start:stop], firsts[start]) for start, stop in pairwise(edges)]


def write_by_one(made: list[MessageKeys], rules: QueueRules, root: Path) -> IndexReport:
    writer = IndexWriter(rules, KeptIndex(), root, FakeClock())
    for each in made:
        writer.add(MessageKeys.of_table(unpacked(packed(each.to_table()))))
    return writer.finish()


def spilled(made: list[MessageKeys], directory: Path) -> list[SpilledRun]:
    with RunSpill(directory) as spill:
        return [spill.put(packed(each.to_table()), each) for each in made]


@given(messages, st.lists(st.integers(0, 40)), st.integers(2, 12), st.sampled_from(RELEASES), st.integers(0, 99))
def test_files_are_those_of_one_writer(
    made: list[Message], cuts: list[int], most: int, release: Release, seed: int
) -> None:
    rules = QueueRules(release=release, max_hash_slot_num=4, max_index_num=most)
    with tempfile.TemporaryDirectory() as name:
        root, runs = Path(name), runs_of(made, cuts)
        expected = write_by_one(runs, rules, root / "one")
        with RunReader() as reader:
            slices = slice_entries(spilled(runs, root / "runs"), reader, most - 1)
        (root / "several").mkdir()
        job = pickle.loads(pickle.dumps(IndexFilesJob(tuple(slices), rules, root / "several", FakeClock())))  # noqa: S301
        parts = [part for part in job.plan() for _ in range(2)]  # each is tried twice
        random.Random(seed).shuffle(parts)  # noqa: S311 -- for variety
        reports = {part.name: job.run(part) for part in parts}
        if not slices:  # a message without keys makes an empty file; several tasks only write what has entries
            assert not expected.entries or any(message.size < 0 for message in made)
            return

        assert job.merge(reports[name] for name in sorted(reports)) == expected
        assert index_files(root / "several") == index_files(root / "one")
        names = [path.name for path in sorted((root / "several" / "index").iterdir())]
        assert names == [path.name for path in sorted((root / "one" / "index").iterdir())]


@pytest.mark.parametrize("keyless", [0, 1, 2])
def test_a_full_last_file_is_followed_by_an_empty_one_if_a_message_comes_after(keyless: int, tmp_path: Path) -> None:
    made = [Message(100, 1, [number]) for number in range(6)]
    if keyless == 1:
        made.append(Message(100, 1, []))
    runs = runs_of(made, [6])
    if keyless == 2:
        runs += runs_of([*made, Message(100, 1, [])], [6])[1:]
    with RunReader() as reader:
        slices = slice_entries(spilled(runs, tmp_path), reader, 3)

    assert [3, 3] == [each.count for each in slices]
    assert [False, keyless > 0] == [each.is_followed for each in slices]
