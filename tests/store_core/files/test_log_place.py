# SPDX-License-Identifier: Apache-2.0
"""The rule by which a store and a configuration mean one log, over all that either can say."""

from __future__ import annotations

import pickle
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core.errors import InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_path import ConfiguredRoot, lock_places, log_directories, meant_log, roots_to_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = ("missing", "empty", "has segments", "a link to the other")
CONFIGURED = ("none", "own", "other", "own and other", "missing")
READ_ONLY = ("none", "other")
BROKER = ("not said", "this", "another")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Make another store, whose log is the other one."""
    (tmp_path / "live" / "commitlog").mkdir(parents=True)
    (tmp_path / "live" / "commitlog" / f"{0:020d}").touch()
    (tmp_path / "live" / "checkpoint").touch()
    return tmp_path


def cases() -> Iterator[tuple[str, str, str, str]]:
    yield from product(OWN, CONFIGURED, READ_ONLY, BROKER)


def made(world: Path, own: str) -> Path:
    root = world / "store"
    root.mkdir()
    if own == "a link to the other":
        (root / "commitlog").symlink_to(world / "live" / "commitlog")
    elif own != "missing":
        (root / "commitlog").mkdir()
    if own == "has segments":
        (root / "commitlog" / f"{0:020d}").touch()
    return root


@pytest.mark.parametrize(("own", "configured", "read_only", "broker"), list(cases()))
def test_the_store_that_was_named_is_what_is_meant(
    world: Path, own: str, configured: str, read_only: str, broker: str
) -> None:
    root, other = made(world, own), world / "live" / "commitlog"
    names = {"none": "", "own": f"{root}/commitlog", "other": f"{other}", "missing": f"{world}/nowhere"}
    names["own and other"] = f"{root}/commitlog,{other}"
    paths = SegmentPaths.parse(names[configured], str(other) if read_only == "other" else "")
    broker_root = {"not said": None, "this": root, "another": world / "live"}[broker]
    log = meant_log(root, paths, broker_root, OsFileSystem())
    found = {path.resolve() for path in log.all_paths}

    has_own = own in {"has segments", "a link to the other"}
    is_own = (root / "commitlog").resolve() in {path.resolve() for path in paths.all_paths}
    if has_own:
        assert (root / "commitlog").resolve() in found
    if has_own and configured != "none" and not is_own:
        assert [root / "commitlog"] == list(log.all_paths)
        assert log.note
        assert log.doubt
    if is_own or (configured == "none" and read_only == "none"):
        assert ("", "") == (log.note, log.doubt)
    if other.resolve() in found and own not in {"has segments", "a link to the other"} and not is_own:
        is_of_other = configured in {"other", "own and other"} or broker == "another"
        assert bool(log.doubt) == is_of_other
    if log.doubt:
        with pytest.raises(InvalidOptionError, match="option storePathCommitLog"):
            log.check_is_certain()
    else:
        log.check_is_certain()


@pytest.mark.parametrize("linked", [False, True])
def test_the_locks_of_a_log_are_those_of_the_roots_above_it(world: Path, linked: bool) -> None:
    root = made(world, "a link to the other" if linked else "has segments")
    elsewhere = world / "disk" / "commitlog"
    live = (world / "live",) if linked else ()

    assert (root, *live) == lock_places(root, [root / "commitlog"], None)
    assert (root, world / "disk") == lock_places(root, [elsewhere, world / "disk" / "more"], None)
    assert (root, world / "disk", world / "live") == lock_places(root, [elsewhere], world / "live")


def test_a_root_keeps_what_it_knows_of_its_log_between_processes(world: Path) -> None:
    root = ConfiguredRoot.of(world / "store", (world / "disk",), None, world / "live", ("a note",))
    again = pickle.loads(pickle.dumps(root))  # noqa: S301 -- our own bytes
    below = pickle.loads(pickle.dumps(root / "index"))  # noqa: S301 -- as above

    assert (root, root.log, root.notes, root.broker_root) == (again, again.log, again.notes, again.broker_root)
    assert (world / "disk",) == log_directories(again)
    assert (world / "store" / "index", Path(world / "store")) == (below, Path(again))
    assert (below / "commitlog",) == log_directories(below)
    assert roots_to_lock(again)[0] == root
