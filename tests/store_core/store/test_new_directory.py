# SPDX-License-Identifier: Apache-2.0
"""A directory that is made beside its place, and what a process that was killed leaves there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.store.new_directory import NewDirectory

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_directory_appears_when_it_is_published(tmp_path: Path) -> None:
    with NewDirectory(tmp_path / "new", tmp_path / ".new.copy-1") as made:
        (made.work / "file").write_bytes(b"data")
        assert [".new.copy-1"] == names(tmp_path)
        made.publish()

    assert ["new"] == names(tmp_path)
    assert b"data" == (tmp_path / "new" / "file").read_bytes()


def test_what_a_killed_process_left_is_deleted_by_the_next_that_makes_the_same(tmp_path: Path) -> None:
    for name in (".new.copy-dead", ".new.other-1", ".newer.copy-1", "new.copy-1"):
        (tmp_path / name / "below").mkdir(parents=True)
    (tmp_path / ".new.copy-link").symlink_to(tmp_path / ".newer.copy-1")
    with NewDirectory(tmp_path / "new", tmp_path / ".new.copy-2"):
        found = names(tmp_path)

    assert [".new.copy-2", ".new.copy-link", ".new.other-1", ".newer.copy-1", "new.copy-1"] == found


def test_what_another_process_is_making_stays(tmp_path: Path) -> None:
    with NewDirectory(tmp_path / "new", tmp_path / ".new.copy-1"):
        with NewDirectory(tmp_path / "new", tmp_path / ".new.copy-2"):
            assert [".new.copy-1", ".new.copy-2"] == names(tmp_path)
        assert [".new.copy-1"] == names(tmp_path)
    assert [] == names(tmp_path)
