# SPDX-License-Identifier: Apache-2.0
"""What is kept of a file is used only while nothing can have changed it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.files.segment_source import Segment
from store_core.files.store_lock import StoreLock
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.proofs import Proofs, ProofsOfStore
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

_NOW_MS: Final = 10**13
_OLD: Final = FileState(1, 2, 3, 4, 5)


@pytest.fixture
def proofs() -> Proofs:
    return Proofs(FakeClock(_NOW_MS))


def recall(proofs: Proofs, root: Path, state: FileState = _OLD, *, is_last: bool = True) -> str | None:
    return ProofsOfStore(root, proofs).recall(str, "file", state, is_last=is_last)


def keep(proofs: Proofs, root: Path, state: FileState = _OLD, *, is_last: bool = True) -> None:
    ProofsOfStore(root, proofs).keep("file", state, "found", is_last=is_last)


def test_what_was_found_in_a_file_is_kept_while_it_is_the_same(proofs: Proofs, tmp_path: Path) -> None:
    keep(proofs, tmp_path)

    assert recall(proofs, tmp_path) == "found"
    assert ProofsOfStore(tmp_path, proofs).recall(int, "file", _OLD, is_last=True) is None
    assert ProofsOfStore(tmp_path, None).recall(str, "file", _OLD, is_last=True) is None
    proofs.forget()
    assert recall(proofs, tmp_path) is None


@pytest.mark.parametrize("field", FileState._fields)
def test_a_file_in_another_state_is_another_file(proofs: Proofs, tmp_path: Path, field: str) -> None:
    keep(proofs, tmp_path)

    assert recall(proofs, tmp_path, _OLD._replace(**{field: 99})) is None


@pytest.mark.parametrize("field", ["modified_ns", "changed_ns"])
@pytest.mark.parametrize(("age_ms", "is_kept"), [(-1, False), (0, False), (119_999, False), (120_000, True)])
def test_only_a_file_at_rest_is_kept(proofs: Proofs, tmp_path: Path, field: str, age_ms: int, is_kept: bool) -> None:
    state = _OLD._replace(**{field: (_NOW_MS - age_ms) * 10**6})

    keep(proofs, tmp_path, state)

    assert (recall(proofs, tmp_path, state) is not None) == is_kept


def test_a_file_to_which_a_broker_may_append_is_not_kept_while_the_store_is_locked(
    proofs: Proofs, tmp_path: Path
) -> None:
    keep(proofs, tmp_path)
    with StoreLock(tmp_path, OsFileSystem()):
        assert recall(proofs, tmp_path) is None
        keep(proofs, tmp_path)
        keep(proofs, tmp_path, is_last=False)
        assert recall(proofs, tmp_path, is_last=False) == "found"


def _open_and_close(root: Path) -> None:
    with StoreLock(root, OsFileSystem()):
        pass


def _later(root: Path) -> None:
    os.utime(root / "lock", (1, 1))


@pytest.mark.parametrize("change", [_open_and_close, _later])
def test_a_broker_that_ran_in_between_is_noticed(
    proofs: Proofs, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    if change is _later:
        _open_and_close(tmp_path)
    keep(proofs, tmp_path)
    change(tmp_path)

    assert recall(proofs, tmp_path) is None
    assert recall(proofs, tmp_path, is_last=False) == "found"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("commitlog", "consumequeue/topic/0", "index"):
        tmp_path.joinpath(name).mkdir(parents=True)
    for name in ("commitlog/0", "consumequeue/topic/0/0", "index/1", "lock"):
        tmp_path.joinpath(name).write_bytes(b"1")
    return tmp_path


def fact(proofs: Proofs | None, root: Path, found: str) -> str:
    segment = Segment(str(root / "commitlog" / "0"), 0, 1)
    return ProofsOfStore(root, proofs, [segment]).fact("name", lambda: found)


def _remove(path: Path) -> None:
    (path if path.is_file() else path / "0").unlink()


@pytest.mark.parametrize(
    ("place", "change"),
    [
        *((place, lambda path: path.write_bytes(b"22")) for place in ("commitlog/0", "consumequeue/topic/0/0")),
        *((place, lambda path: os.utime(path, (1, 1))) for place in ("index/1", "lock", "commitlog", "index")),
        *((place, _remove) for place in ("commitlog", "consumequeue/topic/0", "index/1", "lock")),
        *((place, lambda path: path.write_bytes(b"")) for place in ("consumequeue/topic/0/20", "index/2", "abort.bak")),
        ("consumequeue/other", Path.mkdir),
        ("consumequeue_rocksdb", Path.mkdir),
    ],
)
def test_a_fact_holds_until_anything_in_the_store_changes(
    proofs: Proofs, store: Path, place: str, change: Callable[[Path], None]
) -> None:
    for path in (store, *store.rglob("*")):
        os.utime(path, (2, 2))
    assert fact(proofs, store, "first") == "first"
    assert fact(proofs, store, "second") == "first"
    assert fact(None, store, "third") == "third"

    change(store / place)

    assert fact(proofs, store, "second") == "second"


def test_no_fact_is_kept_of_a_store_that_is_young_or_locked(store: Path) -> None:
    young, old = Proofs(SystemClock()), Proofs(FakeClock(_NOW_MS))
    for number in (1, 2):
        assert fact(young, store, str(number)) == str(number)
        with StoreLock(store, OsFileSystem()):
            assert fact(old, store, str(number)) == str(number)


def test_a_fact_is_kept_unless_it_is_heavy(proofs: Proofs, store: Path) -> None:
    segment = Segment(str(store / "commitlog" / "0"), 0, 1)
    known = ProofsOfStore(store, proofs, [segment])

    assert known.fact("light", lambda: 1, lambda _: 1 << 20) == known.fact("light", lambda: 2) == 1
    assert known.knows("light")
    assert known.fact("heavy", lambda: 1, lambda _: 1 << 30) == 1
    assert known.fact("heavy", lambda: 2) == 2


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    proofs = Proofs(FakeClock(_NOW_MS), most=3 * 2048)
    store = ProofsOfStore(tmp_path, proofs)
    for number in range(8):
        store.keep(number, _OLD, str(number), is_last=True)
        store.keep(number, _OLD, str(number), is_last=True)
        assert store.recall(str, number, _OLD, is_last=True) == str(number)
        assert sum(store.recall(str, other, _OLD, is_last=True) is not None for other in range(8)) <= 3


def test_what_follows_from_sums_is_found_once(proofs: Proofs, tmp_path: Path) -> None:
    calls: list[int] = []

    def find(count: int | None) -> Callable[[], np.ndarray | None]:
        def found() -> np.ndarray | None:
            calls.append(0)
            return None if count is None else np.arange(count)

        return found

    for store in (ProofsOfStore(tmp_path, proofs), ProofsOfStore(tmp_path / "other", proofs)):
        assert store.following(("few", 7), find(3)).tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert len(calls) == 1
    for store in (ProofsOfStore(tmp_path, proofs), ProofsOfStore(tmp_path, None)):
        for count in (None, 1 << 19):
            store.following(("few", count), find(count))
            store.following(("few", count), find(count))
    assert len(calls) == 9
    assert ProofsOfStore(tmp_path, proofs).following(("few", 8), find(0)).size == 0  # type: ignore[union-attr]
