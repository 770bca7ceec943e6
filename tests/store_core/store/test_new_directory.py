# SPDX-License-Identifier: Apache-2.0
"""A directory that is made beside its place, and what a process that was killed leaves there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.errors import SegmentVanishedError
from store_core.files.file_system import OpenFile, OsFileSystem
from store_core.store import new_directory
from store_core.store.new_directory import NewDirectory, copy_store, first_match


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


def test_a_file_that_shrinks_or_vanishes_while_it_is_copied_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old" / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 100)
    opened = OsFileSystem.open

    def shrink_first(self: OsFileSystem, other: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        os.truncate(path, 7)
        return opened(self, other, create=create, writable=writable)

    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "open", shrink_first)
        with pytest.raises(SegmentVanishedError, match=f"{path} had 100 bytes when it was opened, and has 7 now"):
            copy_store(tmp_path / "old", tmp_path / "new")
    monkeypatch.setattr(new_directory, "files_below", lambda _: [path.with_name("gone")])
    with pytest.raises(SegmentVanishedError, match=f"{path.with_name('gone')} is gone"):
        copy_store(tmp_path / "old", tmp_path / "new")


_EXPRESSIONS = [rb"aab", rb"ba+b", rb"\Aab", rb"^b", rb"(?<=b)ab", rb"ab$", rb"b\Z", rb"a(?!b)", rb"ca+", rb"b(?!\na)"]


@pytest.mark.parametrize("expression", _EXPRESSIONS)
@example(data=b"aaaaaab\na")
@given(data=st.binary(max_size=60).map(lambda data: bytes(b"abc\n"[each % 4] for each in data)))
def test_a_match_is_found_piece_by_piece_where_it_is_in_the_whole_file(expression: bytes, data: bytes) -> None:
    """Matches here are shorter than a piece, or their first piece is one."""
    searched = re.compile(expression)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "file"
        path.write_bytes(data)
        patch.setattr(new_directory, "_PIECE", 8)
        found = first_match(path, searched)

    whole = searched.search(data)
    assert (None if whole is None else whole.start()) == found or (found is None and _longest_run(data) >= 6)


def _longest_run(data: bytes) -> int:
    return max(map(len, re.findall(rb"a+", data)), default=0)


def test_a_match_longer_than_a_piece_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_directory, "_PIECE", 8)
    (tmp_path / "file").write_bytes(bytes(20) + b"secret" + bytes(100))

    assert 20 == first_match(tmp_path / "file", re.compile(rb"secret.*", re.DOTALL))
