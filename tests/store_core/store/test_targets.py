# SPDX-License-Identifier: Apache-2.0
"""Targets: what is written never lies among files of others, and a directory is made beside its place."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, MessageStoreConfig, UnsupportedStoreError
from store_core.answers import export, replay, salvage
from store_core.errors import InvalidOptionError, SegmentVanishedError
from store_core.files.file_system import OpenFile, OsFileSystem
from store_core.files.machine import SystemClock
from store_core.store import new_directory
from store_core.store.new_directory import NewDirectory, copy_store, first_match
from store_core.store.rebuild.swap import OutputDirectory
from store_core.store.sink.commit import SinkCommit
from tests.store_core.files.store_kinds import every_file, ordinary_store

if TYPE_CHECKING:
    from collections.abc import Callable


CONFIG = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=100, max_index_num=400)


def store_of(path: Path) -> None:
    DefaultMessageStore.open(path, CONFIG).close()


def commit(path: Path) -> None:
    SinkCommit(path, f"job-{0:032x}", CONFIG, SystemClock(), OsFileSystem()).run([])


def replayed(path: Path) -> None:
    replay(path.parent / "source", "again", path, into_config=CONFIG)


STORES: dict[str, Callable[[Path], object]] = {"open": store_of, "append": commit, "replay": replayed}
ENTRANCES: dict[str, Callable[[Path], object]] = STORES | {
    "export": lambda path: export(path.parent / "source", path),
    "salvage": lambda path: salvage(path.parent / "source", path, "parquet"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    ordinary_store(tmp_path / "source")
    return tmp_path / "place"


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("names", [[".bashrc"], ["notes.txt", "config/app.yaml"], ["index/page.html", "src/main.py"]])
def test_a_directory_with_other_files_is_refused_and_stays_as_it_is(
    place: Path, entrance: str, names: list[str]
) -> None:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    before = every_file(place.parent)

    with pytest.raises(InvalidOptionError, match=f"{place}"):
        ENTRANCES[entrance](place)

    assert before == every_file(place.parent)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("below", ["b", "a/b"])
def test_above_a_store_its_root_is_suggested(place: Path, entrance: str, below: str) -> None:
    ordinary_store(place / below)

    with pytest.raises(InvalidOptionError, match=f"A store may be at {place / below}$"):
        ENTRANCES[entrance](place)


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_empty_directory_is_free_and_keeps_its_mode(place: Path, entrance: str) -> None:
    place.mkdir()
    place.chmod(0o700)

    ENTRANCES[entrance](place)

    assert any(place.iterdir())
    assert 0o700 == place.stat().st_mode & 0o777


@pytest.mark.parametrize("entrance", STORES)
@pytest.mark.parametrize(
    "name", ["config/topics.json", "lock", "commitlog-sink/refused/list", "abort", "index/1", "lost+found/#1"]
)
def test_what_a_store_begins_with_is_no_file_of_others(place: Path, entrance: str, name: str) -> None:
    (place / name).parent.mkdir(parents=True)
    (place / name).write_text("{}" if name.endswith("json") else "")

    STORES[entrance](place)

    assert (place / "checkpoint").is_file()


def test_a_root_among_whose_files_the_log_is_configured_to_be_is_one(place: Path) -> None:
    (place / "segments").mkdir(parents=True)
    (place / "notes.txt").touch()
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, store_path_commit_log=str(place / "segments"))
    DefaultMessageStore.open(place, config).close()

    assert (place / "checkpoint").is_file()


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


def test_a_copy_of_a_read_only_file_can_be_written_by_its_owner_and_by_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    path = tmp_path / "old" / "abort"
    path.touch()
    path.chmod(0o440)
    copy_store(path.parent, tmp_path / "new")

    assert 0o640 == stat.S_IMODE((tmp_path / "new" / "abort").stat().st_mode)


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
    longest_run = max(map(len, re.findall(rb"a+", data)), default=0)
    assert (None if whole is None else whole.start()) == found or (found is None and longest_run >= 6)


def test_a_match_longer_than_a_piece_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_directory, "_PIECE", 8)
    (tmp_path / "file").write_bytes(bytes(20) + b"secret" + bytes(100))

    assert 20 == first_match(tmp_path / "file", re.compile(rb"secret.*", re.DOTALL))


@pytest.fixture
def output(tmp_path: Path) -> OutputDirectory:
    return OutputDirectory(tmp_path / "rebuilt", OsFileSystem())


def test_a_claimed_directory_can_be_claimed_again_and_is_removed_with_all_that_is_in_it(
    output: OutputDirectory,
) -> None:
    output.claim(output.path.parent)
    (output.path / "index").mkdir()
    (output.path / "index" / "1").touch()
    output.claim(output.path.parent)
    output.remove()

    assert not output.path.exists()


def test_a_directory_of_somebody_else_is_neither_claimed_nor_removed(output: OutputDirectory) -> None:
    output.path.mkdir()
    (output.path / "mine").touch()
    with pytest.raises(UnsupportedStoreError, match="was not made by a rebuild"):
        output.claim(output.path.parent)
    output.remove()

    assert (output.path / "mine").exists()


def test_what_a_run_has_left_there_is_kept_if_another_fails(output: OutputDirectory) -> None:
    output.claim(output.path.parent)
    (output.path / "index").mkdir()
    output.remove_if_empty()

    assert output.path.exists()
    (output.path / "index").rmdir()
    output.remove_if_empty()
    assert not output.path.exists()


def test_an_empty_directory_is_removed_without_a_mark_as_a_killed_run_leaves_it(output: OutputDirectory) -> None:
    output.path.mkdir()
    output.remove()

    assert not output.path.exists()


def test_a_link_in_it_is_removed_and_not_followed(output: OutputDirectory) -> None:
    elsewhere = output.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    output.claim(output.path.parent)
    (output.path / "index").symlink_to(elsewhere)
    output.remove()

    assert (elsewhere / "mine").exists()
    assert not output.path.exists()
