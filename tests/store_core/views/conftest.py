# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.files import segment_source
from store_core.files.file_system import OpenFile, OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.segment_source import LocalBytes, Segment


@pytest.fixture
def store(viewed: Path) -> Path:
    return viewed


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
