# SPDX-License-Identifier: Apache-2.0
"""The segments of a log in an object store or another file system that is not this machine's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from store_core.errors import SegmentLayoutError, StoreAccessError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.compressed_bytes import codec_of
from store_core.files.remote.remote_file import RemoteFile
from store_core.files.remote.storage_settings import SETTING_PREFIX
from store_core.files.segment_names import LAST_OFFSET, NAME_RULE, advice_on_name, start_offset_of
from store_core.files.segment_source import Segment
from store_core.files.store_parts import COMMIT_LOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.fs import FileInfo

    from store_core.files.remote.storage import RemotePath

__all__ = ["list_remote_segments"]

_MOST_FILES: Final = 1 << 20
"""How many entries of a directory are accepted; a bound for hostile stores."""

_DLEDGER: Final = "dledger-"


def list_remote_segments(place: RemotePath, notes: list[str]) -> list[Segment]:
    """Return the segments at a URL, in order: those of a store's root, of its ``commitlog`` directory, or one file.

    Parameters
    ----------
    place : RemotePath
    notes : list of str
        Gets what is left out, and why.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    SegmentLayoutError
        If a file given by its own name is not named like a segment.
    UnsupportedStoreError
        If it is the root of a DLedger store.
    StoreAccessError
        If it can't be listed.
    """
    with _explained(place):
        found = _entries(place)
        if found is None:
            return [_single_file(place)]
        names = {entry.base_name: entry for entry in found}
        if COMMIT_LOG in names and not names[COMMIT_LOG].is_file:
            _refuse_dledger(place, names)
            place = place._replace(relative=f"{place.relative}/{COMMIT_LOG}".lstrip("/"))
            found = _entries(place) or []
        else:
            _refuse_dledger(place, names)
        return list(_segments(place, found, notes))


def _entries(place: RemotePath) -> list[FileInfo] | None:
    """List a directory; None if the place is a file."""
    from pyarrow import fs  # noqa: PLC0415 -- takes long to import, and most stores are local

    storage = place.storage.opened()
    path = storage.path_of(place.relative)
    try:
        found: list[FileInfo] = storage.file_system.get_file_info(fs.FileSelector(path))
    except (FileNotFoundError, NotADirectoryError):
        found = []
    except OSError:
        if storage.file_system.get_file_info(path).is_file:
            return None
        raise
    if not found:
        kind = storage.file_system.get_file_info(path).type
        if kind == fs.FileType.File:
            return None
        if kind == fs.FileType.NotFound:
            raise StoreNotFoundError(
                f"no such path: {place.url}. Check its spelling, and that the credentials may list it"
            )
    if len(found) > _MOST_FILES:
        raise SegmentLayoutError(f"{place.url} has {len(found)} entries: expected at most {_MOST_FILES} files of a log")
    return sorted(found, key=lambda entry: entry.base_name)


def _segments(place: RemotePath, found: list[FileInfo], notes: list[str]) -> Iterator[Segment]:
    for entry in found:
        name = entry.base_name
        stem, codec = codec_of(name) or (name, None)
        start_offset = start_offset_of(stem)
        file = place._replace(relative=f"{place.relative}/{name}".lstrip("/"))
        if start_offset is not None and entry.is_file and start_offset + entry.size <= LAST_OFFSET:
            yield _segment(file, start_offset, entry, codec)
        else:
            kind = "file" if entry.is_file else "directory"
            notes.append(f"ignored the {kind} {file.url}: {NAME_RULE}.{advice_on_name(name)}")


def _single_file(place: RemotePath) -> Segment:
    storage = place.storage.opened()
    entry = storage.file_system.get_file_info(storage.path_of(place.relative))
    stem, codec = codec_of(entry.base_name) or (entry.base_name, None)
    start_offset = start_offset_of(stem)
    if start_offset is None or start_offset + entry.size > LAST_OFFSET:
        raise SegmentLayoutError(
            f"{place.url} is not named like a segment: {NAME_RULE}. Give the root of a store, its {COMMIT_LOG} "
            f"directory, or a segment file"
        )
    return _segment(place, start_offset, entry, codec)


def _segment(file: RemotePath, start_offset: int, entry: FileInfo, codec: str | None = None) -> Segment:
    listed = RemoteFile(file, entry.size, entry.mtime_ns or 0)
    return Segment(file.url, start_offset, entry.size, remote=listed, codec=codec)


def _refuse_dledger(place: RemotePath, names: dict[str, FileInfo]) -> None:
    member = next((name for name, entry in names.items() if name.startswith(_DLEDGER) and not entry.is_file), None)
    if member is not None:
        raise UnsupportedStoreError(
            f"{place.url} has a DLedger log, {member}: those are read from a local disk. Copy the store there, or "
            f"mount it, and give that path"
        )


@contextmanager
def _explained(place: RemotePath) -> Iterator[None]:
    """Turn errors of a storage into one that names the URL and shows no secret."""
    try:
        yield
    except (StoreNotFoundError, SegmentLayoutError, UnsupportedStoreError, StoreAccessError):
        raise
    except OSError as error:
        text = place.storage.settings.hidden_in(str(error))
        raise StoreAccessError(
            f"{place.url} can't be listed: {text}. Check the URL, the settings {SETTING_PREFIX}* and the environment's "
            f"credentials"
        ) from None
