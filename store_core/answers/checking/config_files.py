# SPDX-License-Identifier: Apache-2.0
"""Checks that a broker can read its configuration files, and what they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.broker.config_fields import ConfigFields
from store_core.broker.config_file import read_config
from store_core.broker.consumer_offset import TOPIC_GROUP_SEPARATOR
from store_core.errors import CorruptRecordError
from store_core.files.config_paths import (
    CONFIG_DIRECTORY,
    CONSUMER_FILTER_FILE,
    CONSUMER_OFFSET_FILE,
    DELAY_OFFSET_FILE,
    LMQ_CONSUMER_OFFSET_FILE,
    REQUEST_MODE_FILE,
    SUBSCRIPTION_GROUP_FILE,
    TOPICS_FILE,
)
from store_core.format.record.delayed import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from store_core.broker.config_json import JsonObject
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["ConfigFiles"]

_NAMES: Final = (
    TOPICS_FILE,
    CONSUMER_OFFSET_FILE,
    SUBSCRIPTION_GROUP_FILE,
    DELAY_OFFSET_FILE,
    CONSUMER_FILTER_FILE,
    LMQ_CONSUMER_OFFSET_FILE,
    REQUEST_MODE_FILE,
)


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

    def __init__(self, store: Path, file_system: FileSystem, release: Release) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.topics: set[str] = set()
        self.offsets: list[KeptOffset] = []
        decoders = {
            TOPICS_FILE: self._see_topics,
            CONSUMER_OFFSET_FILE: self._see_consumers,
            DELAY_OFFSET_FILE: self._see_delays,
        }
        for name in _NAMES:
            path = store / CONFIG_DIRECTORY / name
            try:
                self.notes += read_config(path, decoders.get(name, _see_nothing), file_system, release=release).notes
            except CorruptRecordError as error:
                expected = "JSON as a broker writes it"
                found = Finding(FindingKind.CONFIG_UNREADABLE, str(path), expected=expected, found=str(error))
                self.findings.append(found)

    def _see_topics(self, value: JsonObject, file: str) -> None:
        del file
        table = value.get("topicConfigTable")
        self.topics |= set(table) if isinstance(table, dict) else set()

    def _see_consumers(self, value: JsonObject, file: str) -> None:
        for key, queues in ConfigFields(value, file).object("offsetTable").objects():
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            for queue_id, offset in queues.offsets().items():
                self.offsets.append(KeptOffset(file, f"group {group}", topic, queue_id, offset))

    def _see_delays(self, value: JsonObject, file: str) -> None:
        for level, offset in ConfigFields(value, file).table("offsetTable").offsets().items():
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


def _see_nothing(value: JsonObject, file: str) -> None:
    """Take any JSON object: what is in it is for the readers of that file."""
    del value, file
