# SPDX-License-Identifier: Apache-2.0
"""An overlay behaves like the file system below it, and never changes that."""

from __future__ import annotations

import errno
import os
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import SegmentVanishedError
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.mapped_file import MappedFile
from store_core.files.overlay_file_system import FileChange, OverlayFile, OverlayFileSystem
from store_core.format.segment_view import SegmentView
from tests.budgets import budget
from tests.store_core.fakes import FakeClock, descriptors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Step = Callable[[FileSystem, Path], object]

NAMES = ["a", "b", "d/a", "d/b", "d/e/a", "n/a"]
DIRECTORIES = ["d", "d/e", "n", "n/m"]


def before(root: Path) -> None:
    """Make the initial files: with data, with holes and empty, in two directories."""
    (root / "d" / "e").mkdir(parents=True)
    (root / "a").write_bytes(bytes(range(256)) * 20)
    (root / "d" / "a").write_bytes(b"")
    with (root / "d" / "b").open("wb") as file:
        file.write(b"start")
        file.truncate(200_000)


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in root.rglob("*")}


def overlay_tree(system: FileSystem, root: Path, path: Path | None = None) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in system.names(path or root):
        each = (path or root) / name
        status = system.status(each)
        assert status is not None
        found[str(each.relative_to(root))] = None if status.is_directory else system.open(each).read(status.size, 0)
        if status.is_directory:
            found |= overlay_tree(system, root, each)
        else:
            assert status.size == len(found[str(each.relative_to(root))] or b"")
    return found


def compact(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(compact, value))
    return (len(value), value[:20], zlib.crc32(value)) if isinstance(value, bytes) else value


def outcome(step: Step, system: FileSystem, root: Path) -> tuple[str, Any]:
    try:
        return "gives", compact(step(system, root))
    except OSError as error:
        return "fails", error.errno
    except ValueError:
        return "refuses", None


def writing(name: str, create: bool, writable: bool, position: int, data: bytes) -> Step:
    def write(system: FileSystem, root: Path) -> object:
        file = system.open(root / name, create=create and writable, writable=writable)
        return file.write(memoryview(data), position), file.size()

    return write


def reading(name: str, size: int, position: int) -> Step:
    return lambda system, root: system.open(root / name, writable=False).read(size, position)


def walking(name: str, position: int) -> Step:
    """Read windows, which use the same memory, from both sides of a position."""

    def walk(system: FileSystem, root: Path) -> object:
        file = system.open(root / name, writable=False)
        if not file.size():
            return None
        middle = min(position, file.size())
        opened = file.source(file.size())
        segment = SegmentView(opened, file.size())
        return tuple(segment.chunk(*each).tobytes() for each in [(0, middle), (middle, file.size()), (0, middle)])

    return walk


def sizing(name: str, verb: str, size: int) -> Step:
    def change(system: FileSystem, root: Path) -> object:
        file = system.open(root / name, create=verb == "reserve")
        getattr(file, verb)(size)
        return file.size()

    return change


def mapping(name: str, size: int, data: bytes) -> Step:
    def look(system: FileSystem, root: Path) -> object:
        file = system.open(root / name)
        view = file.viewer(size)(0, size)
        first = bytes(view)
        file.write(memoryview(data), 0)
        file.grow(size + 5000)
        file.write(memoryview(data), 1)
        file.close()
        return first, view.readonly

    return look


def data_found(name: str) -> Step:
    """Find the data outside of holes: every byte that is not zero is in it."""

    def find(system: FileSystem, root: Path) -> object:
        file = system.open(root / name)
        content, position, holes = file.read(file.size(), 0), 0, b""
        while (data := file.next_data(position)) is not None:
            assert position <= data[0] < data[1] <= max(len(content), 1)
            holes += content[position : data[0]]
            position = data[1]
        return (holes + content[position:]).strip(b"\0")

    return find


def renaming(one: str, two: str) -> Step:
    def rename(system: FileSystem, root: Path) -> object:
        status = system.status(root / one)
        if status is not None and status.is_directory:
            return "a directory, which an overlay can't rename"
        system.rename(root / one, root / two)
        return None

    return rename


names = st.sampled_from(NAMES)
directories = st.sampled_from(DIRECTORIES)
positions = st.integers(0, 3) | st.sampled_from([4999, 5119, 5120, 65_535, 70_000, 200_001])
contents = st.binary(max_size=4) | st.just(bytes(5000)) | st.just(b"\1" * 70_000)
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(writing, names, st.booleans(), st.booleans() | st.just(value=True), positions, contents),
    st.builds(reading, names, positions, positions),
    st.builds(sizing, names, st.sampled_from(["grow", "truncate", "reserve"]), positions.filter(bool)),
    st.builds(mapping, names, positions.filter(bool), contents),
    st.builds(data_found, names),
    st.builds(walking, names, positions),
    st.builds(lambda name: lambda system, root: system.remove(root / name), names | directories),
    st.builds(lambda name: lambda system, root: system.make_directories(root / name), directories | names),
    st.builds(lambda name: lambda system, root: system.remove_directory(root / name), directories | names),
    st.builds(lambda name: lambda system, root: system.names(root / name), directories),
    st.builds(lambda name: lambda system, root: system.sync_directory(root / name), directories),
    st.builds(renaming, names, names),
)


def expected_changes(old: dict[str, bytes | None], new: dict[str, bytes | None]) -> set[tuple[str, str]]:
    found = {(name, "removed") for name in old.keys() - new.keys()}
    found |= {(name, "created") for name in new.keys() - old.keys()}
    for name in old.keys() & new.keys():
        one, two = old[name], new[name]
        if (one is None) is not (two is None):
            found.add((name, "created"))
        elif one != two:
            found.add((name, "truncated" if len(two or b"") < len(one or b"") else "written"))
    return found


@budget(0.6)
@given(script=st.lists(steps, max_size=12))
def test_overlay_does_what_the_disk_does_and_leaves_what_is_below(
    tmp_path_factory: pytest.TempPathFactory, script: list[Step]
) -> None:
    below, twin = tmp_path_factory.mktemp("below"), tmp_path_factory.mktemp("twin")
    before(below)
    before(twin)
    untouched = tree(below)
    disk = OsFileSystem()
    overlay = OverlayFileSystem(disk, FakeClock())
    for step in script:
        assert outcome(step, disk, twin) == outcome(step, overlay, below)

    now = tree(twin)
    shown = overlay_tree(overlay, below)
    assert now.keys() == shown.keys()
    assert not [name for name in now if now[name] != shown[name]]
    assert untouched == tree(below)
    told = {(str(change.path.relative_to(below)), change.kind) for change in overlay.changes}
    missing = expected_changes(untouched, now) - told
    replaced = {(name, kind) for name, kind in missing if (name, "created") in told}
    assert not missing - replaced
    for change in overlay.changes:
        name = str(change.path.relative_to(below))
        if change.kind in ("written", "truncated"):
            old, new = untouched[name] or b"", now[name] or b""
            assert old[: change.first_changed] == new[: change.first_changed]


@pytest.fixture
def overlay(tmp_path: Path) -> OverlayFileSystem:
    before(tmp_path)
    return OverlayFileSystem(OsFileSystem(), FakeClock())


def test_changes_are_told_with_the_first_byte_that_is_another(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    overlay.open(tmp_path / "a").write(memoryview(bytes([10, 11, 99, 13])), 10)
    overlay.open(tmp_path / "d" / "b").truncate(100)
    overlay.remove(tmp_path / "d" / "a")
    overlay.make_directories(tmp_path / "new")
    overlay.open(tmp_path / "new" / "c", create=True).grow(7)

    assert (
        FileChange(tmp_path / "a", "written", 12, 5120),
        FileChange(tmp_path / "d" / "a", "removed"),
        FileChange(tmp_path / "d" / "b", "truncated", 100, 100),
        FileChange(tmp_path / "new", "created", is_directory=True),
        FileChange(tmp_path / "new" / "c", "created", 0, 7),
    ) == overlay.changes
    assert f"written {tmp_path / 'a'} from byte 12" == str(overlay.changes[0])
    assert f"created directory {tmp_path / 'new'}" == str(overlay.changes[3])


def test_writing_what_is_there_already_is_no_change(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    file = overlay.open(tmp_path / "a")
    file.write(memoryview(file.read(5120, 0)), 0)
    overlay.make_directories(tmp_path / "d" / "e")
    overlay.remove_directory(tmp_path / "d" / "e")
    overlay.make_directories(tmp_path / "d" / "e")

    assert () == overlay.changes


def test_a_file_that_is_removed_stays_readable_to_who_has_it(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    file = overlay.open(tmp_path / "a")
    view = file.viewer(5120)(0, 5120)
    overlay.remove(tmp_path / "a")

    assert bytes(range(256)) * 20 == bytes(view) == file.read(6000, 0)
    assert overlay.status(tmp_path / "a") is None


def test_files_take_descriptors_only_while_they_are_open(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    before_all = descriptors()
    files = [overlay.open(tmp_path / name) for name in ("a", "d/b") for _ in range(50)]
    assert before_all == descriptors()
    for file in files:
        file.viewer(100)(0, 100)
        file.read(10, 0)
        file.close()
    assert before_all == descriptors()


def test_gigabytes_of_nothing_take_no_memory(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    file = overlay.open(tmp_path / "big", create=True)
    file.grow(1 << 32)
    file.write(memoryview(b"x"), (1 << 32) - 1)

    assert ((1 << 32) - 1, b"\0x") == (file.next_data(70_000)[1] - 1, file.read(2, (1 << 32) - 2))  # type: ignore[index]  # it is there


def test_status_dates_changes_and_keeps_identity(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    old = OsFileSystem().status(tmp_path / "a")
    overlay.open(tmp_path / "a").read(1, 0)
    assert old == overlay.status(tmp_path / "a")
    overlay.open(tmp_path / "a").write(memoryview(b"!"), 0)
    new = overlay.status(tmp_path / "a")

    assert old is not None
    assert new is not None
    assert (old.identity, old.size, 1_700_000_000_000) == (new.identity, new.size, new.modified_ms)
    overlay.open(tmp_path / "x", create=True)
    overlay.open(tmp_path / "y", create=True)
    identities = [overlay.status(tmp_path / name).identity for name in ("a", "x", "y")]  # type: ignore[union-attr]  # they are there
    assert 3 == len(set(identities))


def test_there_is_nothing_to_lock_and_space_is_that_below(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no descriptor") as caught:
        overlay.open(tmp_path / "a").fileno()
    assert errno.EOPNOTSUPP == caught.value.errno
    overlay.make_directories(tmp_path / "new" / "deep")

    assert OsFileSystem().used_percent(tmp_path) == overlay.used_percent(tmp_path / "new" / "deep")
    assert -1 == overlay.used_percent(tmp_path / "nowhere")


def walked(file: OverlayFile) -> object:
    opened = file.source(file.size())
    return opened.chunk(opened.next_data(0), file.size()).tobytes()


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize(
    "read",
    [
        lambda file: file.read(file.size(), 0),
        lambda file: file.viewer(file.size())(0, file.size()),
        lambda file: file.source(file.size()).chunk(0, file.size()),
        lambda file: file.write(memoryview(b"x"), 190_000),
        walked,
    ],
    ids=["read", "view", "chunk", "write", "walk"],
)
def test_a_file_that_shrinks_or_vanishes_below_is_an_error_that_names_it(
    overlay: OverlayFileSystem, tmp_path: Path, read: Callable[[OverlayFile], object], is_changed: bool
) -> None:
    path = tmp_path / "d" / "b"
    path.write_bytes(b"x" * 200_000)
    file, late = overlay.open(path), overlay.open(path)
    file.read(1, 0)
    if is_changed:
        file.write(memoryview(b"y"), 70_000)
    os.truncate(path, 5)

    with pytest.raises(SegmentVanishedError, match=rf"{path} had 200000 bytes when it was opened, and has 5 now"):
        read(file)
    path.unlink()
    with pytest.raises(SegmentVanishedError, match=rf"{path} had 200000 bytes when it was listed, and is gone now"):
        read(late)


def test_what_was_cut_off_is_zeros_in_every_window(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    file = overlay.open(tmp_path / "a")
    file.truncate(200)
    file.grow(400)
    opened = file.source(400)

    assert bytes(range(200)) == opened.chunk(0, 200).tobytes()
    assert bytes(200) == opened.chunk(200, 400).tobytes()


@pytest.mark.parametrize("is_overlaid", [False, True])
@pytest.mark.parametrize("read", [lambda file: file.select(0, 10), lambda file: file.view()], ids=["view", "walk"])
def test_a_segment_that_shrank_after_it_was_listed_is_an_error_that_names_it(
    tmp_path: Path, read: Callable[[MappedFile], object], is_overlaid: bool
) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"x" * 100)
    disk = OverlayFileSystem(OsFileSystem(), FakeClock()) if is_overlaid else OsFileSystem()
    file = MappedFile(path, 200, disk, writable=False)
    file.set_position(200)

    with pytest.raises(SegmentVanishedError, match=rf"{path} had 200 bytes when it was listed, and has 100 now"):
        read(file)
