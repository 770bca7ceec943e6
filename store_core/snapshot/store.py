# SPDX-License-Identifier: Apache-2.0
"""A store as a value: what its files show at one moment, read without owning it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Flag, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, cast

from store_core.errors import InvalidOptionError, StoreError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem
from store_core.files.names import TIMER_CHECK_FILE, is_archive
from store_core.files.segment_listing import single_file
from store_core.files.storage import StorageSettings
from store_core.files.store_kind import StoreUse, check_is_root, check_store_kind, dledger_logs, is_root, queue_database
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import (
    StorePaths,
    located,
    located_now,
    log_directories,
    places_of,
    root_at,
    store_roots,
)
from store_core.snapshot.config import CONFIG_KINDS, Config, read_checkpoint
from store_core.snapshot.index import Index
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import LogBesideQueues, SegmentEnd, quick_end
from store_core.snapshot.queues import Queues
from store_core.snapshot.timers import Timers

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from store_core.snapshot.likely_release import LikelyRelease
    from store_core.snapshot.stores import StoreNames
    from store_core.store.message_store_config import MessageStoreConfig


_FILES: Final = OsFileSystem()
_MOMENT: Final[tuple[str, ...]] = ("is_live", "config", "log", "end", "last_store_time")
"""What is taken of a store that is being written, so that all that is read later is as of then."""

_SEVERAL: Final = frozenset(",*?[")
"""What a path may have that stands for several."""


class StoreKind(Flag):
    """How a store is laid out; ``StoreKind(0)`` is an ordinary one."""

    SEVERAL_DIRECTORIES = auto()
    """The log is in several directories, or outside of the root."""
    DLEDGER = auto()
    """Records lie in the entries of a DLedger log."""
    ROCKSDB = auto()
    """All queues are in a RocksDB."""
    PARTS = auto()
    """A part is missing: the log, or the queues."""
    ARCHIVE = auto()
    """A packed store, of which only the messages can be read."""


class Store:
    """A store that is read without a broker: nothing is written, and no lock is taken.

    Opening one costs nothing: each part is read when it is asked for, and then stays as it was. What a broker writes
    meanwhile is not seen, so that no two parts contradict each other: of a store that is being written, what groups
    have committed is read first, then `end`, where the log ends; queues, index, views and messages end there. `refresh`
    goes on to what there is now, as another `Store` of the same path does. Everything read by it can be used in any
    thread or process: a store can be pickled.

    Parameters
    ----------
    path : path or sequence of paths
        The root of a store, a ``commitlog`` directory, a segment, several of these that form one log, an archive of a
        store, or a URL such as ``"s3://bucket/store"``.
    config : path or MessageStoreConfig, optional
        The broker's configuration, which says where the log is, if that is elsewhere. A path that is no root, and
        several, say by themselves which log is meant.
    storage : mapping or str, optional
        Settings of the storage that a URL is in, as of option `storage`. They are never shown.
    store_path_commit_log : path, optional
        Which log is meant, where the store and its configuration have two.

    Attributes
    ----------
    paths : path or sequence of paths
        Where the store is, for functions that take paths.

    Raises
    ------
    InvalidOptionError
        If what is given is no path, or a URL or a setting is not as it should be. What is not there, or may not be
        read, is an error of what asks for it.

    Examples
    --------
    >>> store = Store("/data/store")  # doctest: +SKIP
    >>> store.topics  # doctest: +SKIP
    ('TopicTest', 'orders')
    >>> store.messages(topic="orders").read_all()  # doctest: +SKIP
    """

    def __init__(
        self,
        path: StorePaths,
        *,
        config: MessageStoreConfig | str | os.PathLike[str] | None = None,
        storage: Mapping[str, object] | StorageSettings | str | None = None,
        store_path_commit_log: str | os.PathLike[str] | None = None,
    ) -> None:
        is_one = isinstance(path, str | os.PathLike)
        if config is not None or store_path_commit_log is not None:
            path = _configured(path, config, store_path_commit_log)
        found = located(path, StorageSettings.of(storage or {}))
        self.paths: StorePaths = found[0] if is_one and isinstance(found, list) else found

    @classmethod
    def open(
        cls,
        path: StorePaths,
        *,
        config: MessageStoreConfig | str | os.PathLike[str] | None = None,
        storage: Mapping[str, object] | StorageSettings | str | None = None,
    ) -> Self:
        """Return a store, as ``Store(path)`` does."""
        return cls(path, config=config, storage=storage)

    def __repr__(self) -> str:
        """Return the path, without settings."""
        return f"{type(self).__name__}({self.paths!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where it is and, if it was taken, its moment: the rest is read again when it is needed."""
        moment = _MOMENT if self.__dict__.get("end") is not None else ()
        moment += ("name",) if self._among is not None else ()
        return _restored, (type(self), self.paths, {name: getattr(self, name) for name in moment})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open, such as a RocksDB; it is opened again when it is needed."""
        queues = self.__dict__.get("queues")
        if queues is not None:
            queues.close()

    def refresh(self) -> None:
        """Forget what was read: what is asked for next is as it is then."""
        self.close()
        paths, among = located_now(self.paths), self._among
        self.__dict__.clear()
        self.paths, self._among = paths, among

    # ---- what it is

    _among: tuple[StoreNames, int] | None = None
    """The names of the stores that it is read with, and which is its own."""

    @cached_property
    def name(self) -> str:
        """What it is called: as its broker, if ``config`` tells that, or by its path; see `stores_of`."""
        from store_core.snapshot.stores import StoreNames  # noqa: PLC0415 -- few ask

        names, at = self._among or (StoreNames(self._roots), 0)
        return names.names[at]

    @cached_property
    def root(self) -> Path:
        """The root of the store, below which its queues, index and configuration are.

        Raises
        ------
        StoreNotFoundError
            If nothing exists at a path.
        SegmentLayoutError
            If a path is a file that is no segment.
        StoreAccessError
            If a part of the store may not be looked into.
        InvalidOptionError
            If the paths have several roots, or one is another part of a store.
        UnsupportedStoreError
            If it is an archive, or of a kind that is not read.
        """
        places = places_of(self.paths)
        with explained_access(places[0]):
            for place in places:
                _check_place(place)
            roots = tuple(dict.fromkeys(map(root_at, places)))
            if len(roots) > 1:
                raise InvalidOptionError(
                    f"expected the root of one store, found {', '.join(map(str, roots))}: queues, index and "
                    f"configuration are below one root (storePathRootDir), wherever the segments are. Give that"
                )
            check_is_root(roots[0], _FILES, log_directories(roots[0]))
            check_store_kind(roots[0], _FILES, StoreUse.READ_LOG, reads_entries=True)
            return roots[0]

    def root_for(self, use: StoreUse) -> Path:
        """Return the root, for who does more than reading the log; errors as of `root`."""
        with explained_access(self.root):
            check_store_kind(self.root, _FILES, use, reads_entries=True)
        return self.root

    def configured(
        self,
        config: MessageStoreConfig | str | os.PathLike[str] | None,
        store_path_commit_log: str | os.PathLike[str] | None = None,
    ) -> Store:
        """Return this store, or another one if a configuration says that its log is elsewhere."""
        if config is None and store_path_commit_log is None:
            return self
        other = Store(self.paths, config=config, store_path_commit_log=store_path_commit_log)
        return self if other.paths == self.paths else other

    @cached_property
    def _roots(self) -> tuple[Path, ...]:
        """The directories that may be its root; those of an archive are itself."""
        return store_roots(self.paths)

    @cached_property
    def kind(self) -> StoreKind:
        """How it is laid out."""
        if any(map(is_archive, places_of(self.paths))):
            return StoreKind.ARCHIVE
        kind, root, segments = StoreKind(0), self.root, self.log.segments
        if len(log_directories(root)) > 1 or len({segment.path.rpartition("/")[0] for segment in segments}) > 1:
            kind |= StoreKind.SEVERAL_DIRECTORIES
        if any(segment.entries is not None for segment in segments) or any(dledger_logs(root, _FILES)):
            kind |= StoreKind.DLEDGER
        if queue_database(root, _FILES) is not None:
            kind |= StoreKind.ROCKSDB
        return kind if segments and (StoreKind.ROCKSDB in kind or self.queues.exist) else kind | StoreKind.PARTS

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What there is to say of the store: what is not read, or was left out."""
        return tuple(dict.fromkeys((*self.log.notes, *self.queue_notes)))

    @cached_property
    def queue_notes(self) -> tuple[str, ...]:
        """Those of the notes on what is beside the log, that listing the log does not tell."""
        notes: list[str] = []
        for root in self._roots:
            with suppress(OSError, StoreError):  # who lists the log need not be allowed to look elsewhere
                told, known = (
                    check_store_kind(root, _FILES, use, reads_entries=True)
                    for use in (StoreUse.READ_QUEUES, StoreUse.READ_LOG)
                )
                notes += [note for note in told if note not in known]
        return tuple(notes)

    @cached_property
    def release(self) -> LikelyRelease:
        """The releases of RocketMQ that may have served it last, the likeliest first, and what shows it."""
        from store_core.snapshot.likely_release import LikelyRelease  # noqa: PLC0415 -- few ask

        return LikelyRelease.of(self.root)

    @cached_property
    def is_live(self) -> bool:
        """Whether a process has it open for writing; a copy in another storage is never open."""
        return any(is_lock_held(root) for root in self._roots if not is_archive(root))

    @cached_property
    def end(self) -> int | None:
        """Physical offset at which everything ends that is read of a store that is being written; None if it is not."""
        return self.log_end if self.is_live else None

    @cached_property
    def log_end(self) -> int:
        """Physical offset one past the log's last record, or where the log begins if it has none."""
        return self.log.begin if self._last is None else self._last.end_offset

    @cached_property
    def last_store_time(self) -> int | None:
        """Store time of the log's last message, ms; None without one."""
        return None if self._last is None else self._last.last_time

    @cached_property
    def _last(self) -> SegmentEnd | None:
        return quick_end(self.log.segments)

    # ---- its parts

    @cached_property
    def log(self) -> Log:
        """The commit log; without any segment if only other parts of the store are there.

        What groups and delay levels of a store that is being written have reached is read before, so that no offset is
        after the end of its queue.
        """
        if self.is_live:
            with suppress(StoreError, OSError):  # who asks for them gets the error
                self.config.hold(*(kind.name for kind in CONFIG_KINDS), TIMER_CHECK_FILE)
        with suppress(StoreNotFoundError):
            return Log.for_reading(self._log_paths())
        return Log(())

    @cached_property
    def asked_log(self) -> Log:
        """That part of the log which the paths name: a segment, a directory, or all; errors as of `Log.of`."""
        is_whole = store_roots(self.paths) == tuple(places_of(self.paths))
        whole = self.log if is_whole or self.is_live else None
        return whole if is_whole and whole is not None and whole.segments else Log.for_reading(self.paths)

    def _log_paths(self) -> StorePaths:
        """Return where the log is: below the root, unless the segments that were given are elsewhere."""
        try:
            root = self.root
        except (InvalidOptionError, UnsupportedStoreError):  # several roots, or an archive
            return self.paths
        is_there = any(directory.is_dir() for directory in log_directories(root)) or any(dledger_logs(root, _FILES))
        return root if is_there else self.paths

    @cached_property
    def queues(self) -> Queues:
        """The consume queues, which end where the log ends; `Queues` opens files when they are needed."""
        root = self.root_for(StoreUse.READ_QUEUES)
        return Queues(root, LogBesideQueues(root, self.log.segments), end=self.end)

    @cached_property
    def index(self) -> Index:
        """The key index."""
        return Index(self.root, end=self.end)

    @cached_property
    def config(self) -> Config:
        """The broker's configuration files, each of which is read when it is asked for."""
        return Config(self.root)

    @cached_property
    def checkpoint(self) -> Mapping[str, int] | None:
        """The fields of the file ``checkpoint``, of any release; None without the file."""
        return read_checkpoint(self.root)

    @cached_property
    def timers(self) -> Timers:
        """The log of timers; without files if there is none."""
        return Timers.of(self.root, self.config)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics that have a queue, or are configured, by name. The log is not read."""
        with Queues(self.root_for(StoreUse.READ_QUEUES)) as queues:
            found = {*queues.topics(), *(self.config.topics or ())}
        if not found and not is_root(self.root, _FILES):
            Log.for_reading(self._log_paths())  # says what is there instead
        return tuple(sorted(found))

    # ---- rows

    def messages(self, **options: Any) -> pa.RecordBatchReader:  # noqa: ANN401 -- as of `read_messages`
        """Read messages, in the order of the log.

        Parameters
        ----------
        **options
            Those of `read_messages`, such as `topic`, `columns`, `key` or `starting_timestamp`.

        Raises
        ------
        StoreError
            As of `read_messages`.
        """
        from store_core.store.read.read_messages import messages_of, parsed_options  # noqa: PLC0415 -- see the import contract

        return messages_of((self,), parsed_options((self,), options), by_moment=True)

    def view(
        self,
        name: str,
        columns: str | list[str] | tuple[str, ...] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> pa.RecordBatchReader:
        """Read a view: a table of what is beside the log.

        Parameters
        ----------
        name : str
            Such as ``"topics"``; those of `read_view`.
        columns : str or sequence of str, optional
            Only these are computed.
        **options
            Those of `read_view`.

        Raises
        ------
        StoreError
            As of `read_view`.
        """
        from store_core.views.view import view_of  # noqa: PLC0415 -- see the import contract

        return view_of((self,), name, columns, options)

    def sql(self, query: str) -> pa.RecordBatchReader:
        """Ask in SQL, by DuckDB: the tables are ``messages`` and the views.

        Parameters
        ----------
        query : str

        Raises
        ------
        StoreError
            As of `store_core.sql`.
        """
        from store_core.views.sql import rows_of  # noqa: PLC0415 -- see the import contract

        return rows_of(query, self.view)

    def scan(self, view: str = "messages") -> pa.dataset.Dataset:
        """Return a view as a dataset of Arrow, from which DuckDB and Polars read the columns and rows that they need.

        Parameters
        ----------
        view : str
            Such as ``"topics"``; those of `read_view`.
        """
        from store_core.views.sql import ViewDataset  # noqa: PLC0415 -- see the import contract

        return ViewDataset(self.view, view)


def _restored(kind: type[Store], paths: StorePaths, moment: Mapping[str, object]) -> Store:
    store = kind(paths)
    store.__dict__.update(moment)
    return store


def stores_of(
    paths: StorePaths | Sequence[Store],
    *,
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    storage: Mapping[str, object] | StorageSettings | str | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
) -> tuple[Store, ...]:
    """Return the stores at some paths: several directories of one log are one, roots are one each.

    Parameters
    ----------
    paths : path or sequence of paths, or of Store
        Also patterns such as ``"/data/*/store"``, and several paths separated by commas. Stores are returned as they
        are.
    config, storage
        As of `Store`; they hold for each.
    store_path_commit_log : path, optional
        As of `Store`: everything is one store then.

    Raises
    ------
    InvalidOptionError
        If it is not certain which paths are parts of one log; the error says how to say it.
    StoreNotFoundError
        If nothing exists at a path, or a pattern matches no store.

    Examples
    --------
    >>> [store.name for store in stores_of("/data/*/store")]  # doctest: +SKIP
    ['broker-a', 'broker-b']
    """
    if isinstance(paths, Sequence) and paths and isinstance(paths[0], Store):
        return tuple(cast("Sequence[Store]", paths))
    paths, settings = cast("StorePaths", paths), StorageSettings.of(storage or {})
    if store_path_commit_log is not None or _is_one(paths):
        return (Store(paths, config=config, storage=settings, store_path_commit_log=store_path_commit_log),)
    from store_core.snapshot.stores import StoreNames, grouped_paths  # noqa: PLC0415 -- most ask for one store

    groups = grouped_paths(paths, settings, _configured_log(config))
    found = tuple(
        Store(group[0] if len(group) == 1 else list(group), config=config, storage=settings) for group in groups
    )
    if len(found) > 1:
        names = StoreNames([store_roots(store.paths)[0] for store in found])
        for at, store in enumerate(found):
            store.__dict__["_among"] = names, at
    return found


def _is_one(paths: StorePaths) -> bool:
    """Return whether a path names one store by its spelling alone, without a look at the disk."""
    if isinstance(paths, list | tuple) and len(paths) == 1:
        return _is_one(paths[0])
    return isinstance(paths, str | os.PathLike) and _SEVERAL.isdisjoint(os.fspath(paths))


def _configured_log(config: MessageStoreConfig | str | os.PathLike[str] | None) -> frozenset[str]:
    """Return the real paths of the directories of a configured log."""
    if config is None:
        return frozenset()
    from store_core.files.segment_listing import SegmentPaths  # noqa: PLC0415 -- as above
    from store_core.store.store_layout import config_of  # noqa: PLC0415 -- see the import contract

    said = config_of(config)
    texts = (said.store_path_commit_log, said.read_only_commit_log_store_paths)
    return frozenset(os.path.realpath(path) for text in texts for path in SegmentPaths.parse(text or "").paths)


def store_at(
    url: str | os.PathLike[str],
    storage: Mapping[str, object] | StorageSettings | str | None = None,
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
) -> str | os.PathLike[str]:
    """Return a path that stands for a store in another storage, with its settings, or for one whose log is elsewhere.

    All functions that read a store take it. Of another storage, what is there is listed when it is first asked for, and
    then stays as it was, so that an answer is about one state: make a new one to see what is there later.

    * `url`: Such as ``"s3://bucket/store"``; a local path is returned as it is, if no configuration is given.
    * `storage`, `config`, `store_path_commit_log`: As of `Store`.

    Examples
    --------
    >>> from store_core import store_at
    >>> from store_core.answers import check
    >>> check(store_at("s3://backup/broker-a/store", {"region": "eu-west-1"})).verdict  # doctest: +SKIP
    """
    paths = Store(url, config=config, storage=storage, store_path_commit_log=store_path_commit_log).paths
    if isinstance(paths, str | os.PathLike):
        return paths
    raise InvalidOptionError(f"path: expected the path of one store, found {url!r}")


def _configured(
    path: StorePaths,
    config: MessageStoreConfig | str | os.PathLike[str] | None,
    store_path_commit_log: str | os.PathLike[str] | None,
) -> StorePaths:
    """Return a path that knows where the log is by a configuration; several are one log by themselves."""
    from store_core.store.store_layout import config_of, configured_root  # noqa: PLC0415 -- see the import contract

    if isinstance(path, str | os.PathLike):
        return configured_root(path, config_of(config, store_path_commit_log))
    if isinstance(path, list | tuple) and len(path) == 1:
        return [configured_root(path[0], config_of(config, store_path_commit_log))]
    return path


def _check_place(place: Path) -> None:
    """Refuse a file beside which the rest of its store can't be."""
    if is_archive(place):
        raise UnsupportedStoreError(
            f"{place} is an archive: only the messages in it can be read, and this needs the store's queues, index or "
            f"configuration. Unpack it, and give the directory"
        )
    if not place.is_dir():
        single_file(place, compressed=True)
