# SPDX-License-Identifier: Apache-2.0
"""The configuration of a store and of its broker, with RocketMQ's own names and defaults, and how it is read."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, get_args, get_type_hints

from store_core.errors import InvalidOptionError, StoreAccessError, StoreNotFoundError
from store_core.files.access import kind_of_file
from store_core.files.segment_listing import SegmentPaths
from store_core.files.store_kind import path_exists
from store_core.files.store_path import ChosenPaths
from store_core.format.record.delayed import parse_delay_levels
from store_core.format.record.encode import EncodeRules
from store_core.format.release import DEFAULT_RELEASE, RELEASES, Release, release_hint, rules_of
from store_core.format.words import did_you_mean, hint_of, without_controls
from store_core.queue.queue_path import QueueRules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from _typeshed import DataclassInstance

    from store_core.format.release_rules import ReleaseRules


_BLANKS: Final = " \t\f"
_ENTRY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties_file(data: bytes) -> dict[str, str]:
    r"""Parse a properties file as ``java.util.Properties.load`` does; for a repeated key the last value wins.

    Values keep trailing blanks, as in Java. The encoding is ISO 8859-1, with ``\uXXXX`` for other characters.

    >>> parse_properties_file(b"# a broker\nflushDiskType = SYNC_FLUSH\ndeleteWhen:04;\\\n  05\n")
    {'flushDiskType': 'SYNC_FLUSH', 'deleteWhen': '04;05'}
    """
    entries = (_ENTRY.fullmatch(line) for line in _logical_lines(data.decode("latin-1")))
    return {_unescape(entry[1]): _unescape(entry[2]) for entry in entries if entry is not None}


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that end in an odd number of backslashes with the next; drop blank lines and comments."""
    joined = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(_BLANKS)
        if not joined and (not stripped or stripped[0] in "#!"):
            continue
        joined += stripped
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield joined
        joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(replaced, text)


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_BOOLEANS: Final = {"true": True, "false": False}
_I32_LIMIT: Final = 1 << 31


def snake_case(name: str) -> str:
    """Return a RocketMQ name in this package's spelling.

    Examples
    --------
    >>> snake_case("flushIntervalCommitLog"), snake_case("checkCRCOnRecover"), snake_case("brokerIP1")
    ('flush_interval_commit_log', 'check_crc_on_recover', 'broker_ip1')
    """
    parted = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name))
    return parted.lower()


def load_fields(
    kind: type[DataclassInstance], path: str | os.PathLike[str], aliases: Mapping[str, str]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Read the values of a dataclass from a broker's file.

    * `kind`: The dataclass. Keys that name its fields are read, in snake_case or RocketMQ's spelling.
    * `path`: A properties file, e.g. ``broker.conf``.
    * `aliases`: Other names of fields, in snake_case.

    Returns: Field to value.
    Returns: The keys that name no field, as spelled in the file.
    """
    if not path_exists(path):
        raise StoreNotFoundError(f"there is no configuration file {path}: give the path of the broker.conf")
    if not Path(path).is_file():
        found = kind_of_file(Path(path).stat().st_mode)
        raise StoreAccessError(
            f"{path}: expected a configuration file, found {found}. Give a file, such as broker.conf"
        )
    hints = get_type_hints(kind)
    values: dict[str, object] = {}
    others = []
    for key, text in parse_properties_file(Path(path).read_bytes()).items():
        name = snake_case(key)
        name = aliases.get(name, name)
        if name in hints:
            values[name] = _parse(text.strip(), hints[name], f"{path}: {key}")
        else:
            others.append(key)
    return values, tuple(others)


def _parse(text: str, hint: object, where: str) -> object:
    """Convert text from a file to a field's type; `check_fields` checks the value."""
    kinds = get_args(hint) or (hint,)
    if bool in kinds:
        if text.lower() not in _BOOLEANS:
            raise InvalidOptionError(f"{where} must be true or false, found {text!r}")
        return _BOOLEANS[text.lower()]
    if int in kinds:
        if not _INTEGER.fullmatch(text):
            raise InvalidOptionError(f"{where} must be an integer, found {text!r}")
        return int(text)
    choices = [choice for choice in kinds if isinstance(choice, str)]
    if choices and text not in choices:
        raise InvalidOptionError(f"{where} must be one of {', '.join(choices)}; found {text!r}{hint_of(text, choices)}")
    return text


def check_fields(config: DataclassInstance) -> None:
    """Check that every field matches its annotation, and that integers fit into Java's."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        kinds = get_args(hint) or (hint,)
        choices = [choice for choice in kinds if isinstance(choice, str)]
        where = f"{type(config).__name__}.{field.name}"
        if choices and value not in choices:
            raise InvalidOptionError(
                f"{where} must be one of {', '.join(choices)}; found {value!r}{hint_of(value, choices)}"
            )
        plain = tuple(kind for kind in kinds if isinstance(kind, type))
        # a bool is an int to `isinstance`, not to a configuration
        if plain and not (isinstance(value, plain) and (bool in plain or not isinstance(value, bool))):
            expected = " or ".join(kind.__name__ for kind in plain)
            raise InvalidOptionError(f"{where} must be {expected}, found {value!r}")
        if isinstance(value, int) and not -_I32_LIMIT <= value < _I32_LIMIT:
            raise InvalidOptionError(f"{where} must fit into 32 bits, found {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Configuration of the broker of a store (RocketMQ: ``BrokerConfig``), immutable.

    Names and defaults are those of RocketMQ 5.3.3; intervals in ms, unless said otherwise.

    Attributes
    ----------
    broker_ip1, listen_port : str and int
        The broker's address: the store host of messages without one.
    broker_permission : int
        Permissions for all topics, as a sum: 4 to read, 2 to write (``PermName``).
    auto_create_subscription_group : bool
        Whether the first pull of an unknown group creates it.
    filter_data_clean_time_span : int
        ms.
    flush_consumer_offset_interval : int
        ms between writes of the committed offsets, see `store_core.broker.FlushConsumerOffsetService`.
    """

    broker_name: str = "DEFAULT_BROKER"
    broker_id: int = 0
    broker_ip1: str = "127.0.0.1"
    listen_port: int = 10911
    broker_permission: int = 6
    auto_create_subscription_group: bool = True
    enable_controller_mode: bool = False
    enable_slave_acting_master: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    slave_read_enable: bool = False
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    filter_support_retry: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 24 * 3600 * 1000
    flush_consumer_offset_interval: int = 5000
    use_server_side_reset_offset: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Read a broker's configuration file; `MessageStoreConfig.from_properties` reads the store's part of it."""
        values: dict[str, Any] = load_fields(cls, path, {})[0]
        return cls(**values)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port used as the store host of records."""
        return self.broker_ip1, self.listen_port


__all__ = ["SMALLEST_SEGMENT", "BrokerRole", "DefaultSize", "FlushDiskType", "MessageStoreConfig", "Release"]

FlushDiskType: TypeAlias = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
BrokerRole: TypeAlias = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]

_LOG: Final = logging.getLogger("store_core")
_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_LONGEST_KEY: Final = 100
"""Characters of a key that a warning shows."""
_UNSET: Final[Any] = None
"""Default of the field whose default depends on the release."""

_LIKENESS: Final = 0.92
"""From where a key that is not known is taken for a misspelt one. Brokers have keys that are less alike, such as
``brokerIP1``, which has a meaning here, and ``brokerIP2``, which has none."""

_ALIASES: Final = {
    "maped_file_size_commit_log": "mapped_file_size_commit_log",
    "maped_file_size_consume_queue": "mapped_file_size_consume_queue",
    "enable_d_leger_commit_log": "enable_dleger_commit_log",
    "store_path_d_ledger_commit_log": "store_path_dledger_commit_log",
    "d_leger_self_id": "dleger_self_id",
}
"""Names used by 4.x, and those that `snake_case` would part elsewhere, in this package's spelling."""

_NO_PLACES: Final = ("storePathConsumeQueue", "storePathIndex")
"""Keys in sample files of RocketMQ that its ``MessageStoreConfig`` has in no release, 4.3.0 to 5.5.1."""

_POSITIVE: Final = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "mapper_file_size_batch_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
    "max_message_size",
    "transient_store_pool_size",
)
SMALLEST_SEGMENT: Final = 128
"""Minimum bytes of a log file that can hold a message."""


class DefaultSize(int):
    """A size not set explicitly: RocketMQ's default, for a new store; an existing store keeps its sizes.

    It is an ordinary integer that ``dataclasses.replace`` preserves, so it stays known which sizes are explicit.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig:
    """Configuration of a store (RocketMQ: ``MessageStoreConfig``), immutable.

    Names and defaults are those of RocketMQ 5.5.0; defaults that differ in 4.x follow from `release`. Sizes are in
    bytes, intervals and timeouts in ms, unless noted otherwise. `from_properties` reads a broker's file. Every field
    affects what a store does; RocketMQ's other settings have no field and are ignored when a file is read.

    Sizes of log, queue and index files that are not set are taken from the files of the opened store; a size that is
    set and contradicts them is refused, see `store_core.store.store_layout`.

    Attributes
    ----------
    release : str
        The RocketMQ release whose behaviour is followed; one of `RELEASES`.
    store_path_root_dir : str or None
        The root of the broker's own store. The store that is opened is the one that is named; this says whose log the
        configured one is, and whose lock guards it.
    store_path_commit_log : str or None
        The commit log's directory, or several separated by commas; None means ``commitlog`` below the store's root.
        `store_core.files.store_path` says what it means for a store that has a log of its own.
    store_path_dledger_commit_log, dleger_self_id : str or None
        The directories of a DLedger log, likewise, and the member's name, for readers of such a log.
    flush_commit_log_timed : bool
        None means the release's default, see `ReleaseRules`.
    file_reserved_time : int
        Hours.
    timer_max_delay_sec : int
        Seconds.
    """

    release: Release = DEFAULT_RELEASE

    # Files
    store_path_root_dir: str | None = None
    store_path_commit_log: str | None = None
    read_only_commit_log_store_paths: str | None = None
    store_path_dledger_commit_log: str | None = None
    dleger_self_id: str | None = None
    mapped_file_size_commit_log: int = DefaultSize(1024 * 1024 * 1024)
    mapped_file_size_consume_queue: int = DefaultSize(300_000 * 20)
    mapped_file_size_consume_queue_ext: int = DefaultSize(48 * 1024 * 1024)
    mapper_file_size_batch_consume_queue: int = DefaultSize(300_000 * 46)
    enable_consume_queue_ext: bool = False
    enable_dleger_commit_log: bool = False

    # Index
    max_hash_slot_num: int = DefaultSize(5_000_000)
    max_index_num: int = DefaultSize(5_000_000 * 4)
    max_msgs_num_batch: int = 64
    message_index_enable: bool = True
    message_index_safe: bool = False

    # Putting
    max_message_size: int = 4 * 1024 * 1024
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    message_delay_level: str = _DELAY_LEVELS
    os_page_cache_busy_time_out_mills: int = 1000
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False

    # Flushing
    flush_disk_type: FlushDiskType = "ASYNC_FLUSH"
    sync_flush_timeout: int = 5000
    flush_commit_log_timed: bool = _UNSET
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    wake_flush_when_put_message: bool = False
    wake_commit_when_put_message: bool = True
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    warm_maped_file_enable: bool = False

    # Replication
    broker_role: BrokerRole = "ASYNC_MASTER"
    slave_timeout: int = 3000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    all_ack_in_sync_state_set: bool = False
    enable_auto_in_sync_replicas: bool = False
    duplication_enable: bool = False
    offset_check_in_slave: bool = False

    # Recovery and dispatch
    check_crc_on_recover: bool = True
    commit_log_recover_max_num: int = 10
    read_un_committed: bool = False
    recheck_reput_offset_from_cq: bool = False

    # Reading
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    travel_cq_file_num_when_get_message: int = 1

    # Deleting
    file_reserved_time: int = 72
    delete_when: str = "04"
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    delete_file_batch_max: int = 10
    redelete_hanged_file_interval: int = 120_000
    disk_max_used_space_ratio: int = 75
    disk_space_warning_level_ratio: int = 90
    disk_space_clean_forcibly_ratio: int = 85
    clean_file_forcibly_enable: bool = True

    # Delay and timers
    flush_delay_offset_interval: int = 10_000
    timer_wheel_enable: bool = True
    timer_precision_ms: int = 1000
    timer_max_delay_sec: int = 3 * 24 * 3600

    def __post_init__(self) -> None:
        if self.release not in RELEASES:
            expected, hint = ", ".join(RELEASES), release_hint(str(self.release))
            raise InvalidOptionError(
                f"MessageStoreConfig.release must be one of {expected}; found {self.release!r}{hint}"
            )
        if self.flush_commit_log_timed is _UNSET:
            object.__setattr__(self, "flush_commit_log_timed", self.features.flushes_log_by_timer)
        check_fields(self)
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise InvalidOptionError(f"MessageStoreConfig.{name} must be positive, found {getattr(self, name)}")
        if self.mapped_file_size_commit_log < SMALLEST_SEGMENT:
            size = self.mapped_file_size_commit_log
            raise InvalidOptionError(
                f"a commit log file of {size} bytes holds no message: {SMALLEST_SEGMENT} are needed"
            )
        parse_delay_levels(self.message_delay_level)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str], release: Release = DEFAULT_RELEASE) -> Self:
        """Read a broker's configuration file.

        Keys are spelled as in RocketMQ (``flushDiskType``, including 4.x spellings) or as fields (``flush_disk_type``).
        Other keys are ignored, as most of a broker's change nothing here; one that looks like a key that is read,
        misspelt, is logged, and so are places that no broker takes from its configuration.

        Raises
        ------
        InvalidOptionError
            If a value is invalid for its key; RocketMQ would silently use the default.
        StoreNotFoundError
            If there is no such file.
        """
        values: dict[str, Any]
        values, others = load_fields(cls, path, _ALIASES)
        _warn_of_ignored(path, others)
        defaults: dict[str, Any] = {"release": release}
        return cls(**(defaults | values))

    def with_log(self, store_path_commit_log: str | os.PathLike[str]) -> Self:
        """Return the configuration with the log that the caller means, where a store and its configuration have two.

        Parameters
        ----------
        store_path_commit_log : path-like
            The directory, or several separated by commas. Directories that are only read stay if it is the log that is
            configured, to which they belong.
        """
        chosen = ChosenPaths(os.fspath(store_path_commit_log))
        given = SegmentPaths.parse(chosen)
        if not given.paths:
            raise InvalidOptionError("option storePathCommitLog: expected a directory, or several, found none")
        is_same = given == SegmentPaths.parse(self.store_path_commit_log or "")
        read_only = self.read_only_commit_log_store_paths if is_same else None
        return replace(self, store_path_commit_log=chosen, read_only_commit_log_store_paths=read_only)

    @property
    def features(self) -> ReleaseRules:
        """The rules of the release."""
        return rules_of(self.release)

    @property
    def delay_levels(self) -> tuple[int, ...]:
        """Delays in ms, level 1 first."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def encode_rules(self) -> EncodeRules:
        """The settings that determine the bytes of records."""
        return EncodeRules(
            self.release,
            self.max_message_size,
            self.enabled_append_prop_crc and self.features.has_property_crc,
            self.auto_message_version_on_topic_len,
            self._fills_light_lists(),
        )

    def _fills_light_lists(self) -> bool:
        by_lmq_switch = self.features.fills_light_lists_by_lmq_switch
        return self.features.has_light_queues and (self.enable_lmq if by_lmq_switch else self.enable_multi_dispatch)

    def queue_rules(self, batch_topics: Collection[str] = ()) -> QueueRules:
        """Return the settings that determine queues, index and dispatch.

        Parameters
        ----------
        batch_topics : collection of str
            Topics with the attribute ``queue.type=BatchCQ``; ignored if the release does not support it.
        """
        return QueueRules(
            release=self.release,
            consume_queue_file_size=self.mapped_file_size_consume_queue,
            batch_consume_queue_file_size=self.mapper_file_size_batch_consume_queue,
            batch_topics=frozenset(batch_topics) if self.features.has_batch_queues else frozenset(),
            ext_file_size=self.mapped_file_size_consume_queue_ext,
            is_ext_enabled=self.enable_consume_queue_ext,
            max_hash_slot_num=self.max_hash_slot_num,
            max_index_num=self.max_index_num,
            max_msgs_num_batch=self.max_msgs_num_batch,
            is_index_enabled=self.message_index_enable,
            is_index_safe=self.message_index_safe,
            delay_levels=self.delay_levels,
            check_crc=self.check_crc_on_recover,
            verify_property_crc=self.force_verify_prop_crc and self.features.has_property_crc,
            is_duplication_enabled=self.duplication_enable,
            is_multi_dispatch_enabled=self.enable_multi_dispatch and self.features.has_light_queues,
            is_lmq_enabled=self.enable_lmq and self.features.has_light_queues,
        )


def _warn_of_ignored(path: str | os.PathLike[str], keys: Collection[str]) -> None:
    if ignored := [key for key in keys if key in _NO_PLACES]:
        where = "queues and index are below the store's root (storePathRootDir)"
        _LOG.warning("%s: no RocketMQ release takes %s from its configuration: %s", path, " or ".join(ignored), where)
    known = {field.name for kind in (MessageStoreConfig, BrokerConfig) for field in fields(kind)}
    names = [head + "".join(map(str.capitalize, tail)) for head, *tail in (name.split("_") for name in known)]
    for key in keys:
        shown = key[:_LONGEST_KEY]
        if snake_case(key) not in known and (hint := did_you_mean(shown.replace("_", ""), names, _LIKENESS)):
            _LOG.warning("%s: %s changes nothing; %s", path, without_controls(shown), hint)
