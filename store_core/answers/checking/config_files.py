# SPDX-License-Identifier: Apache-2.0
"""Whether a broker can read its configuration files, what they know, and whether its checkpoint can be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_parts import CHECKPOINT_FILE
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.times import iso_time
from store_core.snapshot.config import CONFIG_KINDS, CONSUMER_OFFSETS, DELAY_OFFSETS, TOPICS, Config, checkpoint_fields
from store_core.store.store_state import LOG_OFFSETS, LOG_TIMES, RECOVERY_MARGIN_MS, StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from store_core.format.releases.release import Release
    from store_core.snapshot.config import ConfigFile

__all__ = ["ConfigFiles", "LogReach", "WrongValue", "checkpoint_findings", "wrong_values"]


class KeptOffset(NamedTuple):
    """Where a consumer, or a delay level, goes on in a queue: a queue offset, in a file."""

    file: str
    who: str
    topic: str
    queue_id: int
    offset: int


class ConfigFiles:
    """Reads the configuration files of a store's broker.

    * `notes`: Which backups would be used.
    * `topics`: Topics that ``topics.json`` knows.
    * `offsets`: Where consumers, and delay levels, go on.
    """

    def __init__(self, store: Path, release: Release) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.topics: set[str] = set()
        self.offsets: list[KeptOffset] = []
        config = Config(store, release)
        for kind in CONFIG_KINDS:
            try:
                found = config.read(kind)
            except CorruptRecordError as error:
                expected = "JSON as a broker writes it"
                place = str(config.path(kind))
                finding = Finding(FindingKind.CONFIG_UNREADABLE, place, expected=expected, found=str(error))
                self.findings.append(finding)
                continue
            self.notes += () if found is None else found.notes
            self._see(store, kind.name, found)

    def _see(self, store: Path, name: str, found: ConfigFile[Any] | None) -> None:
        if found is None:
            return
        file = str(store / found.file)
        if name == TOPICS.name:
            self.topics |= set(found.value)
        elif name == CONSUMER_OFFSETS.name:
            for (topic, group), offsets in found.value.by_group.items():
                for queue_id, offset in offsets.items():
                    self.offsets.append(KeptOffset(file, f"group {group}", topic, queue_id, offset))
        elif name == DELAY_OFFSETS.name:
            for level, offset in found.value.items():
                self.offsets.append(KeptOffset(file, f"delay level {level}", SCHEDULE_TOPIC, level - 1, offset))

    def impossible(self, ends: Mapping[tuple[str, int], int], *, is_open: bool) -> Iterator[Finding]:
        """Yield the offsets that a queue can't have: negative ones, and those after its end.

        * `ends`: Topic and id of each queue -> the queue offset after its last message.
        * `is_open`: Whether the store was not closed: a crash may have taken the last messages, so offsets after the
          end are none.
        """
        for kept in self.offsets:
            end = ends.get((kept.topic, kept.queue_id))
            is_after = end is not None and kept.offset > end and not is_open
            if kept.offset < 0 or is_after:
                expected = "an offset of 0 or more" if end is None else f"an offset from 0 to {end}"
                place = kept.topic, kept.queue_id, kept.offset
                found = f"{kept.offset}, of {kept.who}"
                yield Finding(FindingKind.CONFIG_OFFSET, kept.file, *place, expected=expected, found=found)


_LEAST_BYTES: Final = 8 * len(LOG_TIMES)
_LOST_MS: Final = 24 * 3600 * 1000
"""How much of a log a crash may have taken: times that are later than its last record by more were never right."""


@dataclass(frozen=True, slots=True)
class LogReach:
    """How far a log reaches."""

    last_timestamp: int  # store time of its last record, ms
    end_offset: int  # physical offset one past that record


class WrongValue(NamedTuple):
    """A value that can't be right: the name of its field, and what is expected there."""

    name: str
    value: int
    expected: str


def wrong_values(
    checkpoint: StoreCheckpoint, release: Release, reach: LogReach | None, margin_ms: int = 0
) -> Iterator[WrongValue]:
    """Yield the values of a checkpoint that can't be right.

    * `release`: Which fields there are.
    * `reach`: Of the log, if its end is known to be there: nothing can be later.
    * `margin_ms`: By how much a time may be later all the same.
    """
    for name in LOG_TIMES:
        time = getattr(checkpoint, name)
        if time < 0 or (reach is not None and time > reach.last_timestamp + margin_ms):
            bound = "0 or more" if reach is None else f"0 to {iso_time(reach.last_timestamp)}, of the last record"
            yield WrongValue(name, time, f"a time of {bound}")
    known = {field.name for field in checkpoint_fields(release)}
    for name in LOG_OFFSETS:
        offset = getattr(checkpoint, name)
        if name in known and reach is not None and offset > reach.end_offset:
            yield WrongValue(name, offset, f"an offset up to {reach.end_offset}, the log's end")


def checkpoint_findings(store: Path, release: Release, reach: LogReach | None, *, is_open: bool) -> Iterator[Finding]:
    """Yield what can't be right in a checkpoint: one finding at most.

    * `store`: The store's root.
    * `release`: Which fields there are.
    * `reach`: Of the log, if its end is known to be there. A later time or offset lets a recovery start after records
      that no queue has.
    * `is_open`: Whether the store was not closed: then a crash may have taken the log's end.
    """
    path = store / CHECKPOINT_FILE
    if not path.is_file():
        return
    size = path.stat().st_size
    if size < _LEAST_BYTES:
        expected, found = f"{_LEAST_BYTES} bytes or more", f"{size} bytes"
        yield Finding(FindingKind.CHECKPOINT, str(path), expected=expected, found=found)
        return
    checkpoint = StoreCheckpoint(store, OsFileSystem(), release).load()
    margin = _LOST_MS if is_open else RECOVERY_MARGIN_MS
    for wrong in wrong_values(checkpoint, release, reach, margin):
        if not (is_open and wrong.name in LOG_OFFSETS):
            found = f"{wrong.value} as {wrong.name}"
            yield Finding(FindingKind.CHECKPOINT, str(path), expected=wrong.expected, found=found)
            return
