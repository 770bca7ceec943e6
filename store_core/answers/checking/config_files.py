# SPDX-License-Identifier: Apache-2.0
"""Checks that a broker can read its configuration files, and what they know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.broker.config_file import CONFIG_DIRECTORY, read_config
from store_core.errors import CorruptRecordError

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.broker.config_json import JsonObject
    from store_core.files.file_system import FileSystem

__all__ = ["ConfigFiles"]

_NAMES: Final = (
    "topics.json",
    "consumerOffset.json",
    "subscriptionGroup.json",
    "delayOffset.json",
    "consumerFilter.json",
)
_TOPICS: Final = "topics.json"


class ConfigFiles:
    """Reads the configuration files of a store's broker.

    Attributes
    ----------
    findings : list of Finding
    notes : list of str
        Which backups would be used.
    topics : set of str
        Topics that ``topics.json`` knows.
    """

    def __init__(self, store: Path, file_system: FileSystem) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.topics: set[str] = set()
        for name in _NAMES:
            path = store / CONFIG_DIRECTORY / name
            decode = self._see_topics if name == _TOPICS else _see_nothing
            try:
                self.notes += read_config(path, decode, file_system).notes
            except CorruptRecordError as error:
                expected = "JSON as a broker writes it"
                found = Finding(FindingKind.CONFIG_UNREADABLE, str(path), expected=expected, found=str(error))
                self.findings.append(found)

    def _see_topics(self, value: JsonObject, file: str) -> None:
        del file
        table = value.get("topicConfigTable")
        self.topics |= set(table) if isinstance(table, dict) else set()


def _see_nothing(value: JsonObject, file: str) -> None:
    """Take any JSON object: what is in it is for the readers of that file."""
    del value, file
