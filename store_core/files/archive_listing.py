# SPDX-License-Identifier: Apache-2.0
"""The segments in a tar archive of a store, which is read as it is: nothing is unpacked, and no name becomes a path."""

from __future__ import annotations

import struct
import tarfile
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final, cast

from store_core.errors import SegmentLayoutError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.names import COMMIT_LOG, LAST_OFFSET, NAME_RULE, archive_codec, start_offset_of
from store_core.files.segment_source import LARGEST_SEGMENT, ExpandedStream, Segment, file_at, modified_ns, open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from tarfile import TarInfo


_BLOCK: Final = 512
"""Bytes of a header."""

_BUFFER: Final = 4 << 10
"""Bytes of one request: a header, with what little may precede it."""

_MOST_HEADER: Final = 1 << 20
"""Most bytes that may be read for one member: its header and all that extends it (names, pax, maps of holes), which are
held in memory."""

_MOST_GLOBALS: Final = 64
"""Most values that pax headers may set for all later members; each of these gets a copy."""

_MOST_MEMBERS: Final = 1 << 20
_MOST_SEGMENTS: Final = 1 << 16
_MOST_NOTES: Final = 20
"""Files that are left out with a note each."""

_MOST_SHOWN: Final = 200
"""Characters of a name that are shown."""

_MOST_EXPANDED: Final = 1 << 40
"""Most bytes that a compressed archive may expand to: 1024 segments of the usual size. Zeros of a segment that is not
full expand to thousands of times their size, so a ratio would say nothing."""

_DLEDGER: Final = "dledger-"


def archive_at(place: Path) -> Segment:
    """Return the archive that a path is, as a file with all of its bytes."""
    return replace(file_at(place), codec=next(iter(archive_codec(place.name) or ()), None))


def archive_segments(archive: Segment, notes: list[str]) -> list[Segment]:
    """Return the segments in an archive, in the order of their offsets; one that is compressed is read to its end.

    * `notes`: Gets what is left out, and why.
    """
    found: dict[str, dict[str, Segment]] = {}
    ignored = 0
    modified = modified_ns(archive)
    for member in _members(archive):
        directory, _, name = member.name.removeprefix("./").rpartition("/")
        if directory.rpartition("/")[2] not in (COMMIT_LOG, "") or (not directory and member.isdir()):
            if any(part.startswith(_DLEDGER) for part in member.name.split("/")[:-1]):
                raise UnsupportedStoreError(
                    f"{archive.path} has a DLedger log, {_shown(member.name)}: those are read from directories. Unpack "
                    f"it, and give that path"
                )
            continue
        start_offset = start_offset_of(name)
        if start_offset is None or start_offset + member.size > LAST_OFFSET or member.isdir():
            ignored += bool(directory)
            if directory and ignored <= _MOST_NOTES:
                notes.append(f"ignored {_shown(member.name)} in {archive.path}: {NAME_RULE}.")
            continue
        _check_member(archive, member, directory)
        log = found.setdefault(directory, {})
        if name in log:
            raise _wrong(archive, member, "is there twice", "each file once")
        log[name] = replace(
            archive,
            path=f"{archive.path}/{COMMIT_LOG}/{name}",
            start_offset=start_offset,
            size=member.size,
            archive=archive.path,
            begin=member.offset_data,
            archive_modified=modified,
        )
        _check_logs(archive, found, len(log))
    if ignored > _MOST_NOTES:
        notes.append(f"ignored {ignored - _MOST_NOTES} other files in {archive.path}: {NAME_RULE}.")
    chosen = next((log for directory, log in found.items() if directory), found.get(""))
    if chosen is None:
        raise StoreNotFoundError(
            f"nothing to read: no segment file in {archive.path} ({NAME_RULE}; a store has them in {COMMIT_LOG}/)."
        )
    return sorted(chosen.values(), key=lambda segment: segment.start_offset)


def _shown(name: str) -> str:
    """Return a name as text that says it, and no more than its beginning."""
    return repr(name) if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]!r}..."


def _check_logs(archive: Segment, found: dict[str, dict[str, Segment]], segments: int) -> None:
    """Refuse a second log, and one of very many segments."""
    logs = [directory for directory in found if directory]
    if len(logs) > 1:
        first, second = sorted(_shown(directory) for directory in logs)
        raise SegmentLayoutError(
            f"{archive.path} has several logs, such as in {first} and {second}: expected one. Unpack it, and read them "
            f"one by one"
        )
    if segments > _MOST_SEGMENTS:
        raise SegmentLayoutError(f"{archive.path} has more than {_MOST_SEGMENTS} segments: expected a store. Unpack it")


def _check_member(archive: Segment, member: TarInfo, directory: str) -> None:
    """Refuse a segment that is not a plain file in the archive."""
    if member.name.startswith("/") or ".." in directory.split("/"):
        raise _wrong(archive, member, "leads out of the archive", "names below one directory")
    if member.issparse() or any(key.startswith("GNU.sparse") for key in member.pax_headers):
        raise _wrong(archive, member, "is stored with holes (tar --sparse)", "all bytes of the file")
    if not member.isreg():
        kind = "a link" if member.islnk() or member.issym() else "a directory" if member.isdir() else "a device"
        raise _wrong(archive, member, f"is {kind}", "a file")
    if member.size > LARGEST_SEGMENT:
        raise _wrong(archive, member, f"has {member.size} bytes", f"at most {LARGEST_SEGMENT}")


def _wrong(archive: Segment, member: TarInfo, found: str, expected: str) -> SegmentLayoutError:
    return SegmentLayoutError(
        f"{archive.path}: {_shown(member.name)}, whose header is at position {member.offset}, {found}: expected "
        f"{expected}. Make the archive again from the store's directory, or unpack it where it can be checked"
    )


def _members(archive: Segment) -> Iterator[TarInfo]:
    """Yield the headers in order, none of which is believed more than what follows it."""
    opened: _Headers | _Expanded = _Headers(archive) if archive.codec is None else _Expanded(archive)
    try:
        tar = tarfile.TarFile(fileobj=cast("IO[bytes]", opened))
        for count in range(_MOST_MEMBERS + 1):
            opened.room = _MOST_HEADER
            member = tar.next()
            if member is None:
                break
            if count == _MOST_MEMBERS:
                raise SegmentLayoutError(f"{archive.path} has more than {_MOST_MEMBERS} members: expected a store")
            if len(tar.pax_headers) > _MOST_GLOBALS:
                raise SegmentLayoutError(
                    f"{archive.path} sets more than {_MOST_GLOBALS} values for all members, at position "
                    f"{opened.tell()}: expected a store. Make the archive again from the store's directory"
                )
            yield member
            cast("Any", tar).members.clear()  # they are kept for extracting links
    except (tarfile.TarError, ValueError, ArithmeticError, LookupError, RecursionError, struct.error) as error:
        if isinstance(error, SegmentLayoutError):
            raise
        raise _broken(archive, opened.tell(), str(error)) from None
    finally:
        opened.close()
    if opened.last != bytes(_BLOCK):
        raise _broken(archive, opened.tell(), "neither a header nor the end of an archive")


def _broken(archive: Segment, position: int, found: str) -> SegmentLayoutError:
    return SegmentLayoutError(
        f"{archive.path} is not a whole tar archive: {found}, at position {position} of it"
        f"{' when expanded' if archive.codec else ''}. Copy it again"
    )


class _Forward:
    """What `tarfile` needs of a file, going forwards only, so that no header can make it turn in circles."""

    def __init__(self, archive: Segment) -> None:
        self._archive = archive
        self._position = 0
        self.room = _MOST_HEADER
        """Bytes that may still be read for this member: what was read for those before it is not held any more."""
        self.last = b""
        """What was read last."""

    def tell(self) -> int:
        """Return the position in the archive."""
        return self._position

    def read(self, count: int) -> bytes:
        """Return bytes, fewer than asked for at the end."""
        if not 0 <= count <= self.room:
            raise SegmentLayoutError(
                f"{self._archive.path} has a header of {_MOST_HEADER - self.room + count} bytes, at position "
                f"{self._position}: expected at most {_MOST_HEADER}. Make the archive again from the store's directory"
            )
        self.room -= count
        self.last = self._read(count)
        self._position += len(self.last)
        return self.last

    def seek(self, position: int) -> None:
        """Go on to a position."""
        if position < self._position:
            raise _broken(self._archive, self._position, "a header with a negative size")
        self._pass(position - self._position)
        self._position = position

    def _read(self, count: int) -> bytes:
        raise NotImplementedError

    def _pass(self, count: int) -> None:
        raise NotImplementedError


class _Headers(_Forward):
    """A plain archive, of which only the headers are read."""

    def __init__(self, archive: Segment) -> None:
        super().__init__(archive)
        self._opened = open_segment(archive)
        self._buffer = b""
        self._buffer_at = 0

    def close(self) -> None:
        """Close the file."""
        self._opened.__exit__(None, None, None)

    def _read(self, count: int) -> bytes:
        begin, end = self._position, min(self._position + count, self._archive.size)
        if begin >= end:
            return b""
        if not self._buffer_at <= begin <= end <= self._buffer_at + len(self._buffer):
            stop = min(max(end, begin + _BUFFER), self._archive.size)
            self._buffer, self._buffer_at = self._opened.chunk(begin, stop).tobytes(), begin
        return self._buffer[begin - self._buffer_at : end - self._buffer_at]

    def _pass(self, count: int) -> None:
        """Do nothing."""


class _Expanded(_Forward):
    """A compressed archive, which is expanded to its end, piece by piece."""

    def __init__(self, archive: Segment) -> None:
        super().__init__(archive)
        self._stream = ExpandedStream(archive)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _read(self, count: int) -> bytes:
        end, pieces = self._position + count, [b""]
        while self._stream.position < end and (piece := self._stream.read(end - self._stream.position)):
            pieces.append(piece)
        return b"".join(pieces)

    def _pass(self, count: int) -> None:
        if self._position + count > _MOST_EXPANDED:
            raise SegmentLayoutError(
                f"{self._archive.path} expands to more than {_MOST_EXPANDED} bytes: expected a store. Unpack it where "
                f"there is room"
            )
        self._stream.pass_to(self._position + count)
