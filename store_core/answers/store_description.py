# SPDX-License-Identifier: Apache-2.0
"""The description of a store for the answer `info`: what is read of it, with a note where that fails."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from store_core.broker.topic_kind import kind_of_topic
from store_core.errors import StoreError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.names import CHECKPOINT_FILE, CONFIG_DIRECTORY
from store_core.files.store_lock import ABORT_FILE
from store_core.files.url_path import UrlPath
from store_core.format.columnar.chain import Place
from store_core.format.times import iso_time
from store_core.queue.queue_path import is_light
from store_core.snapshot.config import CONSUMER_OFFSETS, LIGHT_OFFSETS, TOPICS
from store_core.snapshot.index import KeyFile
from store_core.snapshot.log_end import find_end
from store_core.snapshot.queues import Queues
from store_core.snapshot.store import Store, StoreKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.snapshot.log import Log
    from store_core.snapshot.units import QueueBounds


_FILES: Final = OsFileSystem()
_MOST_QUEUES: Final = 1000
"""Queues whose ends are read: some 0.1 ms each, on a disk of this machine."""

_MOST_FAR_QUEUES: Final = 32
"""The same in another storage, where each takes a request or more."""

_MOST_INDEX_FILES: Final = 100
MADE: Final = {"consume queues": "queues", "the key index": "index"}
"""What `commitlog rebuild` makes -> what it calls that."""

_LAST_FLUSHED: Final = "physic_msg_timestamp"
_KINDS: Final = {
    StoreKind.SEVERAL_DIRECTORIES: "log in several directories, or outside of the root",
    StoreKind.DLEDGER: "DLedger log",
    StoreKind.ROCKSDB: "queues in a RocksDB",
    StoreKind.PARTS: "copy of a part",
    StoreKind.ARCHIVE: "archive",
}


@dataclass
class Description:
    """Reads what a description of a store needs. A file that can't be read is a note, and no error."""

    store: Store
    log: Log = field(init=False)
    root: Path | None = None
    notes: list[str] = field(default_factory=list)
    bounds: dict[tuple[str, int], QueueBounds] = field(default_factory=dict)  # of the queues that were looked at
    queue_count: int = 0  # of all queues
    uncounted: Counter[str] = field(default_factory=Counter)
    """Topic -> its queues that were not looked at, as there are too many."""
    topics: list[dict[str, Any]] = field(default_factory=list)  # a row for each
    groups: list[dict[str, Any]] = field(default_factory=list)
    furthest: tuple[int, int] | None = None  # physical offset and size of the last record that a queue leads to

    def __post_init__(self) -> None:
        self.log = self.store.log
        self.notes += map(str, self.log.problems)
        self.notes += (f"bytes from {begin} to {end} of the log are missing" for begin, end in self.log.missing)
        with self._noted():
            self.notes += self.store.notes
        with self._noted():
            self.root = self.store.root

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Make a note of an error."""
        try:
            yield
        except (StoreError, OSError) as error:
            self.notes.append(str(error))

    def facts(self) -> dict[str, Any]:
        """Return the facts of the report; `topics` and `groups` are known then."""
        with self._noted():
            self._look_at_queues()
        entries, index_files = self._index()
        self.topics, self.groups = self._topics(), self._groups()
        end, last_time = self._end()
        return {
            "store": str(self.root or self.store.paths),
            "kinds": self._kinds(),
            "state": self._state(),
            "log_begin": self.log.begin,
            "log_end": end,
            "first_time": self._time_at(self.log.begin) if self.log.segments else None,
            "last_time": last_time,
            "segments": len(self.log.segments),
            "segment_size": self.log.usual_size,
            "file_bytes": sum(segment.size for segment in self.log.segments),
            "messages": self._messages(),
            "queues": self.queue_count,
            "counted_queues": self.queue_count - self.uncounted.total(),
            "topics": len(self.topics),
            "groups": len(self.groups),
            "index_files": index_files,
            "index_entries": entries,
            "missing": self._missing(index_files),
            "notes": tuple(dict.fromkeys(self.notes)),
            **self._release(),
        }

    # ---- what it is

    def _kinds(self) -> tuple[str, ...]:
        with self._noted():
            kind = self.store.kind
            return tuple(words for each, words in _KINDS.items() if each in kind) or ("ordinary",)
        return ("unknown",)

    def _release(self) -> dict[str, Any]:
        if self.root is None or isinstance(self.root, UrlPath):
            why = (
                "only the files of a store on this machine tell it" if self.root is not None else "only a root tells it"
            )
            return {"release": None, "release_why": why}
        told = self.store.release
        return {"release": told.releases[0], "release_why": told.why}

    def _state(self) -> str:
        if self.store.is_live:
            return "open"
        names = self._names()
        if ABORT_FILE in names:
            return "crashed"
        return "closed" if CHECKPOINT_FILE in names else "unknown"

    def _names(self) -> set[str]:
        if self.root is None:
            return set()
        with self._noted():
            return set(names_in(self.root, _FILES))
        return set()

    def _missing(self, index_files: int) -> tuple[str, ...]:
        """Return what there is not beside the log, or no log."""
        if self.root is None:
            return ()
        configured = set(names_in(self.root / CONFIG_DIRECTORY, _FILES)) if CONFIG_DIRECTORY in self._names() else set()
        parts = {
            "the log": bool(self.log.segments),
            **dict(zip(MADE, (bool(self.queue_count), bool(index_files)), strict=True)),
            CHECKPOINT_FILE: CHECKPOINT_FILE in self._names(),
            f"{CONFIG_DIRECTORY}/{TOPICS.name}": TOPICS.name in configured,
            f"{CONFIG_DIRECTORY}/{CONSUMER_OFFSETS.name}": bool(
                {CONSUMER_OFFSETS.name, LIGHT_OFFSETS.name} & configured
            ),
        }
        return tuple(part for part, is_there in parts.items() if not is_there)

    # ---- its queues, topics and groups

    def _look_at_queues(self) -> None:
        if self.root is None:
            return
        most = _MOST_FAR_QUEUES if isinstance(self.root, UrlPath) else _MOST_QUEUES
        with Queues(self.root) as queues:
            found = queues.each()
            for queue in islice(found, most):
                self.queue_count += 1
                with self._noted():
                    bounds = queue.bounds(self.log.begin)
                    if self.store.end is not None:
                        bounds = queues.before(*queue.name, bounds, self.store.end) or bounds
                    self.bounds[queue.name] = bounds
                    self.furthest = max(filter(None, (self.furthest, bounds.last)), default=None)
            for queue in found:
                self.queue_count += 1
                self.uncounted[queue.name[0]] += 1
            self.notes += queues.notes

    def _messages(self) -> int | None:
        own = [bounds for (topic, _), bounds in self.bounds.items() if not is_light(topic)]
        return sum(each.max_offset - each.min_offset for each in own) if own else None

    def _topics(self) -> list[dict[str, Any]]:
        """Return a row for each topic that has queues that were looked at, or is configured."""
        queues = Counter(topic for topic, _ in self.bounds) + self.uncounted
        counts: Counter[str] = Counter()
        for (topic, _), bounds in self.bounds.items():
            counts[topic] += bounds.max_offset - bounds.min_offset
        configured: Sequence[str] = ()
        if self.root is not None:
            known, notes = self.store.config.known(TOPICS, "which topics the broker has")
            configured = tuple(known or ())
            self.notes += notes
        return [
            {
                "topic": topic,
                "kind": kind_of_topic(topic).name.lower(),
                "queues": queues[topic],
                "messages": counts.get(topic),
            }
            for topic in dict.fromkeys((*queues, *configured))
        ]

    def _groups(self) -> list[dict[str, Any]]:
        if self.root is None:
            return []
        found: dict[str, dict[str, Any]] = {}
        for kind in (CONSUMER_OFFSETS, LIGHT_OFFSETS):
            offsets, notes = self.store.config.known(kind, "what groups have consumed")
            self.notes += notes
            for each in (*offsets.committed, *offsets.light) if offsets is not None else ():
                row = found.setdefault(each.group, {"group": each.group, "topics": set(), "behind": None})
                row["topics"].add(each.topic)
                bounds = self.bounds.get((each.topic, each.queue_id))
                if bounds is not None:
                    row["behind"] = (row["behind"] or 0) + max(
                        bounds.max_offset - max(each.offset, bounds.min_offset), 0
                    )
        return [row | {"topics": len(row["topics"])} for row in found.values()]

    def _index(self) -> tuple[int | None, int]:
        """Return how many entries the heads of index files count, and how many files there are."""
        if self.root is None:
            return None, 0
        with self._noted():
            paths = self.store.index.paths
            if len(paths) > _MOST_INDEX_FILES or (isinstance(self.root, UrlPath) and len(paths) > 1):
                return None, len(paths)
            if self.store.end is not None:  # a broker goes on filling the last one
                counts = [file.stop - 1 for file in self.store.index.files(trusts_size=True) if file.stop > 1]
                return sum(counts), len(counts)
            return sum(max(KeyFile(path).header.index_count - 1, 0) for path in paths), len(paths)
        return None, 0

    # ---- its log

    def _end(self) -> tuple[int | None, str | None]:
        """Return where the log ends, and the store time of its last record; None if only reading more would tell."""
        if self.store.end is not None:
            last = self.store.last_store_time
            return self.store.end, None if last is None else iso_time(last)
        queued = self._queued_end()
        segments = self.log.segments
        end = queued
        if segments and segments[-1].is_plain:
            with self._noted():
                end = find_end(segments, verify_crc=False, place_in=partial(_place, queued)).end_offset
        if self.furthest is not None and queued is not None and end in (None, queued):
            return end, self._time_at(self.furthest[0])
        return end, self._newest_time()

    def _queued_end(self) -> int | None:
        """Return the physical offset at which a queue's last record ends; None without that record."""
        if self.furthest is None:
            return None
        offset, size = self.furthest
        with self._noted():
            record = self.log.record_at(offset)
            return offset + size if record is not None and record.size == size else None
        return None

    def _time_at(self, offset: int) -> str | None:
        with self._noted():
            time = self.log.time_at(offset)
            return None if time is None else iso_time(time)
        return None

    def _newest_time(self) -> str | None:
        """Return the newest store time that the checkpoint, or a record that a queue leads to, has."""
        if self.root is None:
            return None
        with self._noted():
            time = (self.store.checkpoint or {}).get(_LAST_FLUSHED, 0)
            return iso_time(time) if time > 0 else None
        return None


def _place(end: int | None, segment: Segment) -> Place:
    """Return from where on the end is looked for in a segment: from a record on that is known to be there."""
    is_in = end is not None and segment.start_offset < end <= segment.end_offset
    return Place(end - segment.start_offset) if end is not None and is_in else Place()
