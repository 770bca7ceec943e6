# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of views."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core.files.file_system import OsFileSystem
from store_core.files.segment_source import MappedSegment, Segment
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import OpenFile


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the store; not to be changed."""
    return make_viewed_store(tmp_path_factory.mktemp("viewed") / "store")


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    """Provide a copy of the store that a test may change."""
    return shutil.copytree(pristine, tmp_path / "store")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the segments and queue files that are opened from now on."""
    paths: list[str] = []
    original, open_file = MappedSegment.__init__, OsFileSystem.open

    def recorded(self: MappedSegment, segment: Segment) -> None:
        paths.append(segment.path)
        original(self, segment)

    def opened_queue(self: OsFileSystem, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        paths.extend([str(path)] * ("consumequeue" in str(path)))
        return open_file(self, path, create=create, writable=writable)

    monkeypatch.setattr(MappedSegment, "__init__", recorded)
    monkeypatch.setattr(OsFileSystem, "open", opened_queue)
    return paths
