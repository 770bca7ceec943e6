# SPDX-License-Identifier: Apache-2.0
"""The broker's configuration files of a store: read as a broker reads them, each from the file or its backup."""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

import numpy as np

from store_core.errors import CorruptRecordError, StoreAccessError, UnsafeSizeError
from store_core.files.access import explained_access, kind_of_file
from store_core.files.archive_listing import is_archive
from store_core.files.config_paths import CONFIG_DIRECTORY, TIMER_CHECK_FILE
from store_core.files.file_system import OsFileSystem
from store_core.format.releases.release import DEFAULT_RELEASE, named_rules, rules_of
from store_core.snapshot.config_json import ConfigFields, parse_config
from store_core.snapshot.config_tables import ConsumerOffsets, DataVersion, SubscriptionGroupConfig, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release
    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.snapshot.config_json import JsonObject

__all__ = [
    "CONFIG_KINDS",
    "CONSUMER_FILTERS",
    "CONSUMER_OFFSETS",
    "DELAY_OFFSETS",
    "LIGHT_OFFSETS",
    "REQUEST_MODES",
    "SUBSCRIPTION_GROUPS",
    "TOPICS",
    "Config",
    "ConfigFile",
    "ConfigKind",
    "TimerCheck",
    "backup_of",
    "bytes_of",
    "check_is_file",
    "configured_batch_topics",
    "read_config",
]

_log: Final = logging.getLogger("store_core")

_LARGEST: Final = 256 << 20
"""Maximum bytes of a file; those of large brokers have some ten million bytes."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# ---- a file and its backup


class ReadConfig(NamedTuple):
    """Which file was read, None if it and its backup are missing or empty; the notes say why it was the backup."""

    source: Path | None
    notes: tuple[str, ...] = ()


def backup_of(path: Path) -> Path:
    """Return the path of a configuration file's backup."""
    return path.with_name(path.name + ".bak")


def read_config(
    path: Path,
    decode: Callable[[JsonObject, str], object],
    file_system: FileSystem,
    *,
    release: Release | None = None,
) -> ReadConfig:
    """Read a configuration file; if it is missing, empty or broken, its backup (``ConfigManager.load``).

    `decode` takes the contents and the name of the file; it raises `CorruptRecordError` if they are not as required.
    The default release stands for any: only a release that is named refuses what another one takes.
    """
    broken: CorruptRecordError | None = None
    features = named_rules(release)

    def read(file: Path) -> bool:
        data = bytes_of(file, file_system)
        if data:
            decode(parse_config(data, str(file), features), str(file))
        return bool(data)

    try:
        if read(path):
            return ReadConfig(path)
    except CorruptRecordError as error:
        broken = error
    backup = backup_of(path)
    try:
        has_backup = read(backup)
    except CorruptRecordError as error:
        if broken is None:
            raise
        reason = _advised(error, "")
        raise _advised(broken, f"Its backup is broken, too: {reason}. Correct one of them by hand") from error
    if broken is not None and not has_backup:
        raise _advised(broken, f"Correct the file by hand: {backup} is missing or empty")
    return ReadConfig(backup, (_note(path, broken),)) if has_backup else ReadConfig(None)


def _advised(error: CorruptRecordError, advice: str) -> CorruptRecordError:
    """Return an error with other advice."""
    facts = error.problem, error.file, error.offset, error.expected, error.found, error.next_bytes
    return type(error)(*facts, advice)


def _note(path: Path, broken: CorruptRecordError | None) -> str:
    """Return what is said, and logged, of a file whose backup was loaded: what it says is older."""
    reason = f"{path} is missing or empty"
    if broken is not None:
        reason = str(_advised(broken, "Correct the file by hand, or replace it with its .bak"))
    note = f"{backup_of(path)} was loaded instead: {reason}"
    _log.error("%s", note)
    return note


def bytes_of(path: Path, file_system: FileSystem) -> bytes | None:
    """Return the bytes of a configuration file; None if no file is there."""
    status = file_system.status(path)
    if status is None or status.is_directory:
        return None
    if status.size > _LARGEST:
        raise UnsafeSizeError(
            "configuration file is too large", str(path), 0, f"at most {_LARGEST} bytes", f"{status.size} bytes"
        )
    file = file_system.open(path, writable=False)
    try:
        return file.read(status.size, 0)
    finally:
        file.close()


def check_is_file(path: Path) -> None:
    """Refuse what would be opened like a file, and is none: opening a pipe may never return."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise StoreAccessError(f"{path}: expected a file, found {kind_of_file(mode)}. Move what is there elsewhere")


# ---- the files of a broker


@dataclass(frozen=True, slots=True)
class ConfigKind(Generic[T_co]):
    """A configuration file by its name, and what it says."""

    name: str
    decode: Callable[[ConfigFields, ReleaseRules], T_co]


def _topics(fields: ConfigFields, _: ReleaseRules) -> dict[str, TopicConfig]:
    DataVersion.of(fields)  # a broker refuses a file whose version is broken
    return {name: TopicConfig.decode(topic, name) for name, topic in fields.table("topicConfigTable").objects()}


def _groups(fields: ConfigFields, _: ReleaseRules) -> dict[str, SubscriptionGroupConfig]:
    DataVersion.of(fields)
    table = fields.table("subscriptionGroupTable")
    return {name: SubscriptionGroupConfig.decode(group, name) for name, group in table.objects()}


def _delays(fields: ConfigFields, rules: ReleaseRules) -> dict[int, int]:
    if rules.versions_delay_offsets:
        DataVersion.of(fields)
    return fields.table("offsetTable").offsets()


def _popped(fields: ConfigFields, _: ReleaseRules) -> frozenset[tuple[str, str]]:
    """Return topics and groups of 5.x's ``MessageRequestModeManager`` whose mode is POP."""
    topics = fields.object("messageRequestModeMap").objects()
    modes = ((topic, group, mode) for topic, groups in topics for group, mode in groups.objects())
    return frozenset((topic, group) for topic, group, mode in modes if mode.text("mode", "") == "POP")


TOPICS: Final = ConfigKind("topics.json", _topics)
CONSUMER_OFFSETS: Final = ConfigKind(
    "consumerOffset.json",
    lambda fields, rules: ConsumerOffsets.decode(fields, has_version=rules.versions_consumer_offsets),
)
LIGHT_OFFSETS: Final = ConfigKind(
    "lmqConsumerOffset.json", lambda fields, _: ConsumerOffsets.decode(fields, has_light=True)
)
"""Kept in place of `CONSUMER_OFFSETS` by a broker of 4.9.3 and later with ``enableLmq``."""
SUBSCRIPTION_GROUPS: Final = ConfigKind("subscriptionGroup.json", _groups)
DELAY_OFFSETS: Final = ConfigKind("delayOffset.json", _delays)
"""Delay level -> queue offset of the next message to deliver; level 1 is queue 0 of ``SCHEDULE_TOPIC_XXXX``."""
CONSUMER_FILTERS: Final = ConfigKind("consumerFilter.json", lambda fields, _: fields.object("filterDataByTopic"))
REQUEST_MODES: Final = ConfigKind("messageRequestMode.json", _popped)
"""Topics and groups that pop (5.x)."""


CONFIG_KINDS: Final[tuple[ConfigKind[Any], ...]] = (
    TOPICS,
    CONSUMER_OFFSETS,
    SUBSCRIPTION_GROUPS,
    DELAY_OFFSETS,
    CONSUMER_FILTERS,
    LIGHT_OFFSETS,
    REQUEST_MODES,
)


@dataclass(frozen=True, slots=True)
class ConfigFile(Generic[T_co]):
    """What a configuration file says."""

    value: T_co
    file: str  # the file that says it, or its backup, below the store's root
    notes: tuple[str, ...]  # that the backup was read, and why


class TimerCheck(NamedTuple):
    """What ``config/timercheck`` says."""

    read_until: int | None
    """The time of the slot to be read next when the broker last wrote the file, ms: timers before it were delivered;
    None without the file."""
    offset: int  # the queue offset of the first timer that was not in the wheel then


class Config:
    """The files of a store's broker, each of which is read once, when it is first asked for.

    Parameters
    ----------
    root : Path
        The store's root.
    release : str, optional
        The release that reads them; by default any.
    """

    def __init__(self, root: Path, release: str | None = None) -> None:
        self.root = root
        self._release = cast("Release | None", release)
        self._found: dict[str, ConfigFile[Any] | None] = {}

    def path(self, kind: ConfigKind[T]) -> Path:
        """Return the path of a file, whether it is there or not."""
        return self.root / CONFIG_DIRECTORY / kind.name

    def read(self, kind: ConfigKind[T]) -> ConfigFile[T] | None:
        """Return what a file or its backup says; None if neither is there.

        Raises
        ------
        CorruptRecordError
            If the file is broken, and the backup is broken or not there.
        StoreAccessError
            If a file may not be read, or is no file.
        """
        if kind.name not in self._found:
            self._found[kind.name] = self._read(kind)
        return self._found[kind.name]

    def _read(self, kind: ConfigKind[T]) -> ConfigFile[T] | None:
        path = self.path(kind)
        rules = rules_of(self._release or DEFAULT_RELEASE)
        found: list[T] = []

        def keep(value: JsonObject, file: str) -> None:
            found.append(kind.decode(ConfigFields(value, file), rules))

        with explained_access(self.root):
            for each in (path, backup_of(path)):
                check_is_file(each)
            source, notes = read_config(path, keep, OsFileSystem(), release=self._release)
        return None if source is None else ConfigFile(found[-1], f"{CONFIG_DIRECTORY}/{source.name}", notes)

    def known(self, kind: ConfigKind[T], what: str) -> tuple[T | None, tuple[str, ...]]:
        """Return what a file or its backup says, for those who can do without it, and what is to be said of the file.

        Parameters
        ----------
        what : str
            What is not known without it.

        Returns
        -------
        object or None
            None if neither the file nor its backup is there, or both are broken.
        tuple of str
            A note if they are broken, or may not be read, or if the backup was read, which is older.
        """
        if is_archive(self.root):
            return None, (f"{what} is not known: {self.root} is an archive, of which only the messages are read",)
        try:
            found = self.read(kind)
        except (CorruptRecordError, StoreAccessError) as error:
            return None, (f"{what} is not known, because {CONFIG_DIRECTORY}/{kind.name} can't be read: {error}",)
        return (None, ()) if found is None else (found.value, found.notes)

    @property
    def topics(self) -> Mapping[str, TopicConfig] | None:
        """Topics that the broker has configured, by name; None without the file."""
        return _value(self.read(TOPICS))

    @property
    def subscription_groups(self) -> Mapping[str, SubscriptionGroupConfig] | None:
        """Consumer groups that the broker has configured, by name; None without the file."""
        return _value(self.read(SUBSCRIPTION_GROUPS))

    @property
    def offsets(self) -> ConsumerOffsets | None:
        """What consumer groups have committed; None without the file."""
        return _value(self.read(CONSUMER_OFFSETS))

    @property
    def delay_offsets(self) -> Mapping[int, int] | None:
        """Delay level -> queue offset of the next message to deliver; None without the file."""
        return _value(self.read(DELAY_OFFSETS))

    @property
    def timer_check(self) -> TimerCheck:
        """How far timers were delivered when the broker last said so."""
        try:
            file = OsFileSystem().open(self.root / CONFIG_DIRECTORY / TIMER_CHECK_FILE, writable=False)
            data = file.read(_CHECKED * _LONG.itemsize, 0)
            file.close()
        except OSError:
            return TimerCheck(None, 0)
        numbers: list[int] = np.frombuffer(data[: len(data) // _LONG.itemsize * _LONG.itemsize], _LONG).tolist()
        read_until, _, offset = [*numbers, 0, 0, 0][:_CHECKED]
        return TimerCheck(read_until if numbers else None, offset)


_LONG: Final = np.dtype(">i8")
_CHECKED: Final = 3
"""Numbers of ``config/timercheck`` that are read: a time, a position in the log of timers, a queue offset."""


def configured_batch_topics(store: Path, release: Release) -> frozenset[str]:
    """Return the topics that the broker's ``topics.json`` calls batch topics."""
    if not rules_of(release).has_batch_queues:
        return frozenset()
    topics = Config(store, release).topics or {}
    return frozenset(name for name, topic in topics.items() if topic.is_batch)


def _value(found: ConfigFile[T] | None) -> T | None:
    return None if found is None else found.value
