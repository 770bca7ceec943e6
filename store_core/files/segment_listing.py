# SPDX-License-Identifier: Apache-2.0
"""The segment files of one directory, a segment file given by its own name, and what other files of a store are."""

from __future__ import annotations

import re
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import SegmentLayoutError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.names import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT_FILE,
    COMMIT_LOG,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DANGLING,
    INDEX_DIRECTORY,
    LAST_OFFSET,
    advice_on_name,
    codec_of,
    compressed_error,
    packed_error,
    start_offset_of,
    why_no_segment,
)
from store_core.files.segment_source import Segment, file_at, open_segment
from store_core.files.url_path import UrlPath, remote_file_of
from store_core.format.layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    INDEX_HEADER,
    TIMER_LOG_UNIT,
    MagicCode,
    Unit,
    unit_dtype,
)
from store_core.format.record.scan import check_record, head_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt


_FIRST_RECORD: Final = 8 << 20
"""Bytes at the beginning of a file that are looked at for a sound record."""

_COMPRESSED: Final = "it is compressed, and segments are expected as RocketMQ writes them. Expand it first"

_read_offset: Final = head_reader("physical_offset")


def segments_in(directory: Path, notes: list[str], *, compressed: bool = False) -> Iterator[Segment]:
    """Yield the files of a directory whose names are offsets, in order; `notes` gets what is left out.

    Compressed ones are yielded if the caller reads them, with the size of the file.
    """
    for path in sorted(directory.iterdir(), key=lambda path: path.name):
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                notes.append(f"ignored the link {path}: {DANGLING}.")
            continue  # otherwise deleted by retention since the directory was read
        kind = "file" if S_ISREG(status.st_mode) else "directory" if S_ISDIR(status.st_mode) else "entry"
        stem, codec = codec_of(path.name) or (path.name, None)
        start_offset = start_offset_of(stem)
        if start_offset is None or kind != "file" or start_offset + status.st_size > LAST_OFFSET:
            why = why_no_segment(stem) if kind == "file" else "a segment is a file"
            notes.append(f"ignored the {kind} {path}: {why}.{advice_on_name(path.name)}")
        elif codec is not None and not compressed:
            notes.append(f"ignored the file {path}: {_COMPRESSED}.")
        else:
            remote = path.file if isinstance(path, UrlPath) else None
            yield Segment(str(path), start_offset, status.st_size, remote=remote, codec=codec)


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
    if packed := packed_error(path):
        raise packed
    if start_offset is None or start_offset + size > LAST_OFFSET:
        raise SegmentLayoutError(
            f"{path} is not named like a segment: {why_no_segment(stem)}.{_name_it_should_have(path)}"
        )
    return Segment(str(path), start_offset, size, remote=remote_file_of(path), codec=codec)


def _name_it_should_have(path: Path) -> str:
    """Return advice on a file's right name, by the offset that its first record holds if that record is sound."""
    if not path.is_file():
        return " It is not a file."
    file = file_at(path)
    with open_segment(file) as opened:
        data = opened.chunk(0, min(file.size, _FIRST_RECORD)).data
        check = check_record(data, 0, None, verify_crc=True)
        offset = _read_offset(data, 0)[0] if check.spans else -1
    if offset < 0:
        return (
            " Its first bytes are not a sound record, so the name can't be derived from them. Give the root of "
            f"a store, its {COMMIT_LOG} directory, or a segment file; if a store was packed into this one, unpack it."
        )
    return f" Its first record was written at offset {offset}: rename it to {offset:020d}."


_HEAD: Final = 4096
"""Bytes of a file that are looked at."""

_LATEST_MS: Final = 1 << 43
"""A time in the year 2248: what is later is none."""

_QUEUES: Final = {
    CONSUME_QUEUE: "consume queue",
    BATCH_CONSUME_QUEUE: "batch consume queue",
    CONSUME_QUEUE_EXT: "extension of the consume queue",
}
_TIMER_LOG: Final = "timerlog"
_DIRECTORIES: Final = {
    INDEX_DIRECTORY: "a file of the key index",
    _TIMER_LOG: "a file of the log of timers",
    CONFIG_DIRECTORY: "a file of the broker's configuration",
}
_NAMES: Final = {
    CHECKPOINT_FILE: "the checkpoint of a store",
    "timercheck": "the checkpoint of the timers",
    "timerwheel": "the wheel of the timers",
    "abort": "the mark of a store that was not closed",
    "abort.bak": "the mark of a store that was not closed",
    "lock": "the lock of a store",
}
_INDEX_NAME: Final = re.compile(r"[0-9]{17}")
_UNITS: Final[dict[str, Unit]] = {
    "a consume queue": CONSUME_QUEUE_UNIT,
    "a batch consume queue": BATCH_CONSUME_QUEUE_UNIT,
    "a file of the log of timers": TIMER_LOG_UNIT,
}


def refuse_other_file(path: Path) -> None:
    """Refuse a file that is another part of a store than its log.

    A file whose first bytes are a record's is a segment wherever it is, and so is one in ``commitlog``: this opens no
    file there.

    * `path`: A file that was given as a segment, or the first one of a directory that was given.
    """
    if path.parent.name == COMMIT_LOG or not path.is_file():
        return
    head = b"" if codec_of(path.name) else _head_of(path)
    if any(head[4:8] == int(magic).to_bytes(4, signed=True) for magic in MagicCode):
        return
    found = _by_place(path) or _by_content(path.name, head, path.stat().st_size)
    if found is not None:
        raise UnsupportedStoreError(
            f"{path} is no segment of a commit log: it is {found}. Give the root of the store, its {COMMIT_LOG} "
            f"directory, or a segment file"
        )


def _head_of(path: Path) -> bytes:
    file = file_at(path)
    with open_segment(file) as opened:
        return opened.chunk(0, min(file.size, _HEAD)).tobytes()


def _by_place(path: Path) -> str | None:
    """Return the kind of a file by its name and its directories."""
    if path.name in _NAMES:
        return _NAMES[path.name]
    if path.parent.name in _DIRECTORIES:
        return _DIRECTORIES[path.parent.name]
    *_, kind, topic, number = ("", "", "", *path.parent.parts)
    if kind in _QUEUES and number.isascii() and number.isdigit():
        what = f"the {_QUEUES[kind]}" if kind == CONSUME_QUEUE_EXT else f"a {_QUEUES[kind]}"
        return f"{what} of topic {topic!r}, queue {number} (the views consumequeue and topics show queues)"
    return None


def _by_content(name: str, head: bytes, size: int) -> str | None:
    """Return the kind of a file in a place that says nothing, by its first bytes."""
    if _INDEX_NAME.fullmatch(name) and _is_index(head, size):
        return _DIRECTORIES[INDEX_DIRECTORY]
    for what, unit in _UNITS.items():
        dtype = unit_dtype(unit)
        whole = len(head) - len(head) % dtype.itemsize
        if whole and _are_units(np.frombuffer(head[:whole], dtype), unit):
            return f"{what}, by the units that it begins with"
    return None


def _is_index(head: bytes, size: int) -> bool:
    """Return whether a file begins with a header of an index, or with zeros where one will be."""
    dtype = unit_dtype(INDEX_HEADER)
    if size < dtype.itemsize:
        return False
    (header,) = np.frombuffer(head, dtype, 1)
    times = 0 <= header["begin_timestamp"] <= header["end_timestamp"] < _LATEST_MS
    places = 0 <= header["begin_physical_offset"] <= header["end_physical_offset"]
    return bool(times and places and header["hash_slot_count"] >= 0 and header["index_count"] >= 0)


def _are_units(units: npt.NDArray[np.void], unit: Unit) -> bool:
    """Return whether bytes are units that lead to records one after another, and zeros where no unit is yet."""
    sizes, places = units["store_size"].astype(np.int64), units["physical_offset"].astype(np.int64)
    is_used = sizes != 0
    count = int(np.count_nonzero(is_used))
    if not count or not is_used[:count].all() or np.any(places[count:]) or np.any(sizes < 0) or np.any(places < 0):
        return False
    if unit is BATCH_CONSUME_QUEUE_UNIT and np.any(units["batch_size"][:count] < 1):  # as in a damaged segment
        return False
    if unit is TIMER_LOG_UNIT:
        return bool(np.all(units["size"][:count] == unit_dtype(unit).itemsize))
    follows = places[1:count] >= places[: count - 1] + sizes[: count - 1]
    return bool(np.all(follows | (sizes[: count - 1] == np.iinfo(np.int32).max)))
