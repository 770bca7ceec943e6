# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a store are, by its path and its broker's configuration, and what must not be inside of it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from store_core.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.file_system import FileSystem, OsFileSystem, names_in
from store_core.files.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, start_offset_of
from store_core.files.segment_listing import SegmentPaths
from store_core.files.store_kind import (
    MEMBER_PREFIX,
    StoreUse,
    check_is_no_url,
    check_is_root,
    check_log_place,
    check_parts,
    check_store_kind,
    data_directory,
    dledger_logs,
    interrupted_swap,
    is_root,
    is_root_of,
)
from store_core.files.store_lock import StoreLock
from store_core.files.store_path import (
    ChosenPaths,
    ConfiguredRoot,
    StorePaths,
    lock_places,
    log_directories,
    meant_log,
    nothing_at,
    path_of,
    store_roots,
    stores_near,
    without_scheme,
)
from store_core.files.url_path import UrlPath
from store_core.format.release import DEFAULT_RELEASE, Release
from store_core.queue.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE
from store_core.queue.queue_path import QueueRules
from store_core.snapshot.index import Index
from store_core.store.message_store_config import SMALLEST_SEGMENT, DefaultSize, MessageStoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


_OF_DISK: Final = "lost+found"
"""Directory in the root of a file system of its own: a disk that has nothing else is empty."""

_MOST_SHOWN: Final = 3


def check_outside(target: Path, source: StorePaths) -> None:
    """Refuse a target, of option ``into``, inside of a store, or above one.

    * `target`: Absolute, with links resolved.
    """
    check_is_no_url(target)
    places = [each for root in store_roots(source) for each in (root, *log_directories(root))]
    for root in (place.resolve() for place in places):
        if target.is_relative_to(root) or root.is_relative_to(target):
            raise InvalidOptionError(
                f"into: expected a path outside of the store {root}, found {target}: nothing is written to it"
            )


def check_nothing_else(
    target: Path, what: str, is_it: Callable[[Collection[str]], bool], file_system: FileSystem
) -> None:
    """Refuse a directory that is not empty and not what is written there: our files would lie among those of others.

    * `target`: It need not exist.
    * `what`: What is made there, or continued.
    * `is_it`: Returns whether it is there already, by the names in the directory.
    """
    names = [name for name in names_in(target, file_system) if name != _OF_DISK]
    if not names or is_it(names):
        return
    shown = ", ".join(names[:_MOST_SHOWN]) + ", ..." * (len(names) > _MOST_SHOWN)
    raise InvalidOptionError(
        f"{target} is not empty, and is no {what}: found {shown}. Nothing was changed. Give one, an empty directory, "
        f"or a path where nothing is.{stores_near([target])}"
    )


def log_paths(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> SegmentPaths:
    """Return where a store's log is, by the configuration and by what is there; see `meant_log`.

    Commas separate directories in the configuration alone. RocketMQ also splits a root that has one.
    """
    given = config.store_path_commit_log
    configured = SegmentPaths.parse(given or "", config.read_only_commit_log_store_paths or "")
    if isinstance(given, ChosenPaths):
        return configured
    return meant_log(root, configured, _broker_root(config), file_system)


def lock_of(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> StoreLock:
    """Return the lock of a store that is written, with those of the roots above its log."""
    first, *others = lock_places(root, log_paths(root, config, file_system).paths, _broker_root(config))
    return StoreLock(first, file_system, others)


def _broker_root(config: MessageStoreConfig) -> Path | None:
    return Path(config.store_path_root_dir) if config.store_path_root_dir else None


def check_root(
    root: Path,
    config: MessageStoreConfig,
    file_system: FileSystem,
    use: StoreUse = StoreUse.OPEN_QUEUES,
    *,
    writes: bool = True,
) -> None:
    """Raise if a store can't be opened or created at a path, or is of an unsupported kind; nothing is written."""
    log = log_paths(root, config, file_system)
    paths = log.all_paths
    check_is_root(root, file_system, paths)
    check_parts(root, file_system)
    check_store_kind(root, file_system, use)
    for path in paths:
        if path.parent != root:
            check_log_place(path, file_system)
    if config.enable_dleger_commit_log:
        raise UnsupportedStoreError(
            f"enableDLegerCommitLog is true: the store at {root} is a DLedger store, whose log has another format "
            f"(storePathDLedgerCommitLog says where it is), which is not supported. Expected false. Nothing was changed"
        )
    if writes:
        log.check_is_certain()
    if use is StoreUse.OPEN_QUEUES:
        if half_done := interrupted_swap(root, file_system):
            raise UnsupportedStoreError(
                f"{half_done}. Nothing was changed: new messages would get offsets of queues anew"
            )
        _check_nothing_else(root, paths, file_system)


def _check_nothing_else(root: Path, log_paths: Collection[Path], file_system: FileSystem) -> None:
    """Refuse to make a store in a directory that has other files, unless its log is configured to be there."""
    inside = [path for path in log_paths if path.absolute().is_relative_to(root.absolute())]
    if not any(file_system.status(path) is not None for path in inside):
        check_nothing_else(root, "store", is_root_of, file_system)


# ---- a store and its broker's configuration


def config_of(
    config: MessageStoreConfig | str | os.PathLike[str] | None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    release: Release = DEFAULT_RELEASE,
) -> MessageStoreConfig:
    """Return a configuration, or the one in a file as a release reads it, with the log that the caller means."""
    if config is None:
        config = MessageStoreConfig(release=release)
    elif not isinstance(config, MessageStoreConfig):
        config = MessageStoreConfig.from_properties(config, release)
    return config if store_path_commit_log is None else config.with_log(store_path_commit_log)


def chosen_log(paths: StorePaths, config: MessageStoreConfig | str | os.PathLike[str] | None) -> str | None:
    """Return the log that a path means besides a configuration, because its caller chose it; None if it chose none."""
    if not isinstance(paths, ConfiguredRoot) or not paths.log:
        return None
    configured = None if config is None else configured_root(str(paths), config_of(config))
    return None if paths.log == getattr(configured, "log", ()) else ",".join(map(str, paths.log))


def configured_root(path: str | os.PathLike[str], config: MessageStoreConfig) -> str | os.PathLike[str]:
    """Return a path that knows where the log is by a configuration; one that is no root on this machine as it is.

    A path that is no root says by itself which log is meant, and a configuration changes nothing then.
    """
    with explained_access(path_of(path)):
        root = None if isinstance(path, ConfiguredRoot) else _root(path, config)
        if root is None:
            return path
        meant = log_paths(root, config, OsFileSystem())
        log, member = _with_dledger(root, meant.all_paths, config)
    return ConfiguredRoot.of(root, log, member, _broker_root(config), (meant.note,) if meant.note else ())


def _root(path: str | os.PathLike[str], config: MessageStoreConfig) -> Path | None:
    """Return the root of the store on this machine that a path may be; None if it is something else."""
    if isinstance(path_of(path), UrlPath):
        return None
    root = Path(os.path.abspath(without_scheme(os.fspath(path))))  # noqa: PTH100 -- resolve() follows links
    if not root.is_dir():
        return None
    names = names_in(root, OsFileSystem())
    is_log = (
        any(start_offset_of(name) is not None for name in names) or data_directory(root, OsFileSystem()) is not None
    )
    return root if not is_log or root in log_paths(root, config, OsFileSystem()).all_paths else None


def _with_dledger(
    root: Path, log: tuple[Path, ...], config: MessageStoreConfig
) -> tuple[tuple[Path, ...], Path | None]:
    """Return the directories of a log with those of a DLedger log elsewhere, if there is one, and its member's.

    As with an ordinary log, the store that was named is what is meant: what lies below its root is its own.
    """
    configured = SegmentPaths.parse(config.store_path_dledger_commit_log or "").paths
    older = tuple(path for path in log if names_in(path, OsFileSystem()))
    if not configured or any(dledger_logs(root, OsFileSystem())) or (older and not config.enable_dleger_commit_log):
        return log, None
    members = [name for name in names_in(root, OsFileSystem()) if name.startswith(MEMBER_PREFIX)]
    named = f"{MEMBER_PREFIX}{config.dleger_self_id}"
    member = named if named in members else members[0] if len(members) == 1 else None
    return (*older, *configured), None if member is None else root / member


_QUEUES_LOOKED_AT: Final = 200
"""Maximum queues whose files are examined: all have the same size."""

_LARGEST: Final = 2**31 - 1
"""Bytes; RocketMQ configures it as a 32-bit integer."""


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes of files of one kind."""

    usual: int  # bytes: the most common value of file sizes and of distances between file names
    example: Path  # A file of the usual size, or the first one if none has it
    example_size: int  # bytes of that file
    seen: frozenset[int]  # sizes that files have

    @classmethod
    def of(cls, directories: Iterable[Iterable[Path]], file_system: FileSystem, smallest: int) -> Self | None:
        """Infer the size from files; None if that is not possible.

        Empty files, and files whose names are not offsets, are ignored.

        * `directories`: For each log or queue, its directories, whose files together form one sequence.
        * `smallest`: Minimum bytes of a file.
        """
        votes: Counter[int] = Counter()
        files: dict[Path, int] = {}
        for places in directories:
            found = sorted(files_in(places, file_system))
            files |= {path: size for _, path, size in found}
            votes.update(size for _, _, size in found)
            votes.update(after - before for (before, _, _), (after, _, _) in pairwise(found))
        sizes = {size: count for size, count in votes.items() if smallest <= size <= _LARGEST}
        if not files or not sizes:
            return None
        usual = max(sizes, key=lambda size: (sizes[size], size))
        example = next((path for path, size in files.items() if size == usual), next(iter(files)))
        return cls(usual, example, files[example], frozenset(files.values()))

    @classmethod
    def of_queues(cls, directory: Path, file_system: FileSystem, unit_size: int) -> Self | None:
        """Infer the size from the queues of one kind, examining only some if there are many."""
        queues = islice(queues_in(directory, file_system), _QUEUES_LOOKED_AT)
        return cls.of(([queue] for queue in queues), file_system, unit_size)


def queues_in(directory: Path, file_system: FileSystem) -> Iterator[Path]:
    """Yield directories that may be queues: ``TOPIC/NUMBER`` below a directory."""
    for topic in names_in(directory, file_system):
        for number in names_in(directory / topic, file_system):
            yield directory / topic / number


def files_in(directories: Iterable[Path], file_system: FileSystem) -> Iterator[tuple[int, Path, int]]:
    """Yield start offset, path and size of the files that have bytes and are named by an offset."""
    for directory in directories:
        for name in names_in(directory, file_system):
            status = file_system.status(directory / name) if name.isdecimal() else None
            if status is not None and not status.is_directory and status.size:
                yield int(name), directory / name, status.size


_DEFAULTS: Final = QueueRules()
"""RocketMQ's own sizes, which most stores have."""


@dataclass(frozen=True, slots=True)
class DerivedSizes:
    """Configured file sizes; None if they can't be inferred.

    * `consume_queue_file_size`, `ext_file_size`, `batch_consume_queue_file_size`: Bytes.
    * `has_ext`, `has_light`: Whether there is a queue extension, and a light queue.
    """

    consume_queue_file_size: int | None = None
    ext_file_size: int | None = None
    batch_consume_queue_file_size: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    batch_topics: frozenset[str] = frozenset()  # topics with batch queues
    has_ext: bool = False
    has_light: bool = False

    @classmethod
    def find(cls, root: Path) -> DerivedSizes:
        """Infer sizes from the files of a store, examining a few of each kind."""
        files = OsFileSystem()
        usual = _DEFAULTS.max_hash_slot_num, _DEFAULTS.max_index_num
        index = Index(root, files).first_sized(usual)
        return cls(
            _usual(root / CONSUME_QUEUE, files, CQ_STORE_UNIT_SIZE),
            _usual(root / CONSUME_QUEUE_EXT, files, CQ_STORE_UNIT_SIZE),
            _usual(root / BATCH_CONSUME_QUEUE, files, BATCH_UNIT_SIZE),
            index.slots if index is not None else None,
            index.most_entries if index is not None else None,
            frozenset(_directories(root / BATCH_CONSUME_QUEUE, files)),
            any(True for _ in queues_in(root / CONSUME_QUEUE_EXT, files)),
            any(name.startswith("%LMQ%") for name in _directories(root / CONSUME_QUEUE, files)),
        )


def _usual(directory: Path, file_system: FileSystem, unit_size: int) -> int | None:
    sizes = FileSizes.of_queues(directory, file_system, unit_size)
    return sizes.usual if sizes is not None else None


def _directories(directory: Path, file_system: FileSystem) -> list[str]:
    found = ((name, file_system.status(directory / name)) for name in names_in(directory, file_system))
    return [name for name, status in found if status is not None and status.is_directory]


class _Sizes(NamedTuple):
    """One kind of file: the field that configures its size, and the unit to a multiple of which that is rounded up."""

    field: str
    option: str
    unit: int
    smallest: int
    directory: str


_LOG: Final = _Sizes("mapped_file_size_commit_log", "mappedFileSizeCommitLog", 1, SMALLEST_SEGMENT, "")
_QUEUES: Final = (
    _Sizes(
        "mapped_file_size_consume_queue", "mappedFileSizeConsumeQueue",
        CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE, CONSUME_QUEUE,
    ),
    _Sizes(
        "mapped_file_size_consume_queue_ext", "mappedFileSizeConsumeQueueExt", 1, CQ_STORE_UNIT_SIZE, CONSUME_QUEUE_EXT
    ),
    _Sizes(
        "mapper_file_size_batch_consume_queue", "mapperFileSizeBatchConsumeQueue",
        BATCH_UNIT_SIZE, BATCH_UNIT_SIZE, BATCH_CONSUME_QUEUE,
    ),
)  # fmt: skip


def check_is_there(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> None:
    """Raise if nothing is at a path, or what can't become a store."""
    with explained_access(root):
        check_is_root(root, file_system, log_paths(root, config, file_system).all_paths)
        if file_system.status(root) is None:
            raise StoreNotFoundError(f"there is no store at {root}: give the broker's storePathRootDir")


def check_is_store(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> None:
    """Raise if there is no store at a path: what is opened there would look like an empty one."""
    check_is_there(root, config, file_system)
    is_store = is_root(root, file_system) or any(dledger_logs(root, file_system))
    log = log_paths(root, config, file_system).all_paths
    if not is_store and all(file_system.status(each) is None for each in log):
        raise nothing_at([root], ())


def checked_config(
    root: Path,
    config: MessageStoreConfig,
    file_system: FileSystem,
    use: StoreUse = StoreUse.OPEN_QUEUES,
    *,
    writes: bool = True,
) -> MessageStoreConfig:
    """Check that a store can be opened or created at a path, and return its configuration; nothing is written."""
    with explained_access(root):
        check_root(root, config, file_system, use, writes=writes)
        return with_sizes_of_files(root, config, file_system)


def with_sizes_of_files(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> MessageStoreConfig:
    """Return a configuration with the sizes of a store's files; sizes set explicitly are kept, see `DefaultSize`.

    RocketMQ takes sizes from its configuration alone. If they are wrong, it refuses to load log and queues (4.5 and
    later, ``MappedFileQueue.load``) or takes them for empty (4.3), and reads index files at wrong places. Here a size
    contradicts the files if files exist and none has that size, and is refused. If only some files differ, they are
    damaged: the configuration is right, and the store is opened or refused by the rules of its release. Index sizes are
    inferred from the files' contents; files from which they can't be inferred are skipped as usual, with a note.
    """
    taken: dict[str, Any] = {}
    paths = log_paths(root, config, file_system).all_paths
    log = FileSizes.of([paths], file_system, _LOG.smallest)
    _take(taken, _LOG, log, config, root)
    for kind in _QUEUES:
        queues = FileSizes.of_queues(root / kind.directory, file_system, kind.smallest)
        _take(taken, kind, queues, config, root)
    taken |= _index_sizes(root, config, file_system)
    return replace(config, **taken) if taken else config


def _take(taken: dict[str, Any], kind: _Sizes, sizes: FileSizes | None, config: MessageStoreConfig, root: Path) -> None:
    """Use the most common file size unless a size is given; refuse a given size that no file has."""
    if sizes is None:
        return
    value: int = getattr(config, kind.field)
    if isinstance(value, DefaultSize):
        taken[kind.field] = sizes.usual
    elif -(-value // kind.unit) * kind.unit not in sizes.seen:
        raise InvalidOptionError(
            f"option {kind.option} says {value}, but the store at {root} has files of {sizes.usual} bytes: "
            f"expected {value} bytes, found {sizes.example_size} in {sizes.example}. {_advice(kind.field)}"
        )


def _index_sizes(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> dict[str, int]:
    expected = config.max_hash_slot_num, config.max_index_num
    found = Index(root, file_system).first_sized(expected)
    taken: dict[str, int] = {}
    if found is None or (found.slots, found.most_entries) == expected:
        return taken
    fields = (
        ("max_hash_slot_num", "maxHashSlotNum", found.slots),
        ("max_index_num", "maxIndexNum", found.most_entries),
    )
    for field, option, size in fields:
        value: int = getattr(config, field)
        if isinstance(value, DefaultSize):
            taken[field] = size
        elif value != size:
            raise InvalidOptionError(
                f"option {option} says {value}, but the store at {root} has index files with {option}={size}: found "
                f"{found.slots} slots and {found.most_entries} entries in {found.path}. {_advice(field)}"
            )
    return taken


def _advice(field: str) -> str:
    return (
        f"Nothing was changed. Leave the option (field {field} of MessageStoreConfig) out to have the size that the "
        f"files have; if it is right, these are files of another store, or damaged: move them elsewhere"
    )
