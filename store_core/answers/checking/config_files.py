# SPDX-License-Identifier: Apache-2.0
"""Checks that a broker can read its configuration files, and what they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.errors import CorruptRecordError
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.snapshot.config import CONFIG_KINDS, CONSUMER_OFFSETS, DELAY_OFFSETS, TOPICS, Config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from store_core.format.releases.release import Release
    from store_core.snapshot.config import ConfigFile

__all__ = ["ConfigFiles"]


class KeptOffset(NamedTuple):
    """Where a consumer, or a delay level, goes on in a queue: a queue offset, in a file."""

    file: str
    who: str
    topic: str
    queue_id: int
    offset: int


class ConfigFiles:
    """Reads the configuration files of a store's broker.

    Attributes
    ----------
    findings : list of Finding
    notes : list of str
        Which backups would be used.
    topics : set of str
        Topics that ``topics.json`` knows.
    offsets : list of KeptOffset
        Where consumers, and delay levels, go on.
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

        Parameters
        ----------
        ends : mapping
            Topic and id of each queue -> the queue offset after its last message.
        is_open : bool
            Whether the store was not closed: a crash may have taken the last messages, so offsets after the end are
            none.
        """
        for kept in self.offsets:
            end = ends.get((kept.topic, kept.queue_id))
            is_after = end is not None and kept.offset > end and not is_open
            if kept.offset < 0 or is_after:
                expected = "an offset of 0 or more" if end is None else f"an offset from 0 to {end}"
                place = kept.topic, kept.queue_id, kept.offset
                found = f"{kept.offset}, of {kept.who}"
                yield Finding(FindingKind.CONFIG_OFFSET, kept.file, *place, expected=expected, found=found)
