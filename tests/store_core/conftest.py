# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests of the core: a fake clock and disk, a store with something for every view, what is opened."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from store_core.files import segment_source
from store_core.files.file_system import OpenFile, OsFileSystem
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.segment_source import LocalBytes, Segment


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the segments and queue files that are opened from now on."""
    paths: list[str] = []
    open_segment, open_file = segment_source.open_file, OsFileSystem.open

    def recorded(segment: Segment) -> LocalBytes:
        paths.append(segment.path)
        return open_segment(segment)

    def opened_queue(self: OsFileSystem, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        paths.extend([str(path)] * ("consumequeue" in str(path)))
        return open_file(self, path, create=create, writable=writable)

    monkeypatch.setattr(segment_source, "open_file", recorded)
    monkeypatch.setattr(OsFileSystem, "open", opened_queue)
    return paths


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the store; not to be changed."""
    return make_viewed_store(tmp_path_factory.mktemp("viewed") / "store")


@pytest.fixture
def viewed(pristine: Path, tmp_path: Path) -> Path:
    """Provide a copy of the store that a test may change."""
    return shutil.copytree(pristine, tmp_path / "store", copy_function=_copy_with_holes)


def _copy_with_holes(source: str, target: str) -> str:
    """Copy a file, without the zeros of its holes: a timer wheel is 38 MB of them."""
    with open(source, "rb") as old, open(target, "wb") as new:  # noqa: PTH123 -- strings, as `copytree` gives them
        end, size = 0, os.fstat(old.fileno()).st_size
        while end < size and (begin := _seek(old.fileno(), end, os.SEEK_DATA, size)) < size:
            end = _seek(old.fileno(), begin, os.SEEK_HOLE, size)
            new.seek(begin)
            old.seek(begin)
            new.write(old.read(end - begin))
        new.truncate(size)
    shutil.copystat(source, target)
    return target


def _seek(descriptor: int, position: int, what: int, size: int) -> int:
    try:
        return os.lseek(descriptor, position, what)
    except OSError:
        return size
