# SPDX-License-Identifier: Apache-2.0
"""Swapping rebuilt directories in, with the process killed at every step."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from store_core.files.file_system import OsFileSystem
from store_core.files.names import SWAP_JOURNAL
from store_core.store.rebuild.swap import OutputDirectory, RebuildSwap, SwapError, kept_directories
from tests.store_core.fakes import DeadDiskError, MortalFileSystem

if TYPE_CHECKING:
    from pathlib import Path

OLD = {"consumequeue/a/0/f": b"old a", "batchconsumequeue/b/0/f": b"old b", "index/1": b"old index"}
OLD_OF_PLACES = {name: data for name, data in OLD.items() if "batch" not in name}
NEW = {"consumequeue/a/0/f": b"new a", "consumequeue/c/0/f": b"new c", "index/2": b"new index"}


def write_tree(root: Path, tree: dict[str, bytes]) -> None:
    for name, data in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def tree_of(root: Path) -> dict[str, bytes]:
    kinds = ("consumequeue", "batchconsumequeue", "index")
    files = (path for kind in kinds for path in (root / kind).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def prepare(root: Path) -> RebuildSwap:
    write_tree(root, OLD)
    write_tree(root / "rebuilt", NEW)
    return plan(root)


def plan(root: Path) -> RebuildSwap:
    places, removed = ["consumequeue", "index"], ["batchconsumequeue"]
    return RebuildSwap.plan(root, root / "rebuilt", places, removed, OsFileSystem())


def dying(changes: int) -> MortalFileSystem:
    """Return the disk of a process that is killed just before one of its changes."""
    disk = MortalFileSystem()
    disk.changes_left = changes
    return disk


def killed(root: Path, changes: int) -> Path:
    """Begin a swap in a process that is killed; return the store."""
    with pytest.raises(DeadDiskError):
        prepare(root).run(dying(changes))
    return root


@pytest.fixture
def changes(tmp_path: Path) -> int:
    """Return how many changes a whole swap makes."""
    disk = dying(1000)
    prepare(tmp_path / "complete").run(disk)
    return 1000 - (disk.changes_left or 0)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Provide a store whose old queues are away, and the new ones not yet in place."""
    roots = (killed(tmp_path / str(number), number) for number in count())
    return next(root for root in roots if not (root / "consumequeue").exists())


def test_a_swap_killed_at_any_step_is_whole_after_the_next_run(changes: int, tmp_path: Path) -> None:
    for number in range(changes):
        root = killed(tmp_path / str(number), number)
        resumed = RebuildSwap.resume(root, OsFileSystem())

        is_done = number == changes - 1  # but for the sync of the directory that the journal was in
        assert (NEW if resumed is not None or is_done else OLD) == tree_of(root)
        assert not (root / SWAP_JOURNAL).exists()
        if resumed is not None:
            assert OLD == tree_of(resumed.kept)
    assert changes > 20


def test_a_resumed_swap_that_is_killed_is_resumed_again(changes: int, tmp_path: Path) -> None:
    for first in range(changes):
        for second in range(12):
            root = killed(tmp_path / f"{first}-{second}", first)
            with suppress(DeadDiskError):
                RebuildSwap.resume(root, dying(second))
            RebuildSwap.resume(root, OsFileSystem())

            assert tree_of(root) in (OLD, NEW)
            assert not (root / SWAP_JOURNAL).exists()


def test_the_old_ones_come_back_where_the_new_are_gone(half: Path) -> None:
    shutil.rmtree(half / "rebuilt")
    RebuildSwap.resume(half, OsFileSystem())

    assert OLD_OF_PLACES == tree_of(half)


def test_a_swap_with_nothing_to_put_in_place_is_refused(half: Path) -> None:
    for name in ("rebuilt", "replaced-1"):
        shutil.rmtree(half / name)

    with pytest.raises(SwapError, match="found it nowhere"):
        RebuildSwap.resume(half, OsFileSystem())


@pytest.mark.parametrize(
    "journal",
    [
        b"{}",
        b'{"form": 2, "source": "/", "kept": "replaced-1", "places": [], "removed": []}',
        b'{"form": 1, "source": "/", "kept": "../x", "places": [], "removed": []}',
        b'{"form": 1, "source": "/", "kept": "replaced-1", "places": ["../../x"], "removed": []}',
        b'{"form": 1, "source": "/", "kept": "replaced-1", "places": [], "removed": ["/x"]}',
        b"[1]",
    ],
)
def test_a_strange_journal_moves_nothing(journal: bytes, tmp_path: Path) -> None:
    write_tree(tmp_path, OLD | {SWAP_JOURNAL: journal})

    with pytest.raises(SwapError, match="is not a journal"):
        RebuildSwap.resume(tmp_path, OsFileSystem())
    assert OLD == tree_of(tmp_path)


def interrupted(root: Path, source: Path) -> dict[str, Any]:
    """Leave a journal of a swap that takes what is in `source`, and has moved nothing yet; return what it says."""
    write_tree(root, OLD)
    fields = {
        "form": 1,
        "source": str(source),
        "kept": "replaced-1",
        "places": ["consumequeue", "index"],
        "removed": ["batchconsumequeue"],
    }
    (root / SWAP_JOURNAL).write_text(json.dumps(fields))
    return fields


@pytest.mark.parametrize("mark", [None, "{}", '{"store": "/other"}', "[", '{"store": 1}', "[" * 100_000])
def test_a_directory_elsewhere_without_the_mark_of_a_rebuild_of_the_store_is_not_moved(
    mark: str | None, tmp_path: Path
) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    write_tree(elsewhere, NEW if mark is None else NEW | {"rebuilt.json": mark.encode()})
    interrupted(root, elsewhere)

    with pytest.raises(SwapError, match=r"elsewhere, which no rebuild of .* has made"):
        RebuildSwap.resume(root, OsFileSystem())
    assert (OLD, NEW) == (tree_of(root), tree_of(elsewhere))


def test_an_output_elsewhere_that_a_rebuild_of_the_store_made_is_put_in_place(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    write_tree(elsewhere, NEW)
    interrupted(root, elsewhere)
    for store in (tmp_path / "a store with a longer path", root):
        OutputDirectory(tmp_path / "claimed", OsFileSystem()).claim(store)
    (tmp_path / "claimed" / "rebuilt.json").rename(elsewhere / "rebuilt.json")
    (root / "replaced-1").mkdir()
    RebuildSwap.resume(root, OsFileSystem())

    assert NEW == tree_of(root)


@pytest.mark.parametrize("link", ["rebuilt", "above/rebuilt", "replaced-1", "consumequeue", "rebuilt/consumequeue"])
def test_no_link_is_followed(link: str, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    source = root / (link if link.endswith("rebuilt") else "rebuilt")
    fields = interrupted(root, source) | {"places": ["consumequeue/t/0"], "removed": []}
    write_tree(elsewhere, {"t/0/1": b"private"})
    (root / SWAP_JOURNAL).write_text(json.dumps(fields))
    target = root / link.partition("/rebuilt")[0]
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(elsewhere)

    with pytest.raises(SwapError, match="which is a link"):
        RebuildSwap.resume(root, OsFileSystem())
    assert b"private" == (elsewhere / "t" / "0" / "1").read_bytes()


@pytest.mark.parametrize("source", ["rebuilt", "../elsewhere", "/store/../elsewhere"])
def test_paths_that_lead_upwards_are_refused(source: str, tmp_path: Path) -> None:
    interrupted(tmp_path, tmp_path)
    fields = json.loads((tmp_path / SWAP_JOURNAL).read_text()) | {"source": source}
    (tmp_path / SWAP_JOURNAL).write_text(json.dumps(fields))

    with pytest.raises(SwapError, match="which is not an absolute path"):
        RebuildSwap.resume(tmp_path, OsFileSystem())


def test_a_torn_journal_means_that_nothing_was_moved(tmp_path: Path) -> None:
    write_tree(tmp_path, OLD | {SWAP_JOURNAL: b'{"form": 1, "sou'})

    assert RebuildSwap.resume(tmp_path, OsFileSystem()) is None
    assert OLD == tree_of(tmp_path)
    assert not (tmp_path / SWAP_JOURNAL).exists()


def test_every_swap_keeps_its_old_ones_apart(tmp_path: Path) -> None:
    first = prepare(tmp_path)
    first.run(OsFileSystem())
    assert (NEW, OLD) == (tree_of(tmp_path), tree_of(first.kept))
    write_tree(tmp_path / "rebuilt", OLD)
    plan(tmp_path).run(OsFileSystem())

    assert ["replaced-1", "replaced-2"] == [path.name for path in kept_directories(tmp_path, OsFileSystem())]
    assert (OLD_OF_PLACES, NEW) == (tree_of(tmp_path), tree_of(tmp_path / "replaced-2"))
    assert RebuildSwap.resume(tmp_path, OsFileSystem()) is None


def test_places_without_old_files_leave_no_directory_for_them(tmp_path: Path) -> None:
    write_tree(tmp_path / "rebuilt", NEW)
    swap = plan(tmp_path)
    swap.run(OsFileSystem())

    assert NEW == tree_of(tmp_path)
    assert swap.kept_by(OsFileSystem()) is None
    assert [] == list(tmp_path.glob("replaced-*"))


@pytest.mark.parametrize("marks", [[], ["replaced-by-rebuild"]])
def test_a_directory_that_a_killed_run_left_empty_is_used(marks: list[str], tmp_path: Path) -> None:
    (tmp_path / "replaced-3").mkdir()
    for mark in marks:
        (tmp_path / "replaced-3" / mark).touch()
    swap = prepare(tmp_path)
    swap.run(OsFileSystem())

    assert "replaced-3" == swap.kept.name
    assert OLD == tree_of(swap.kept)
    assert swap.kept == swap.kept_by(OsFileSystem())


def test_a_directory_that_only_has_such_a_name_is_none_of_ours(tmp_path: Path) -> None:
    write_tree(tmp_path / "replaced-7", {"mine": b"data"})

    assert [] == kept_directories(tmp_path, OsFileSystem())
    assert "replaced-8" == plan(tmp_path).kept.name
