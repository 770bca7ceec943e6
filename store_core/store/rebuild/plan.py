# SPDX-License-Identifier: Apache-2.0
"""What a rebuild makes: its options, as for the commands; the rules that follow from them; the plan for one store."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, cast

from store_core.errors import InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.files.names import COMMIT_LOG, CONFIG_DIRECTORY, INDEX_DIRECTORY, QUEUE_KINDS
from store_core.files.store_kind import (
    StoreUse,
    check_is_no_url,
    check_is_root,
    check_parts,
    check_store_kind,
    queue_database,
)
from store_core.files.store_path import absolute_path_of, log_directories
from store_core.files.url_path import UrlPath
from store_core.format.release import DEFAULT_RELEASE, Release
from store_core.queue.consume_queue.consume_queue_store import MAX_QUEUES
from store_core.queue.index_service import check_index_sizes
from store_core.snapshot.log import Log
from store_core.snapshot.store import store_at
from store_core.store.rebuild.index_files import KeptIndex
from store_core.store.store_layout import DerivedSizes, config_of, log_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from store_core.queue.queue_path import QueueRules

    ConfiguredTopics: TypeAlias = Callable[[Path, Release], frozenset[str]]


OUTPUT: Final = "rebuilt"
"""Default directory, below the store, for rebuilt files."""

_FARTHEST: Final = 2**63 - 1
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """What to rebuild, by which rules, and what to do with the result.

    The command ``commitlog rebuild`` has the same options, and errors and reports use its names:
    ``--accept-damage`` is `accept_damage`.

    Attributes
    ----------
    with_queues, with_index : bool
        What to rebuild, in one pass over the log.
    output : path, optional
        Directory for the new files; by default ``rebuilt`` in the store.
    replace : bool
        Whether they replace the old files, which are kept in ``replaced-N`` in the store.
    to : str, optional
        ``"files"``: the new files may replace a directory with queues in a RocksDB, for a broker that goes back to
        queues in files (RocketMQ: ``storeType=default``).
    discard_old : bool
        Whether to delete the kept files if a check of those in their places has no finding.
    accept_damage : bool
        Whether to continue after damage with the next sound record, and to replace despite damage.
    verify : bool
        Whether to check the existing files, as `store_core.answers.check` does, and change nothing.
    topic : sequence of str, optional
        Rebuild only queues of these topics; others stay as they are.
    queue_id : int, optional
        Rebuild only queues of this id.
    since_offset : int
        Rebuild only from this physical offset on, bytes; what the store has for earlier records is kept.
    release : str
        RocketMQ release whose rules apply, one of `store_core.format.release.RELEASES`.
    config : path, optional
        The broker's configuration file, for sizes and switches, and for where the log is.
    store_path_commit_log : path, optional
        Which log is meant, where the store has one and the configuration names another: the directory, or several,
        separated by commas. Without it such a store is only compared, with its own log.
    consume_queue_file_size : int, optional
        Bytes (RocketMQ: ``mappedFileSizeConsumeQueue``); by default, as for the next two, inferred from the existing
        files, or else RocketMQ's own default.
    hash_slot_num, index_num : int, optional
        Slots and entries of an index file (RocketMQ: ``maxHashSlotNum``, ``maxIndexNum``).
    batch_topic : sequence of str
        Topics whose queues are batch queues (``queue.type=BatchCQ``), besides those in the store's files.
    ext : bool
        Whether to write queue extensions (RocketMQ: ``enableConsumeQueueExt``) even if no file shows them.
    light : bool, optional
        Whether to rebuild light queues (RocketMQ: ``enableLmq``, ``enableMultiDispatch``); by default if records name
        any.
    batch_inference : bool
        Whether to treat a topic as a batch topic if its records can only be of one.
    check_crc : bool
        Whether the log ends at a body that does not match its checksum.
    max_queues : int, optional
        A log that names more queues is refused; by default 1,000,000.

    Raises
    ------
    InvalidOptionError
        If options are invalid or contradict each other.
    """

    with_queues: bool = True
    with_index: bool = False
    output: str | os.PathLike[str] | None = None
    replace: bool = False
    to: Literal["files"] | None = None
    discard_old: bool = False
    accept_damage: bool = False
    verify: bool = False
    topic: tuple[str, ...] | list[str] | None = None
    queue_id: int | None = None
    since_offset: int = 0
    release: str = DEFAULT_RELEASE
    config: str | os.PathLike[str] | None = None
    store_path_commit_log: str | os.PathLike[str] | None = None
    consume_queue_file_size: int | None = None
    hash_slot_num: int | None = None
    index_num: int | None = None
    batch_topic: tuple[str, ...] | list[str] = ()
    ext: bool = False
    light: bool | None = None
    batch_inference: bool = True
    check_crc: bool = False
    max_queues: int | None = None

    def __post_init__(self) -> None:
        for name in ("queue_id", "since_offset"):
            self._check_range(name, 0, _FARTHEST)
        for name in ("consume_queue_file_size", "hash_slot_num", "index_num", "max_queues"):
            self._check_range(name, 1, _LARGEST)
        for name in ("topic", "batch_topic"):
            if isinstance(getattr(self, name), str):
                raise InvalidOptionError(f"{name}: expected a list of topics, found the text {getattr(self, name)!r}")
        if self.to not in {None, "files"}:
            raise InvalidOptionError(f"to: expected 'files', found {self.to!r}: queues are made as files only")
        if self.output == "":  # it would stand for the working directory
            raise InvalidOptionError("output: expected a path, found ''")
        if not (self.with_queues or self.with_index):
            raise InvalidOptionError("with_queues and with_index are both False: there is nothing to rebuild")
        if not self.with_queues and (self.topic or self.queue_id is not None):
            raise InvalidOptionError("topic and queue_id choose queues: the index is one for all topics")
        if self.verify and (self.replace or self.discard_old or self.since_offset or self.output):
            raise InvalidOptionError(
                "verify changes nothing: it can't be combined with replace, discard_old, since_offset, output"
            )

    def as_comparison(self) -> RebuildOptions:
        """Return the options for a comparison of the files in place with those of a rebuild."""
        return replace(
            self,
            verify=True,
            output=None,
            replace=False,
            to=None,
            discard_old=False,
            accept_damage=False,
            since_offset=0,
        )

    @property
    def writes_store(self) -> bool:
        """Whether anything in the store changes."""
        return not self.verify and (self.output is None or self.replace or self.discard_old)

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if value is not None and not (type(value) is int and least <= value <= most):
            raise InvalidOptionError(f"{name}: expected an int from {least} to {most}, found {value!r}")


@dataclass(frozen=True, slots=True)
class RebuildRules:
    """What to rebuild, and by which release's rules."""

    queue_rules: QueueRules
    topics: frozenset[str] | None = None  # only queues of these topics; None for all
    queue_id: int | None = None  # only queues of this id; None for all
    since_offset: int = 0
    """Physical offset from which records count; queues keep what they have for earlier records. 0 for all."""
    index_since_offset: int = 0  # the same for the index, which keeps whole files
    check_crc: bool = False
    """Whether a record whose body does not match its checksum ends the log, as in recovery. Dispatching does not check
    bodies, nor does this by default."""
    has_queues: bool = True
    has_index: bool = False
    max_queues: int = MAX_QUEUES  # maximum number of queues
    infers_batch_topics: bool = False
    """Whether a topic with records that only a batch topic can have is rebuilt as one, even if `queue_rules` do not
    name it."""
    is_salvaged: bool = False
    """Whether to continue after damage with the next record that proves itself, as reading in mode DROPMALFORMED does.
    Otherwise the log ends at the first bytes that are not a record, as for a broker."""
    is_proven: bool = False
    """Whether a record also counts as damage if it is not where it says it is, has no store time, or does not match the
    checksum over all of it that it has; and a blank record if it is not as long as the rest of its file. A broker
    checks none of these, nor does dispatching. Without `is_salvaged`, they are only counted."""
    queues: frozenset[tuple[str, int]] | None = None  # only these queues, by topic and id; None for all

    @property
    def first_offset(self) -> int:
        """Physical offset of the first record needed."""
        wanted = [self.since_offset] * self.has_queues + [self.index_since_offset] * self.has_index
        return min(wanted, default=0)

    @property
    def is_partial(self) -> bool:
        """Whether queues are left out or partly copied, so that others must stay in place."""
        is_chosen = any(chosen is not None for chosen in (self.topics, self.queue_id, self.queues))
        return is_chosen or self.since_offset > 0

    def wants(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is to be rebuilt."""
        if self.queues is not None and (topic, queue_id) not in self.queues:
            return False
        return (self.topics is None or topic in self.topics) and self.queue_id in (None, queue_id)

    def with_batch_topics(self, topics: Iterable[str]) -> RebuildRules:
        """Return rules by which these topics are also batch topics."""
        known = self.queue_rules.batch_topics | frozenset(topics)
        return replace(self, queue_rules=replace(self.queue_rules, batch_topics=known))


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The plan of a rebuild."""

    path: str | os.PathLike[str]
    options: RebuildOptions  # what the plan was made from
    store: Path
    output: Path
    rules: RebuildRules
    size: int  # bytes of the segments to be read
    min_offset: int  # physical offset where the log starts
    light_source: str = ""
    """What decided whether light queues are rebuilt; empty if that depends on whether records name any."""
    assumptions: tuple[str, ...] = ()
    """What was assumed of queues because neither options nor files nor records show it."""
    index_assumption: str = ""  # the same of the index; empty if nothing was

    @classmethod
    def of(cls, path: str | os.PathLike[str], options: RebuildOptions, configured: ConfiguredTopics) -> Self:
        """Make a plan by checking and completing options.

        * `path`: The store root.
        * `configured`: Returns the batch topics in a store's broker configuration, by the rules of a release.

        Raises `InvalidOptionError`: If options are invalid or contradict each other.
        Raises `StoreNotFoundError`: If the store has no log.
        Raises `UnsupportedStoreError`: If the store is of an unsupported kind for that use, see
        `store_core.files.store_kind`.
        """
        given = options.config, options.store_path_commit_log
        store = absolute_path_of(store_at(path, None, *given))
        if isinstance(store, UrlPath) and not options.verify and not options.output:
            store.refuse_writing()
        check_is_root(store, OsFileSystem(), log_directories(store))
        if options.writes_store:
            log_paths(store, config_of(*given), OsFileSystem()).check_is_certain()
        check_parts(store, OsFileSystem())
        check_store_kind(store, OsFileSystem(), _use_of(options))
        log = Log.of(store, packed="refused")
        if not any(map(Path.is_dir, log_directories(store))):
            raise InvalidOptionError(f"{store} is not a store root: expected a directory with {COMMIT_LOG}/ in it")
        output = Path(os.path.abspath(options.output)) if options.output else store / OUTPUT  # noqa: PTH100
        found = DerivedSizes.find(store)
        rules = _rules(store, options, found, configured)
        behind = [segment for segment in log.segments if segment.end_offset > rules.first_offset]
        _check_output(store, output, is_replaced=options.replace)
        return cls(
            path, options, store, output, rules, sum(segment.size for segment in behind), log.begin,
            _light_source(options, found), tuple(_assumptions(store, options, found)),
            _index_assumption(options, rules.queue_rules) if found.max_hash_slot_num is None else "",
        )  # fmt: skip

    def describe(self) -> list[str]:
        """Return lines that describe what will be done."""
        rules = self.rules.queue_rules
        what = [name for name, wanted in (("queues", self.rules.has_queues), ("index", self.rules.has_index)) if wanted]
        done = "compare with the log:" if self.options.verify else "rebuild"
        lines = [f"{done} {' and '.join(what)} of {self.store}, by the rules of release {rules.release}"]
        if self.rules.has_queues:
            lines.append(f"queue files of {rules.consume_queue_file_size} bytes")
            lines += [f"batch queues of {topic}" for topic in sorted(rules.batch_topics)]
            lines += ["with an extension"] * rules.is_ext_enabled
            lines += [f"with light queues{'' if self.light_source else ' if records name any'}"] * rules.is_lmq_enabled
        if self.rules.has_index:
            lines.append(f"index files of {rules.max_hash_slot_num} slots and {rules.max_index_num} entries")
        if self.rules.first_offset:
            lines.append(f"from physical offset {self.rules.first_offset} on")
        lines.append(f"{_size(self.size)} of log to read")
        if not self.options.verify:
            lines.append(f"into {self.output}" + (", then in place of the old files" if self.options.replace else ""))
        return lines


def _use_of(options: RebuildOptions) -> StoreUse:
    """Return how existing queues are used: for single queues, only their own directories are replaced."""
    is_whole = options.topic is None and options.queue_id is None
    if options.with_queues and options.replace and is_whole:
        return StoreUse.READ_LOG if options.to == "files" else StoreUse.REPLACE_QUEUES
    if options.with_queues and (options.replace or options.discard_old or options.since_offset > 0):
        return StoreUse.OPEN_QUEUES
    return StoreUse.READ_QUEUES if options.with_queues and options.verify else StoreUse.READ_LOG


def _check_output(store: Path, output: Path, *, is_replaced: bool) -> None:
    if not isinstance(output, UrlPath):  # beside a store that a check reads by URL; nothing is written
        check_is_no_url(output)
    taken = [store / name for name in (COMMIT_LOG, *QUEUE_KINDS, INDEX_DIRECTORY, CONFIG_DIRECTORY)]
    if output == store or any(output == place or place in output.parents for place in taken):
        raise InvalidOptionError(f"--output {output} would be written into the store's own files: give another path")
    there = next(path for path in (output, *output.parents) if path.exists())
    if is_replaced and there.stat().st_dev != store.stat().st_dev:
        raise InvalidOptionError(f"--replace renames, so {output} has to be on the file system of {store}")


def _rules(store: Path, options: RebuildOptions, found: DerivedSizes, configured: ConfiguredTopics) -> RebuildRules:
    rules = RebuildRules(
        _queue_rules(store, options, found, configured),
        frozenset(options.topic) if options.topic else None,
        options.queue_id,
        options.since_offset,
        check_crc=options.check_crc,
        has_queues=options.with_queues,
        has_index=options.with_index,
        max_queues=options.max_queues or MAX_QUEUES,
        infers_batch_topics=options.batch_inference,
        is_salvaged=options.accept_damage,
    )
    if not options.with_index:
        return rules
    check_index_sizes(rules.queue_rules)
    if not options.since_offset:
        return rules
    kept = KeptIndex.find(store, rules.queue_rules, options.since_offset - 1, OsFileSystem())
    return replace(rules, index_since_offset=kept.end_physical_offset)


def _queue_rules(store: Path, options: RebuildOptions, found: DerivedSizes, configured: ConfiguredTopics) -> QueueRules:
    """Combine settings from the options, else the broker's configuration, else the existing files."""
    rules = config_of(options.config, release=cast("Release", options.release)).queue_rules()
    explicit: dict[str, Any] = {
        "consume_queue_file_size": options.consume_queue_file_size,
        "max_hash_slot_num": options.hash_slot_num,
        "max_index_num": options.index_num,
    }
    if options.light is not None:
        explicit |= _light_switches(is_on=options.light)
    told: dict[str, Any] = {}
    if options.config is None:
        names = ("consume_queue_file_size", "batch_consume_queue_file_size", "ext_file_size")
        told = {name: getattr(found, name) for name in (*names, "max_hash_slot_num", "max_index_num")}
        told |= {"is_ext_enabled": found.has_ext, **_light_switches(is_on=rules.features.has_light_queues)}
    told |= {"is_ext_enabled": True} if options.ext else {}
    told |= {"is_index_enabled": True} if options.with_index else {}  # whoever asks for an index gets one
    values = {name: value for name, value in (*told.items(), *explicit.items()) if value is not None}
    batch_topics = found.batch_topics | frozenset(options.batch_topic) | configured(store, rules.release)
    return replace(rules, **values, batch_topics=batch_topics if rules.features.has_batch_queues else frozenset())


def _light_switches(*, is_on: bool) -> dict[str, Any]:
    """Set both switches alike: a store with only one of them has no light queues, see `lmq_units`."""
    return {"is_multi_dispatch_enabled": is_on, "is_lmq_enabled": is_on}


def _light_source(options: RebuildOptions, found: DerivedSizes) -> str:
    """Return what decides whether light queues are rebuilt; empty if the records do, by naming them."""
    if options.light is not None:
        return "--light" if options.light else "--no-light"
    if options.config is not None:
        return "--config"
    return "a directory" if found.has_light else ""


def _assumptions(store: Path, options: RebuildOptions, found: DerivedSizes) -> Iterator[str]:
    """Yield assumptions about what a store without queues does not show."""
    if options.verify and queue_database(store, OsFileSystem()) is not None:
        return
    if options.config is not None or found.consume_queue_file_size is not None:
        return
    if not options.ext and not found.has_ext:
        yield (
            "queues are expected without an extension, because nothing is left that shows whether the broker had one "
            "(enableConsumeQueueExt); records do not. Queues work without it. If it had one, give its configuration"
        )
    if options.consume_queue_file_size is None:
        yield (
            "the size of queue files is not known, so RocketMQ's default is assumed. A broker refuses files of another "
            "size than its own (mappedFileSizeConsumeQueue): if it has another one, give its configuration"
        )


def _index_assumption(options: RebuildOptions, rules: QueueRules) -> str:
    """Return what is assumed of an index that has no files to show it; empty if the options say it."""
    if options.config is not None or None not in {options.hash_slot_num, options.index_num}:
        return ""
    return (
        f"no index file shows how large the broker makes them, so {rules.max_hash_slot_num:,} slots and "
        f"{rules.max_index_num:,} entries are assumed. A broker with others (maxHashSlotNum, maxIndexNum) does not "
        f"find the keys in such files: then give its configuration, or --hash-slot-num and --index-num"
    )


def _size(size: int) -> str:
    """Format a number of bytes with a suitable unit."""
    unit, name = (1 << 30, "GiB") if size >= 1 << 30 else (1 << 20, "MiB") if size >= 1 << 20 else (1 << 10, "KiB")
    return f"{size / unit:.1f} {name}"
