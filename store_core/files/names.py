# SPDX-License-Identifier: Apache-2.0
"""Names in a store: of its directories and files, of segments, each its start offset, and of what is packed."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING, Final

from store_core.errors import UnsupportedStoreError
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    from pathlib import Path


COMMIT_LOG: Final = "commitlog"
"""Directory of the segments below a store root (RocketMQ: ``storePathCommitLog``)."""

CHECKPOINT_FILE: Final = "checkpoint"
"""File below a store root with up to where log, queues and index were on disk (RocketMQ: ``getStoreCheckpoint``)."""

CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
QUEUE_KINDS: Final = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
"""Directories with queues below a store root."""

INDEX_DIRECTORY: Final = "index"
"""Directory of the key index (RocketMQ: ``StorePathConfigHelper.getStorePathIndex``)."""

CONFIG_DIRECTORY: Final = "config"
"""Directory of the broker's configuration (RocketMQ: ``BrokerPathConfigHelper``)."""

SWAP_JOURNAL: Final = "rebuild-swap.json"
"""File below a store root while a rebuild or a repair swaps directories: which, and where they are."""

TIMER_CHECK_FILE: Final = "timercheck"
"""File in it that says how far timers were delivered."""

SCHEME: Final = "[A-Za-z][A-Za-z0-9+.-]+"
"""What a URL begins with, as a pattern: two characters or more."""

NAME_RULE: Final = "a segment's name is its start offset, in 20 digits or more"
DANGLING: Final = "what it points to is not there: mount that, or copy it here, and run this again"
LAST_OFFSET: Final = 2**63 - 1

_TOO_FAR: Final = "the start offset in its name is larger than that of any segment"
_NAME: Final = re.compile(r"[0-9]{20,}")
CODECS: Final = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4"}
"""The codecs of pyarrow, by the ends of the names of the files that the usual programs make."""

TO_EXPAND: Final = (
    "In a copy of the store, put what it expands to in its place (gunzip, unzstd or unlz4); as it is, only its "
    "messages can be read"
)
"""What to do about a compressed segment where one is needed as RocketMQ writes it."""

_ENDS: Final = {".tar": None, ".tgz": "gzip", **{f".tar{end}": codec for end, codec in CODECS.items()}}
"""How the names of archives end, and the codecs."""

_UNPACKED_BY: Final = {
    ".zip": "unzip {} -d DIRECTORY",
    ".tar.xz": "tar -xJf {} -C DIRECTORY",
    ".txz": "tar -xJf {} -C DIRECTORY",
    ".tar.bz2": "tar -xjf {} -C DIRECTORY",
    ".tbz2": "tar -xjf {} -C DIRECTORY",
    ".7z": "7z x {} -oDIRECTORY",
    ".rar": "unrar x {} DIRECTORY/",
    ".xz": "xz -dk {}",
    ".bz2": "bzip2 -dk {}",
}
"""The usual programs for what is not read as it is, by the ends of names."""


def archive_codec(name: str) -> tuple[str | None] | None:
    """Return the codec of an archive by the end of its name, None for a plain one; None for other files.

    >>> archive_codec("store.tar"), archive_codec("store.tar.zst"), archive_codec("store.zip")
    ((None,), ('zstd',), None)
    """
    return next(((codec,) for end, codec in _ENDS.items() if name.lower().endswith(end)), None)


def is_archive(place: Path) -> bool:
    """Return whether a path is an archive, by its name: beside its log, nothing of the store in it is read."""
    return archive_codec(place.name) is not None and place.is_file()


def archive_error(place: Path) -> UnsupportedStoreError:
    """Return the error for an archive where the files of a store are needed."""
    return UnsupportedStoreError(
        f"{place} is an archive: expected a store's directory, whose files this needs. Nothing was changed. Unpack it, "
        f"and give the directory. As it is, its messages can be read and counted, and explain, bill, producers and "
        f"export accept it"
    )


def packed_error(place: Path) -> UnsupportedStoreError | None:
    """Return the error for a file that some program has to unpack first, by the end of its name; None for others."""
    command = next((command for end, command in _UNPACKED_BY.items() if place.name.lower().endswith(end)), None)
    if command is None:
        return None
    return UnsupportedStoreError(
        f"{place} is packed in a way that is not read: expected a store, or an archive named {', '.join(_ENDS)}. "
        f"Unpack it with `{command.format(quote(place.name))}`, and give the store that comes out"
    )


def codec_of(name: str) -> tuple[str, str] | None:
    """Return the name of the segment that a compressed file holds, and its codec; None for other files."""
    stem, dot, end = name.rpartition(".")
    codec = CODECS.get((dot + end).lower())
    return None if codec is None else (stem, codec)


def is_compressed_segment(name: str) -> bool:
    """Return whether a file is a segment that was compressed as a whole, by its name."""
    found = codec_of(name)
    return found is not None and start_offset_of(found[0]) is not None


def compressed_error(path: str, *, more: int = 0) -> UnsupportedStoreError:
    """Return the error for a compressed segment where segments are needed as RocketMQ writes them."""
    others = f", and so {agreeing(more, 'is', 'are')} {counted(more, 'more segment')}" if more else ""
    return UnsupportedStoreError(
        f"{path} is compressed{others}: expected segments as RocketMQ writes them. Nothing was changed. {TO_EXPAND}"
    )


def start_offset_of(name: str) -> int | None:
    """Return the offset that a name stands for; None if it is not a segment's."""
    if not _NAME.fullmatch(name):
        return None
    offset = int(name) if len(name.lstrip("0")) <= len(str(LAST_OFFSET)) else LAST_OFFSET
    return offset if offset < LAST_OFFSET else None


def why_no_segment(name: str) -> str:
    """Return why a file is not a segment, by its name; a clause."""
    return _TOO_FAR if _NAME.fullmatch(name) and start_offset_of(name) is None else NAME_RULE


def advice_on_name(name: str) -> str:
    """Return a warning for names that RocketMQ still takes for start offsets (``MappedFile``: ``Long.parseLong``)."""
    is_short = re.fullmatch("[0-9]{1,19}", name) is not None
    return f" RocketMQ would load it: if it is a segment, rename it to {int(name):020d}." if is_short else ""


def twin_note(zeros: object, data: object) -> str:
    """Return what is said of a file of zeros whose twin in another directory has the data."""
    return (
        f"{zeros} is all zeros, and {data} of the same offset has the data, which is read. RocketMQ loads both: "
        f"move the file of zeros elsewhere"
    )
