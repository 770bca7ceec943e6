# SPDX-License-Identifier: Apache-2.0
"""The broker's configuration files of a store: read as a broker reads them, each from the file or its backup."""

from __future__ import annotations

import logging
import stat
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from store_core.errors import CorruptRecordError, StoreAccessError, StoreError, UnsafeSizeError
from store_core.files.access import explained_access, kind_of_file
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.names import CHECKPOINT_FILE, CONFIG_DIRECTORY, TIMER_CHECK_FILE, is_archive
from store_core.files.store_path import absent_config
from store_core.format.columns import iso_time
from store_core.format.layout import CHECKPOINT, Field, unit_dtype
from store_core.format.release import DEFAULT_RELEASE, Release, named_rules, rules_of
from store_core.snapshot.config_json import ConfigFields, JsonKey, JsonObject, JsonValue, parse_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from _typeshed import DataclassInstance

    from store_core.format.release_rules import ReleaseRules


_log: Final = logging.getLogger("store_core")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a configuration (RocketMQ: ``DataVersion``)."""

    timestamp: int  # time of the change, ms since 1970
    counter: int = 0  # how many versions preceded this one
    state_version: int = 0  # the broker's in controller mode, else 0 (5.x)

    @classmethod
    def of(cls, fields: ConfigFields) -> Self | None:
        """Decode the version of a file, whose missing members are 0; None if it has none."""
        version = fields.object("dataVersion")
        numbers = (version.integer(name) for name in ("timestamp", "counter", "stateVersion"))
        return cls(*numbers) if version.members else None


QUEUE_TYPE: Final = "queue.type"
"""Attribute with the kind of a topic's consume queues."""

_BATCH_QUEUE: Final = "BatchCQ"
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
GROUP_MEMBERS_OF_5: Final = frozenset(
    ("attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy", "groupSysFlag")
)
"""Members of a consumer group that 4.x does not have."""


def camel_case(name: str) -> str:
    """Return the name that a field has as a member of a file.

    >>> camel_case("read_queue_nums")
    'readQueueNums'
    """
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_LONG_MEMBERS: Final = frozenset(("brokerId", "whichBrokerWhenConsumeSlowly"))
"""Members that have 64 bits; other integers have 32."""


def _values(kind: type[DataclassInstance], fields: ConfigFields) -> dict[str, Any]:
    """Return the fields of a configuration that are members of a file, each read by the type of its default."""
    readers: dict[type, Callable[..., Any]] = {bool: fields.flag, int: fields.small_integer, str: fields.text}
    attributes = fields.object("attributes").texts()
    found = {"attributes": attributes, "others": fields.others(members_of(kind)), "given": fields.given}
    for each in dataclass_fields(kind):
        member = camel_case(each.name)
        if type(each.default) in readers:
            read: Callable[..., Any] = fields.integer if member in _LONG_MEMBERS else readers[type(each.default)]
            found[each.name] = read(member, default=each.default)
    return found


def members_of(kind: type[DataclassInstance]) -> frozenset[str]:
    """Return the members of the file that are fields of a configuration."""
    names = {each.name for each in dataclass_fields(kind)}
    return frozenset(map(camel_case, names - {"others", "given"}))


class Permission(IntFlag):
    """Permitted uses of a topic (RocketMQ: ``PermName``)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic (RocketMQ: ``TopicConfig``), with RocketMQ's defaults.

    Attributes
    ----------
    topic_name : str
    read_queue_nums, write_queue_nums : int
        Number of queues that consumers and producers see.
    perm : int
        Bits of `Permission`.
    topic_filter_type : str
        ``SINGLE_TAG`` or ``MULTI_TAG``.
    attributes : mapping
        5.x: ``queue.type``, ``cleanup.policy``, ``message.type``, ``reserve.time`` and others.
    others : mapping
        Members of the file that no release up to 5.3 knows; they are preserved on writing.
    given : frozenset of str
        Members that the file has; fields of others have the defaults.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = int(Permission.READ | Permission.WRITE)
    topic_filter_type: str = _FILTER_TYPES[0]
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[JsonKey, JsonValue] = field(default_factory=dict)
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def is_readable(self) -> bool:
        """Whether consumers may pull."""
        return bool(self.perm & Permission.READ)

    @property
    def is_writeable(self) -> bool:
        """Whether producers may send."""
        return bool(self.perm & Permission.WRITE)

    @property
    def is_batch(self) -> bool:
        """Whether its queues are batch consume queues (``queue.type=BatchCQ``)."""
        return self.attributes.get(QUEUE_TYPE) == _BATCH_QUEUE

    @classmethod
    def decode(cls, fields: ConfigFields, key: str) -> Self:
        """Decode a topic; one without a name gets its key in the file as its name."""
        filter_type = fields.text("topicFilterType", _FILTER_TYPES[0])
        if filter_type in ("0", "1"):  # the number of a Java enum's constant
            filter_type = _FILTER_TYPES[int(filter_type)]
        if filter_type not in _FILTER_TYPES:  # fastjson then leaves it null, which no broker looks at
            filter_type = _FILTER_TYPES[0]
        found = _values(cls, fields) | {"topic_name": fields.text("topicName", key), "topic_filter_type": filter_type}
        return cls(**found)


_RETRY_POLICY: Final[Mapping[JsonKey, JsonValue]] = {"type": "CUSTOMIZED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """One consumer group (RocketMQ: ``SubscriptionGroupConfig``), with RocketMQ's defaults.

    Attributes
    ----------
    group_name : str
    consume_enable, consume_from_min_enable, consume_broadcast_enable, consume_message_orderly : bool
    retry_queue_nums, retry_max_times : int
        Number of queues of the group's retry topic, and how often a message is retried.
    broker_id, which_broker_when_consume_slowly : int
        Brokers that consumers are sent to: normally, and when they ask for messages no longer in memory.
    consume_timeout_minute : int
        Minutes (5.x).
    group_retry_policy : mapping
        As in the file (5.x).
    others : mapping
        Further members of the file, e.g. ``subscriptionDataSet``; they are preserved on writing.
    given : frozenset of str
        Members that the file has; fields of others have the defaults.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    group_retry_policy: Mapping[JsonKey, JsonValue] = field(default_factory=lambda: dict(_RETRY_POLICY))
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[JsonKey, JsonValue] = field(default_factory=dict)
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def decode(cls, fields: ConfigFields, key: str) -> Self:
        """Decode a group; one without a name gets its key in the file as its name."""
        policy = fields.object("groupRetryPolicy").members or _RETRY_POLICY
        return cls(group_name=fields.text("groupName", key), group_retry_policy=policy, **_values(cls, fields))


TOPIC_MEMBERS: Final = members_of(TopicConfig)
GROUP_MEMBERS: Final = members_of(SubscriptionGroupConfig)
"""Members of a topic, and of a consumer group, in the file."""

TOPIC_GROUP_SEPARATOR: Final = "@"
_BROADCAST: Final = "@broadcast"
"""Ends the name of the group under which 5.x keeps the least offset of a broadcasting group's clients
(``BroadcastOffsetManager.broadcastGroupId``)."""


def topic_and_group(key: str) -> tuple[str, str] | None:
    """Split ``topic@group``; None if Java's ``split`` does not return exactly these two.

    >>> topic_and_group("orders@billing"), topic_and_group("orders@"), topic_and_group("a@b@c")
    (('orders', 'billing'), None, None)
    """
    parts = key.rstrip(TOPIC_GROUP_SEPARATOR).split(TOPIC_GROUP_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 else None  # noqa: PLR2004 -- a topic and a group


class Committed(NamedTuple):
    """One committed offset: the number of the message that a group consumes next in a queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """What consumer groups have committed (RocketMQ: ``ConsumerOffsetManager``, ``LmqConsumerOffsetManager``)."""

    file: str  # the file that says so
    version: DataVersion | None  # None in 4.x
    table: Mapping[str, Mapping[int, int]]  # ``topic@group`` -> queue id -> offset, whatever the keys are
    light: tuple[Committed, ...] = ()  # offsets of light message queues, each of which is queue 0 of a topic of its own

    @classmethod
    def decode(cls, fields: ConfigFields, *, has_version: bool = True, has_light: bool = False) -> Self:
        """Decode the parts of a file that its reader looks at."""
        table = {key: queues.offsets() for key, queues in fields.object("offsetTable").objects()}
        lacks_version = has_light and fields.members.get("dataVersion") == ""  # of LmqConsumerOffsetManager
        version = DataVersion.of(fields) if has_version and not lacks_version else None
        return cls(fields.file, version, table, tuple(_light_offsets(fields)) if has_light else ())

    @property
    def by_group(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Topic and group -> queue id -> offset, of any key."""
        keys = ((key.partition(TOPIC_GROUP_SEPARATOR), offsets) for key, offsets in self.table.items())
        return {(topic, group): offsets for (topic, _, group), offsets in keys}

    @property
    def committed(self) -> list[Committed]:
        """All committed offsets; a key that is no topic and group is left out, as RocketMQ does."""
        found = []
        for key, offsets in self.table.items():
            pair = topic_and_group(key)
            if pair is not None:
                found += [Committed(*pair, queue_id, offset) for queue_id, offset in offsets.items()]
            elif not key.endswith(_BROADCAST):
                _log.warning("%s: ignored the offsets of %r: expected topic@group", self.file, key)
        return found

    @property
    def broadcast(self) -> list[Committed]:
        """The least offsets of broadcasting groups' clients, which 5.x keeps for those of a proxy."""
        found = []
        for key, offsets in self.table.items():
            pair = topic_and_group(key.removesuffix(_BROADCAST)) if key.endswith(_BROADCAST) else None
            if pair is not None:
                found += [Committed(*pair, queue_id, offset) for queue_id, offset in offsets.items()]
        return found


def _light_offsets(fields: ConfigFields) -> Iterator[Committed]:
    table = fields.object("lmqOffsetTable")
    for key in table.members:
        pair = topic_and_group(str(key))
        if pair is None:
            _log.warning("%s: ignored the offset of %r: expected topic@group", fields.file, key)
        else:
            yield Committed(*pair, 0, table.offset(key))


_LARGEST: Final = 256 << 20
"""Maximum bytes of a file; those of large brokers have some ten million bytes."""

T_co = TypeVar("T_co", covariant=True)


# ---- a file and its backup


@dataclass(frozen=True, slots=True)
class ConfigFile(Generic[T_co]):
    """What a configuration file says."""

    value: T_co
    file: str  # the file that says it, or its backup, below the store's root
    notes: tuple[str, ...] = ()  # that the backup was read, and why


def backup_of(path: Path) -> Path:
    """Return the path of a configuration file's backup."""
    return path.with_name(path.name + ".bak")


def read_config(
    path: Path,
    decode: Callable[[JsonObject, str], T],
    read_bytes: Callable[[Path], bytes | None],
    *,
    release: Release | None = None,
) -> ConfigFile[T] | None:
    """Return what a file says; if it is missing, empty or broken, its backup (``ConfigManager.load``); else None.

    `decode` takes the contents and the name of the file; it raises `CorruptRecordError` if they are not as required.
    The default release stands for any: only a release that is named refuses what another one takes.
    """
    broken: CorruptRecordError | None = None
    features = named_rules(release)

    def read(file: Path) -> ConfigFile[T] | None:
        data = read_bytes(file)
        if not data:
            return None
        return ConfigFile(decode(parse_config(data, str(file), features), str(file)), f"{CONFIG_DIRECTORY}/{file.name}")

    try:
        found = read(path)
    except CorruptRecordError as error:
        found, broken = None, error
    if found is not None:
        return found
    backup = backup_of(path)
    try:
        found = read(backup)
    except CorruptRecordError as error:
        if broken is None:
            raise
        reason = _advised(error, "")
        raise _advised(broken, f"Its backup is broken, too: {reason}. Correct one of them by hand") from error
    if broken is not None and found is None:
        raise _advised(broken, f"Correct the file by hand: {backup} is missing or empty")
    return None if found is None else replace(found, notes=(_note(path, broken),))


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
    with closing(file_system.open(path, writable=False)) as file:
        return file.read(status.size, 0)


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
    what: str  # what is not known without it
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


TOPICS: Final = ConfigKind("topics.json", "which topics the broker has", _topics)
CONSUMER_OFFSETS: Final = ConfigKind(
    "consumerOffset.json",
    "what groups have consumed",
    lambda fields, rules: ConsumerOffsets.decode(fields, has_version=rules.versions_consumer_offsets),
)
LIGHT_OFFSETS: Final = ConfigKind(
    "lmqConsumerOffset.json",
    CONSUMER_OFFSETS.what,
    lambda fields, _: ConsumerOffsets.decode(fields, has_light=True),
)
"""Kept in place of `CONSUMER_OFFSETS` by a broker of 4.9.3 and later with ``enableLmq``."""
SUBSCRIPTION_GROUPS: Final = ConfigKind("subscriptionGroup.json", "which groups there are", _groups)
DELAY_OFFSETS: Final = ConfigKind("delayOffset.json", "what is delivered of delay levels", _delays)
"""Delay level -> queue offset of the next message to deliver; level 1 is queue 0 of ``SCHEDULE_TOPIC_XXXX``."""
CONSUMER_FILTERS: Final = ConfigKind(
    "consumerFilter.json", "which filters groups have", lambda fields, _: fields.object("filterDataByTopic")
)
REQUEST_MODES: Final = ConfigKind("messageRequestMode.json", "which groups pop", _popped)
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


_DATABASES: Final = ("consumerOffsets", "metadata", "rdb")
"""Directories with a RocksDB that a broker of 5.x may keep its configuration in."""

_IN_DATABASES: Final = (TOPICS, CONSUMER_OFFSETS, LIGHT_OFFSETS, SUBSCRIPTION_GROUPS)


class TimerCheck(NamedTuple):
    """What ``config/timercheck`` says."""

    read_until: int | None
    """The time of the slot to be read next when the broker last wrote the file, ms: timers before it were delivered;
    None without the file."""
    offset: int  # the queue offset of the first timer that was not in the wheel then


class _Held(NamedTuple):
    """What was in a file when it was first asked for, and when that was written, ms; None without the file."""

    data: bytes | None
    written: int | None


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
        self._held: dict[Path, _Held] = {}
        self._found: dict[str, ConfigFile[Any] | None] = {}

    def of_release(self, release: str | None) -> Config:
        """Return what a release reads in the same bytes; one that stands for any reads them as this does."""
        if named_rules(cast("Release | None", release)) is named_rules(self._release):
            return self
        other = Config(self.root, release)
        other._held = self._held
        return other

    def hold(self, *names: str) -> None:
        """Read the bytes of files now, each with its backup, whoever asks for them later; who asks gets the errors."""
        for name in names:
            path = self.root / CONFIG_DIRECTORY / name
            with suppress(StoreError, OSError):
                if not self._at(path).data:
                    self._at(backup_of(path))

    def written(self, path: Path) -> int | None:
        """Return when a file was written, ms, as of when it was first asked for; None if that is not known."""
        with suppress(StoreError, OSError):
            return self._at(path).written
        return None

    def _at(self, path: Path) -> _Held:
        if path not in self._held:
            check_is_file(path)
            written = None
            with suppress(FileNotFoundError):
                written = path.stat().st_mtime_ns // 1_000_000  # before its bytes, which may be newer
            self._held[path] = _Held(bytes_of(path, OsFileSystem()), written)
        return self._held[path]

    def path(self, kind: ConfigKind[T]) -> Path:
        """Return the path of a file, whether it is there or not."""
        return self.root / CONFIG_DIRECTORY / kind.name

    def database(self, kind: ConfigKind[T]) -> Path | None:
        """Return the RocksDB in which a broker of 5.x may keep what a file says; None without one."""
        places = (self.root / CONFIG_DIRECTORY / name for name in _DATABASES if kind in _IN_DATABASES)
        return next((place for place in places if place.is_dir()), None)

    def absent(self, kind: ConfigKind[T], more: str) -> StoreError:
        """Return the error that neither a file nor its backup is there; `more` is said if no RocksDB has it instead."""
        return absent_config(self.path(kind), kind.what, self.database(kind), more)

    def read(self, kind: ConfigKind[T]) -> ConfigFile[T] | None:
        """Return what a file or its backup says; None if neither is there.

        Raises
        ------
        CorruptRecordError
            If the file is broken, and the backup is broken or not there.
        StoreAccessError
            If a file may not be read, or is no file.
        """
        if kind.name in self._found:
            return self._found[kind.name]
        path = self.path(kind)
        rules = rules_of(self._release or DEFAULT_RELEASE)
        with explained_access(self.root):
            for each in (path, backup_of(path)):
                check_is_file(each)
            self._found[kind.name] = read_config(
                path,
                lambda value, file: kind.decode(ConfigFields(value, file), rules),
                lambda file: self._at(file).data,
                release=self._release,
            )
        return self._found[kind.name]

    def known(self, kind: ConfigKind[T], what: str = "") -> tuple[T | None, tuple[str, ...]]:
        """Return what a file or its backup says, for those who can do without it, and what is to be said of the file.

        Parameters
        ----------
        what : str
            What is not known without it, for those who want less of it than the kind says.

        Returns
        -------
        object or None
            None if neither the file nor its backup is there, or both are broken.
        tuple of str
            A note if they are broken, or may not be read, or if the backup was read or there is a RocksDB: it is older.
        """
        what = what or kind.what
        if is_archive(self.root):
            return None, (f"{what} is not known: {self.root} is an archive, of which only the messages are read",)
        try:
            found = self.read(kind)
        except (CorruptRecordError, StoreAccessError) as error:
            return None, (f"{what} is not known, because {CONFIG_DIRECTORY}/{kind.name} can't be read: {error}",)
        notes = () if found is None else found.notes
        if (database := self.database(kind)) is not None:
            words = "if the broker keeps topics, groups and offsets there, those in files are older"
            notes += (f"there is a RocksDB {database}, which is not read: {words}",)
        return _value(found), notes

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
            data = (self._at(self.root / CONFIG_DIRECTORY / TIMER_CHECK_FILE).data or b"")[: _CHECKED * _LONG.itemsize]
        except (StoreError, OSError):
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


LOG_TIMES: Final = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
"""Fields of the checkpoint with a store time of a record of the log."""

LOG_OFFSETS: Final = ("confirm_physical_offset", "logics_physical_offset")
"""Fields of the checkpoint with a physical offset in the log."""

RECOVERY_MARGIN_MS: Final = 3000
"""How far recovery goes back before the timestamps (RocketMQ: ``StoreCheckpoint.getMinTimestamp``)."""

_DTYPE: Final = unit_dtype(CHECKPOINT)
_FIELDS_BEFORE_5: Final = 3
_FIELDS_BEFORE_5_5: Final = 5


def checkpoint_fields(release: str) -> tuple[Field, ...]:
    """Return the fields at the start of the file that a release reads and writes."""
    features = rules_of(release)
    if not features.keeps_confirmed_offset:
        return CHECKPOINT.fields[:_FIELDS_BEFORE_5]
    return CHECKPOINT.fields if features.keeps_flushed_queue_offset else CHECKPOINT.fields[:_FIELDS_BEFORE_5_5]


REWOUND: Final = 1
"""The times of a checkpoint, ms, while a job publishes segments: nothing is covered; no broker writes it."""


def checkpoint_time(milliseconds: int) -> str | None:
    """Return a time of a checkpoint as text; None if nothing is covered."""
    return iso_time(milliseconds) if milliseconds > REWOUND else None


def covered_until(log_time: int, queue_time: int) -> int:
    """Return the store time before which log and queues are surely on disk, ms, by the times of a checkpoint."""
    return max(0, min(log_time, queue_time) - RECOVERY_MARGIN_MS)


def read_checkpoint(root: Path, release: str | None = None) -> dict[str, int] | None:
    """Return the values by field: those of a release, or as many as the file has; None without the file."""
    path = root / CHECKPOINT_FILE
    with explained_access(root):
        check_is_file(path)
        try:
            with path.open("rb") as file:
                data = file.read(_DTYPE.itemsize)
        except FileNotFoundError:
            return None
    names = [field.name for field in (CHECKPOINT.fields if release is None else checkpoint_fields(release))]
    size = _DTYPE.itemsize // len(CHECKPOINT.fields)
    if release is not None and len(data) < len(names) * size:
        raise CorruptRecordError(
            "checkpoint too short", str(path), 0, f"{len(names) * size} bytes or more", f"{len(data)} bytes", data,
            "Compare it with another copy of the store; option release says which fields there are",
        )  # fmt: skip
    numbers = np.frombuffer(data[: len(data) // size * size], ">i8").tolist()
    return dict(zip(names, numbers, strict=False))
