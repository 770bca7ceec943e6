# SPDX-License-Identifier: Apache-2.0
"""Which release served a store last, told from what releases leave in different ways; no file names it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.errors import StoreError
from store_core.files.abort_file import ABORT_FILE
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.files.store_path import list_segments
from store_core.format.java import hash_code, positive_hash
from store_core.format.properties import TAGS, decode_text, parse_properties
from store_core.format.releases.release import RELEASE_RULES, RELEASES
from store_core.queue.dispatch.dispatch_request import INDEX_TAG_PREFIX
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.store.config.index_listing import ListedIndexFile, index_paths
from store_core.store.read.record_times import RecordTimes
from store_core.store.read.release_evidence import evidence_of_old_parser
from store_core.store.state.store_checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.format.releases.release import Release

__all__ = ["ToldRelease"]

_FILES: Final = OsFileSystem()
_NEWEST: Final[Release] = RELEASES[-1]
_USUAL: Final = (5_000_000, 20_000_000)
_LAST_ENTRIES: Final = 4096
_RECORDS: Final = 8
"""How many of the last records with tags are looked at."""

_SINCE_5_0: Final[tuple[str, ...]] = ("abort.bak", "compaction", "timerwheel", "batchconsumequeue")
_SINCE_5_4: Final = "rocksdbstore"


class _Evidence(NamedTuple):
    """What a release leaves that has, or has not, a feature: the feature's name, and the words."""

    feature: str
    has: bool
    words: str


@dataclass(frozen=True, slots=True)
class ToldRelease:
    """The releases that may have served a store last, newest first.

    Attributes
    ----------
    releases : tuple of str
    why : str
        What shows it.
    """

    releases: tuple[Release, ...]
    why: str

    @classmethod
    def of(cls, store: Path) -> Self:
        """Look at a store's files; what can't be read is no evidence.

        Evidence of a later writer comes first. What contradicts it is of an earlier one, and does not count.
        """
        releases: tuple[Release, ...] = tuple(reversed(RELEASES))
        words: list[str] = []
        for evidence in _evidence(store):
            fitting = tuple(each for each in releases if _has(each, evidence.feature) is evidence.has)
            if fitting and fitting != releases:
                releases = fitting
                words.append(evidence.words)
        if not words:
            return cls(releases, "no file tells the release, and this is the newest one")
        left = ["of the releases that are left this is the newest one"] * (len(releases) > 1)
        return cls(releases, "; ".join([*words, *left]))


def _has(release: Release, feature: str) -> bool:
    return bool(getattr(RELEASE_RULES[release], feature))


def _evidence(store: Path) -> Iterator[_Evidence]:
    segments: Sequence[Segment] = ()
    with suppress(OSError, StoreError):
        segments = list_segments(store).segments
    names = set(names_in(store, _FILES))
    with suppress(OSError, StoreError, ValueError):
        yield from _of_tags(store, segments)
    with suppress(OSError, StoreError):
        if StoreCheckpoint(store, _FILES, _NEWEST).load().logics_physical_offset:
            yield _Evidence(
                "keeps_flushed_queue_offset", has=True, words="its checkpoint says up to where queues are flushed"
            )
    if _SINCE_5_4 in names:
        yield _Evidence("indexes_tags", has=True, words=f"it has {_SINCE_5_4}/, which brokers make since 5.4")
    found = [name for name in _SINCE_5_0 if name in names]
    abort = _FILES.status(store / ABORT_FILE)
    if abort is not None and abort.size:
        found.append(f"a process id in {ABORT_FILE}")
    if found:
        yield _Evidence(
            "notes_process_in_abort_file", has=True, words=f"it has {found[0]}, which brokers leave since 5.0"
        )
    elif "lock" in names:
        yield _Evidence(
            "notes_process_in_abort_file",
            has=False,
            words="it has nothing of what brokers leave since 5.0, such as abort.bak",
        )
    old = evidence_of_old_parser(segments)
    if old is not None:
        yield _Evidence("splits_properties_at_first_separator", has=False, words=old)
    with suppress(OSError, StoreError, ValueError):
        if any(file.header.hash_slot_count < file.header.index_count - 1 for file in _last_file(store)):
            yield _Evidence(
                "counts_hash_slots_in_use", has=True, words="its index counts slots, and not entries, as since 4.7.1"
            )


def _last_file(store: Path) -> Iterator[ListedIndexFile]:
    """Yield the newest index file that has entries, if it can be read."""
    paths = index_paths(store / INDEX_DIRECTORY)
    for path in reversed(paths):
        file = ListedIndexFile.read(path, _USUAL, is_full=path != paths[-1])
        if not file.is_empty:
            if file.is_sound:
                yield file
            return


def _of_tags(store: Path, segments: Sequence[Segment]) -> Iterator[_Evidence]:
    """Yield whether the last records with tags have entries for them; nothing if only some have."""
    for file in _last_file(store):
        count = file.header.index_count
        first = max(1, count - _LAST_ENTRIES)
        stored = _FILES.open(file.path, writable=False).read(
            (count - first) * INDEX_DTYPE.itemsize, file.position(first)
        )
        entries = np.frombuffer(stored, INDEX_DTYPE)
        log = RecordTimes(segments)
        found: list[bool] = []
        for offset in np.unique(entries["physical_offset"].astype(np.int64))[::-1].tolist():
            record = log.record_at(offset)
            tags = None if record is None else parse_properties(decode_text(record.properties)).get(TAGS)
            if record is not None and tags:
                hashed = positive_hash(hash_code(f"{record.topic}#{INDEX_TAG_PREFIX}{tags}"))
                found.append(bool(np.any(entries["key_hash"][entries["physical_offset"] == offset] == hashed)))
            if len(found) == _RECORDS:
                break
        if found and found[0]:
            yield _Evidence("indexes_tags", has=True, words="its index has the tags of messages, as since 5.4")
        elif found and not any(found):
            yield _Evidence(
                "indexes_tags", has=False, words="its index does not have the tags of messages, as before 5.4"
            )
