# SPDX-License-Identifier: Apache-2.0
"""The files that a queue loads from its directories, by the rules of each RocketMQ release."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import SegmentLayoutError
from store_core.files.packed_name import TO_EXPAND, is_compressed_segment
from store_core.files.segment_file import offset_of
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.files.file_system import FileStatus, FileSystem

__all__ = ["LoadList", "list_for_loading"]


class LoadList(NamedTuple):
    """The files to load, and those left out.

    Attributes
    ----------
    paths : tuple of Path
        Files of the right size, in order.
    notes : tuple of str
        What was left out, and why.
    empty_last : Path or None
        An empty last file, as a crash leaves it between creating and extending it; to be deleted.
    """

    paths: tuple[Path, ...]
    notes: tuple[str, ...]
    empty_last: Path | None


def list_for_loading(
    directories: Iterable[Path], file_size: int, file_system: FileSystem, release: str = DEFAULT_RELEASE
) -> LoadList:
    """Choose the files to load, as ``MappedFileQueue.load`` does.

    The entries of all directories together, sorted by name, are treated so:

    ========  ======================  ==============================  ==========================
    release   a directory             empty, and last                 another size
    ========  ======================  ==============================  ==========================
    ``4.3``   ends the list           ends the list                   ends the list
    ``4.9``   is refused              is refused                      is refused
    ``5.3``   is skipped              is to be deleted                is refused
    ========  ======================  ==============================  ==========================

    A file of the right size whose name is not a number is refused by all releases. Two files of the same name, in two
    directories, are refused here; RocketMQ loads both. So is a compressed segment by the rules of ``4.3``, too: a log
    that ends there would be written over.

    Raises
    ------
    SegmentLayoutError
        For anything that the table or the rules after it refuse.
    """
    features = rules_of(release)
    entries = [(directory / name) for directory in directories for name in file_system.names(directory)]
    entries.sort(key=lambda path: path.name)
    paths: list[Path] = []
    notes: list[str] = []
    for position, path in enumerate(entries):
        status = file_system.status(path)
        if status is None:
            continue  # deleted since the directory was read
        if status.is_directory and features.passes_over_directories:
            notes.append(f"skipped the directory {path}")
        elif not status.is_directory and status.size == file_size:
            paths.append(_right_sized(path, paths))
        elif is_compressed_segment(path.name):
            does = "would end the log there" if features.ends_loading_at_odd_file else "refuses to load such a store"
            raise SegmentLayoutError(f"{_wrong(path, status, file_size)}. RocketMQ {release} {does}. {TO_EXPAND}")
        elif features.ends_loading_at_odd_file:
            left = len(entries) - position - 1
            notes.append(f"{_wrong(path, status, file_size)}: loading ends here, {left} later entries are left out")
            break
        elif status.size == 0 and position == len(entries) - 1 and features.deletes_empty_last_file:
            notes.append(f"{path} has no bytes: it was being made when the process ended")
            return LoadList(tuple(paths), tuple(notes), path)
        else:
            raise SegmentLayoutError(
                f"{_wrong(path, status, file_size)}. RocketMQ {release} refuses to load such a store: open it "
                f"with the sizes it was made with (MessageStoreConfig.from_properties takes them from broker.conf), or "
                f"move what does not belong there elsewhere"
            )
    return LoadList(tuple(paths), tuple(notes), None)


def _right_sized(path: Path, before: list[Path]) -> Path:
    offset_of(path)
    if before and before[-1].name == path.name:
        raise SegmentLayoutError(
            f"two files claim offset {path.name}: {before[-1]} and {path}. One was made ahead when the process ended, "
            f"and is all zeros: move that one elsewhere"
        )
    return path


def _wrong(path: Path, status: FileStatus, file_size: int) -> str:
    size = f"{status.size} bytes, compressed" if is_compressed_segment(path.name) else f"{status.size} bytes"
    found = "a directory" if status.is_directory else size
    return f"{path}: expected a segment of {file_size} bytes, found {found}"
