# SPDX-License-Identifier: Apache-2.0
"""Look-ups of keys return the rows of a scan, whatever index files hold."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import ReadOptions, explain, plan_ranges, read_messages
from store_core.store.read import read_plan
from store_core.store.read.lookup import index_cover, index_look_up, index_survey, look_up, queue_tiling, store_queues
from store_core.store.read.lookup.index_cover import unnamed_starts
from store_core.store.read.lookup.proofs import PROOFS
from tests.budgets import budget
from tests.builders import LogBuilder
from tests.store_core.store.read.index_lies import ENTRY, FIRST, index_files, lie_in_index, swap_links
from tests.store_core.store.read.index_stores import keyed_store, questions, write_index
from tests.store_core.store.read.lookup_stores import ALWAYS, remembering, same_as_scan, touch, write_queues

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core.store.read.lookup.index_entries import IndexEntries
    from store_core.store.read.lookup.index_survey import IndexSurvey
    from store_core.store.read.lookup.survey import Span


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LogBuilder, Path]:
    """Return a store, its log, and a store with records in the same places that have other keys."""
    root = tmp_path_factory.mktemp("keys")
    keyed_store(root / "other", version=1)
    return root / "store", keyed_store(root / "store"), root / "other"


def test_keys_of_a_sound_store_are_looked_up(stores: tuple[Path, LogBuilder, Path]) -> None:
    root, log, _ = stores

    for options in questions(log):
        explained = same_as_scan(root, **options).explanation
        assert explained.plan == "index", explained
        assert explained.entries > explained.units > explained.records


def test_a_look_up_reads_only_records_that_may_have_the_key(stores: tuple[Path, LogBuilder, Path]) -> None:
    root, log, _ = stores
    named = [record for record in log.records if b"U21" in record.encode()]

    plan = same_as_scan(root, unique_key="U21")

    assert len(named) == 1
    assert plan.explanation.bytes < explain(root, use_index_files="never").bytes
    assert all(part.picks is not None for part in plan.ranges)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "k11", "use_index_files": "never"}, "option use_index_files is never"),
        ({"key": "k11", "mode": "PERMISSIVE"}, "mode PERMISSIVE looks for damage everywhere"),
        ({"key": "k\ufffd"}, "releases read such a key or topic in different ways"),
        ({"tag": "Tag1"}, "no option names topics or queues"),
    ],
)
def test_a_read_that_has_no_use_for_the_index_scans(
    stores: tuple[Path, LogBuilder, Path], options: dict[str, Any], why: str
) -> None:
    assert same_as_scan(stores[0], **options).explanation.why == why


def test_a_small_log_is_scanned(stores: tuple[Path, LogBuilder, Path]) -> None:
    assert explain(stores[0], key="k11").why == "a scan reads less than 64 MiB"


@pytest.mark.parametrize("missing", ["index", "consumequeue"])
def test_without_index_or_queues_a_key_is_searched_in_the_log(tmp_path: Path, missing: str) -> None:
    keyed_store(tmp_path)
    shutil.rmtree(tmp_path / missing)

    explained = same_as_scan(tmp_path, key="k11").explanation

    assert explained.plan == "scan"
    assert explained.why.startswith("there are no" if missing == "consumequeue" else "there is no index")


def test_records_that_no_entry_names_are_read(tmp_path: Path) -> None:
    """A message is stored and in its queue, but not in the index, as messages of the last moments are."""
    log = keyed_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    log.append(b"new", topic="t0", queue_id=1, properties={"KEYS": "newest"})
    log.write(tmp_path)
    write_queues(tmp_path, log.records)

    assert same_as_scan(tmp_path, key="newest").explanation.plan == "index"
    assert read_messages(tmp_path, key="newest").read_all().num_rows == 1


def test_a_topic_that_lost_its_queues_is_found(tmp_path: Path) -> None:
    log = keyed_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "t1")

    for options in questions(log)[::3]:
        assert same_as_scan(tmp_path, **options).explanation.plan == "index"


def test_only_segments_of_which_the_index_says_too_little_are_scanned(tmp_path: Path) -> None:
    """The oldest index file is gone, as after its retention, and records cost so much that a segment is scanned."""
    log = keyed_store(tmp_path, segments=6)
    for path in index_files(tmp_path)[:3]:
        path.unlink()
    options = ReadOptions.parse(key="shared1")

    plan = plan_ranges(tmp_path, options, replace(ALWAYS, per_record=500, most_share=1.0))

    assert plan.explanation.plan == "index"
    scanned = [part.segment.name for part in plan.ranges if part.picks is None]
    assert scanned
    assert len(scanned) < 6
    assert all(any(name in note for note in plan.explanation.notes) for name in scanned)
    for asked in questions(log)[::4]:
        same_as_scan(tmp_path, **asked)


@pytest.mark.parametrize("topic", [None, "t0"])
def test_the_index_of_another_store_is_found_out(
    tmp_path: Path, stores: tuple[Path, LogBuilder, Path], topic: str | None
) -> None:
    """All positions are right, so that only a look at records shows that the keys are others'."""
    shutil.copytree(stores[0], tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "index")
    shutil.copytree(stores[2] / "index", tmp_path / "store" / "index")

    explained = same_as_scan(tmp_path / "store", key="k11", topic=topic).explanation

    assert explained.plan == ("scan" if topic is None else "queues")
    assert any("other keys than its entries say" in each for each in (explained.why, *explained.notes))


def test_an_entry_that_names_a_record_in_its_place_twice_is_found_out(tmp_path: Path) -> None:
    """Two records after one another have the same key, and the entry of the first names the second."""
    log = LogBuilder(2048)
    for number in range(8):
        log.append(b"", topic="t0", properties={"UNIQ_KEY": f"U{number}", "KEYS": "same"})
    log.write(tmp_path)
    write_queues(tmp_path, log.records)
    write_index(tmp_path, log.records)
    data = bytearray(index_files(tmp_path)[0].read_bytes())
    at = FIRST + 3 * ENTRY.size
    key_hash, _, seconds, previous = ENTRY.unpack_from(data, at)
    ENTRY.pack_into(data, at, key_hash, log.records[2].physical_offset, seconds, previous)
    index_files(tmp_path)[0].write_bytes(data)

    assert same_as_scan(tmp_path, key="same").explanation.plan == "scan"


@budget(0.3)
@given(seed=st.integers(0, 2**32), lies=st.integers(1, 4))
def test_lying_index_files_change_no_row(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, LogBuilder, Path], seed: int, lies: int
) -> None:
    sound, log, other = stores
    root = tmp_path_factory.getbasetemp() / "lying-index"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(sound, root)
    drawn = random.Random(seed)  # noqa: S311 -- reproducible
    for _ in range(lies):
        lie_in_index(root, other, drawn)

    for options in drawn.sample(questions(log), 3):
        same_as_scan(root, **options)


@pytest.mark.parametrize("seed", range(4))
def test_links_in_a_circle_hide_no_row(tmp_path: Path, stores: tuple[Path, LogBuilder, Path], seed: int) -> None:
    sound, log, _ = stores
    root = shutil.copytree(sound, tmp_path / "store")
    path = index_files(root)[0]
    data = bytearray(path.read_bytes())
    while data == path.read_bytes():
        swap_links(data, 25, random.Random(seed))  # noqa: S311 -- reproducible
        seed += 4
    path.write_bytes(data)

    for options in questions(log):
        same_as_scan(root, **options)


@budget(0.15)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 4))
def test_index_files_that_change_between_two_questions_change_no_row(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, LogBuilder, Path], seed: int, changes: int
) -> None:
    sound, log, other = stores
    root = tmp_path_factory.getbasetemp() / "changing-index"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(sound, root)
    drawn = random.Random(seed)  # noqa: S311 -- reproducible
    with remembering():
        for time in range(changes):
            touch(root, time)
            for options in drawn.sample(questions(log), 2):
                same_as_scan(root, **options)
            lie_in_index(root, other, drawn)
        touch(root, changes)
        for options in drawn.sample(questions(log), 2):
            same_as_scan(root, **options)


@budget(0.1)
@given(seed=st.integers(0, 2**32))
def test_proofs_in_a_file_of_what_a_store_was_before_change_no_row(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, LogBuilder, Path], seed: int
) -> None:
    """Each question is asked by another process, with the file of the one before."""
    sound, log, other = stores
    root, proofs = (tmp_path_factory.getbasetemp() / name for name in ("filed-store", "filed-proofs"))
    for directory in (root, proofs):
        shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(sound, root)
    drawn = random.Random(seed)  # noqa: S311 -- reproducible
    with remembering():
        for time in range(3):
            touch(root, time)
            for options in drawn.sample([*questions(log), {"topic": "t0"}], 2):
                PROOFS.forget()
                same_as_scan(root, proofs=proofs, **options)
            lie_in_index(root, other, drawn)


@budget(0.1)
@given(seed=st.integers(0, 2**32))
def test_a_log_that_ends_elsewhere_than_before_changes_no_row(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, LogBuilder, Path], seed: int
) -> None:
    """What is known of the store, such as where the log ends, is not used once a segment has another time."""
    sound, log, _ = stores
    root = tmp_path_factory.getbasetemp() / "ending-log"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(sound, root)
    drawn = random.Random(seed)  # noqa: S311 -- reproducible
    path = max((root / "commitlog").iterdir())
    whole = path.read_bytes()
    ends = [
        record.physical_offset - int(path.name) for record in log.records if record.physical_offset > int(path.name)
    ]
    last = log.records[-1].physical_offset
    asked = [*questions(log), {"physical_offset": last}, {"topic": "t0"}]
    with remembering():
        for time, end in enumerate((len(whole), drawn.choice(ends), drawn.choice(ends), len(whole))):
            path.write_bytes(whole[:end].ljust(len(whole), b"\0"))
            os.utime(path, (time, time))
            for options in drawn.sample(asked, 2):
                same_as_scan(root, **options)
                same_as_scan(root, **options)


def test_a_store_that_is_known_is_not_listed_again(
    stores: tuple[Path, LogBuilder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, log, _ = stores
    place = log.records[-1].physical_offset
    with remembering():
        first = [same_as_scan(root, **options).explanation for options in ({"key": "k11"}, {"physical_offset": place})]
        for module, name in (
            (store_queues, "queue_directories"),
            (index_look_up, "_files"),
            (queue_tiling.QueueTiling, "_edges"),
            (look_up, "segment_end"),
            (read_plan, "release_note"),
        ):
            monkeypatch.delattr(module, name)
        again = [
            plan_ranges(root, ReadOptions.parse(**asked), ALWAYS)
            for asked in ({"key": "k11"}, {"physical_offset": place})
        ]
        assert [plan.explanation for plan in again] == first
        with pytest.raises((AttributeError, NameError)):
            plan_ranges(root, ReadOptions.parse(key="k11", remember_proofs="never"), ALWAYS)


def test_an_index_that_is_known_is_not_read_again(
    stores: tuple[Path, LogBuilder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, log, _ = stores
    read: list[IndexEntries] = []
    whole = index_survey._read

    def reading(stored: IndexEntries, spans: Sequence[Span]) -> IndexSurvey:
        read.append(stored)
        return whole(stored, spans)

    marks: list[object] = []

    def marking(*asked: Any) -> object:  # noqa: ANN401 -- passed on
        marks.append(asked)
        return unnamed_starts(*asked)

    monkeypatch.setattr(index_survey, "_read", reading)
    monkeypatch.setattr(index_cover, "unnamed_starts", marking)
    with remembering():
        first = [same_as_scan(root, **options).explanation for options in questions(log)[::3]]
        assert len(read) == len(index_files(root))
        assert [same_as_scan(root, **options).explanation for options in questions(log)[::3]] == first
        assert len(read) == len(index_files(root))
        assert len(marks) == len(list((root / "commitlog").iterdir()))
        same_as_scan(root, key="k11", remember_proofs="never")
        assert len(read) == 2 * len(index_files(root))


@given(st.data())
def test_what_is_not_named_is_the_difference_of_two_sets(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(91, 300), min_size=1, max_size=30))
    begin = data.draw(st.integers(0, 2**40))
    starts = begin + np.cumsum([0, *sizes])[:-1]
    end = begin + sum(sizes)
    chosen = data.draw(st.lists(st.sampled_from(starts.tolist()), max_size=40))
    named = sorted([*chosen, *data.draw(st.lists(st.integers(begin - 5, end + 5), max_size=1))])

    found = unnamed_starts([starts[::2], starts[1::2]], [np.array(named, np.int64)], (begin, end))

    inside = {place for place in named if begin <= place < end}
    if inside <= set(starts.tolist()):
        assert found is not None
        assert found.tolist() == sorted(set(starts.tolist()) - inside)
    else:
        assert found is None
