# SPDX-License-Identifier: Apache-2.0
"""The segment files of one directory, and a segment file given by its own name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import SegmentLayoutError, StoreNotFoundError
from store_core.files.remote.remote_file import RemoteFile
from store_core.files.remote.url_path import UrlPath, remote_file_of
from store_core.files.segment_names import (
    LAST_OFFSET,
    advice_on_name,
    codec_of,
    compressed_error,
    start_offset_of,
    why_no_segment,
)
from store_core.files.segment_source import Segment, open_pages
from store_core.files.store_parts import COMMIT_LOG
from store_core.format.record.record_head import head_reader
from store_core.format.record.scan import check_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["segments_in", "single_file"]

_FIRST_RECORD: Final = 8 << 20
"""Bytes at the beginning of a file that are looked at for a sound record."""

_COMPRESSED: Final = "it is compressed, and segments are expected as RocketMQ writes them. Expand it first"

_read_offset: Final = head_reader("physical_offset")


def segments_in(directory: Path, notes: list[str], *, compressed: bool = False) -> Iterator[Segment]:
    """Yield the files of a directory whose names are offsets, in order; `notes` gets what is left out.

    Compressed ones are yielded if the caller reads them, with the size of the file.
    """
    for entry in _listed(directory):
        stem, codec = codec_of(entry.name) or (entry.name, None)
        start_offset = start_offset_of(stem)
        if start_offset is None or entry.kind != "file" or start_offset + entry.size > LAST_OFFSET:
            notes.append(f"ignored the {entry.kind} {entry.path}: {why_no_segment(stem)}.{advice_on_name(entry.name)}")
        elif codec is not None and not compressed:
            notes.append(f"ignored the file {entry.path}: {_COMPRESSED}.")
        else:
            yield Segment(entry.path, start_offset, entry.size, remote=entry.remote, codec=codec)


class _Entry(NamedTuple):
    path: str
    name: str
    kind: str
    size: int
    remote: RemoteFile | None = None


def _listed(directory: Path) -> Iterator[_Entry]:
    """Yield what is in a directory, in the order of the names."""
    if isinstance(directory, UrlPath):
        for path, found in directory.scan():
            kind = "file" if found.is_file else "directory"
            yield _Entry(str(path), found.name, kind, found.size, RemoteFile(path.place, found.size, found.modified))
        return
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            try:
                size = entry.stat().st_size
                is_file = entry.is_file()
            except FileNotFoundError:
                continue  # deleted by retention since the directory was read, or a dangling link
            kind = "file" if is_file else "directory" if entry.is_dir() else "entry"
            yield _Entry(entry.path, entry.name, kind, size)


def single_file(path: Path, *, compressed: bool = False) -> Segment:
    """Return the segment that a file is, by its name."""
    stem, codec = codec_of(path.name) or (path.name, None)
    start_offset = start_offset_of(stem)
    if codec is not None and start_offset is not None and not compressed:
        raise compressed_error(str(path))
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise StoreNotFoundError(f"no such path: {str(path)!r}") from error
    if start_offset is None or start_offset + size > LAST_OFFSET:
        raise SegmentLayoutError(
            f"{path} is not named like a segment: {why_no_segment(stem)}.{_name_it_should_have(path, size)}"
        )
    return Segment(str(path), start_offset, size, remote=remote_file_of(path), codec=codec)


def _name_it_should_have(path: Path, size: int) -> str:
    """Return advice on a file's right name, by the offset that its first record holds if that record is sound."""
    if not path.is_file():
        return " It is not a file."
    with open_pages(Segment(str(path), 0, size, remote=remote_file_of(path))) as segment:
        segment.load(0, _FIRST_RECORD)
        check = check_record(segment.raw.data, 0, None, verify_crc=True)
        offset = _read_offset(segment.raw.data, 0)[0] if check.spans else -1
    if offset < 0:
        return (
            " Its first bytes are not a sound record, so the name can't be derived from them. Give the root of "
            "a store, its "
            f"{COMMIT_LOG} directory, or a segment file; if a store was packed into this one, unpack it."
        )
    return f" Its first record was written at offset {offset}: rename it to {offset:020d}."
