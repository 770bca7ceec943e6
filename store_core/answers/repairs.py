# SPDX-License-Identifier: Apache-2.0
"""The steps of a repair, derived from a check: the least that makes queues and index right."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.answers.findings import FindingKind, Tally
from store_core.answers.log_findings import LogReach, wrong_values
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.names import INDEX_DIRECTORY
from store_core.snapshot.config import read_checkpoint
from store_core.store.rebuild.index_files import KeptIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.answers.checked_store import CheckedStore


_BEHIND: Final = "behind the log"
"""Why a queue is rebuilt that only lags, as after a crash: see `Repairs.of`."""


class Remedy(StrEnum):
    """What is done with a queue."""

    REBUILD = "rebuild"
    """It is made again from the log."""

    CUT = "cut"
    """Units of deleted records stay, so that offsets go on after them; the others are taken away."""

    REMOVE = "remove"
    """Its directories are moved away: the log has no record of it."""


class QueueRepair(NamedTuple):
    """What is done with a queue, and why: the kinds of findings."""

    topic: str
    queue_id: int
    action: Remedy
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexRepair:
    """What is done with the index: files from the first wrong one on are made again from the log.

    How many records an index file covers follows from the one before it, so that one alone can't be replaced.

    * `kept`, `replaced`: Names of its files.
    """

    kept: tuple[str, ...]
    replaced: tuple[str, ...]
    end_physical_offset: int  # offset of the record at which the kept files end; 0 if none is kept
    why: dict[str, tuple[str, ...]]
    """Kinds of findings by name of a file; by an empty name those that are about no certain file."""


@dataclass(frozen=True, slots=True)
class Repairs:
    """What a repair does."""

    queues: tuple[QueueRepair, ...]  # by topic and id
    index: IndexRepair | None
    checkpoint: tuple[str, ...]
    """Names of the times that are negative, or later than the log's last record, and of offsets after its end, so that
    a recovery could begin too late; ``size`` if the file is only too short."""

    @classmethod
    def of(cls, checked: CheckedStore) -> Repairs:
        """Derive what has to be done.

        In a store that was not closed, units may be missing at the log's end, and a restart adds them: it goes on where
        the last queue ends. When a queue is rebuilt up to the log's end, those that lag are therefore rebuilt with it.
        """
        queues = tuple(_queues(checked))
        if any(each.action is Remedy.REBUILD for each in queues):
            named = {(each.topic, each.queue_id) for each in queues}
            lagging = ((each.topic, each.queue_id) for each in checked.compared.judged if each.missing_from >= 0)
            behind = [QueueRepair(*queue, Remedy.REBUILD, (_BEHIND,)) for queue in lagging if queue not in named]
            queues = tuple(sorted([*queues, *behind]))
        return cls(queues, _index(checked), tuple(_wrong_in_checkpoint(checked)))

    def __bool__(self) -> bool:
        return bool(self.queues or self.index or self.checkpoint)


def _queues(checked: CheckedStore) -> Iterable[QueueRepair]:
    why: dict[tuple[str, int], list[str]] = {}
    for place in checked.tally.places:
        if place.kind.is_of_queues and place.topic is not None and place.queue_id is not None:
            why.setdefault((place.topic, place.queue_id), []).append(place.kind.value)
    logged = {(queue.topic, queue.queue_id) for queue in checked.compared.queues}
    for queue, kinds in sorted(why.items()):
        is_readable = FindingKind.QUEUE_UNREADABLE not in kinds
        without_records = Remedy.CUT if checked.plan.min_offset and is_readable else Remedy.REMOVE
        yield QueueRepair(*queue, Remedy.REBUILD if queue in logged else without_records, tuple(sorted(kinds)))


# ---- the index


def _index(checked: CheckedStore) -> IndexRepair | None:
    places = {place: begin for place, begin in checked.tally.places.items() if place.kind.is_of_index}
    if not places:
        return None
    directory = checked.plan.store / INDEX_DIRECTORY
    names = names_in(directory, OsFileSystem())
    why: dict[str, list[str]] = {}
    for place in places:
        name = Path(place.where).name
        why.setdefault(name if name in names else "", []).append(place.kind.value)
    rules = checked.plan.rules.queue_rules
    last_offset = _sound_end(checked, checked.tally)
    kept = KeptIndex.find(checked.plan.store, rules, last_offset, OsFileSystem())
    kept_names = tuple(path.name for path in kept.paths)
    replaced = tuple(name for name in names if name not in kept_names)
    found = {name: tuple(sorted(set(kinds))) for name, kinds in why.items()}
    return IndexRepair(kept_names, replaced, kept.end_physical_offset, found)


def _sound_end(checked: CheckedStore, tally: Tally) -> int:
    """Return an offset up to which the index is right; 0 if there is none.

    An entry that is missing, extra or wrong says which records are concerned; any other finding is about a whole file,
    and then what is right ends with the file before it.
    """
    wrong: list[int] = []
    by_entry = (
        FindingKind.INDEX_MISSING,
        FindingKind.INDEX_EXTRA,
        FindingKind.INDEX_WRONG_HASH,
        FindingKind.INDEX_WRONG_PLACE,
    )
    paths = {place.where for place in tally.places if place.kind.is_of_index and place.kind not in by_entry}
    before = 0
    for file in checked.index:
        if str(file.path) in paths:
            wrong.append(min(before, file.header.end_physical_offset - 1))
            break
        before = max(before, file.header.end_physical_offset)
    unloaded = paths - {str(file.path) for file in checked.index}
    wrong += [_end_before(path, checked) for path in unloaded]
    wrong += [begin - 1 for place, begin in tally.places.items() if place.kind in by_entry and begin is not None]
    return max(min(wrong, default=0), 0)


def _end_before(path: str, checked: CheckedStore) -> int:
    """Return where the index ends before a file that the release does not load."""
    ends = (file.header.end_physical_offset for file in checked.index if file.path.name < Path(path).name)
    return max(ends, default=0)


# ---- the checkpoint


def _wrong_in_checkpoint(checked: CheckedStore) -> Iterable[str]:
    """Yield the names of the checkpoint's values that can't be right; ``size`` if that is all that is wrong."""
    store, release = checked.plan.store, checked.plan.rules.queue_rules.release
    checkpoint = read_checkpoint(store) or {}
    is_found = any(place.kind is FindingKind.CHECKPOINT for place in checked.tally.places)
    last, end = checked.compared.last_store_timestamp, checked.compared.end_offset
    reach = LogReach(last, end) if last or is_found else None
    names = [wrong.name for wrong in wrong_values(checkpoint, release, reach)]
    return names or ["size"] * is_found
