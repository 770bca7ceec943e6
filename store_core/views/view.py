# SPDX-License-Identifier: Apache-2.0
"""A view: its options, the parts of bounded work that it is planned as, and how their rows become Arrow batches."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, TypeVar

import pyarrow as pa

from store_core.errors import InvalidOptionError, SegmentVanishedError, StoreAccessError, StoreError, StoreNotFoundError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_kind import check_parts, dledger_logs
from store_core.files.store_path import StorePaths, log_directories, stores_near
from store_core.format.columnar.arrow_slices import repeat_text
from store_core.format.columns import STORE, column_named, resolve_columns, table_times
from store_core.snapshot.log import retried
from store_core.snapshot.store import Store
from store_core.store.read.chunk_rows import tell_null_time
from store_core.store.read.option_table import READ_OPTIONS, shown_option
from store_core.store.read.option_values import OPTION_PARSERS, parse_names
from store_core.store.read.read_messages import read_messages
from store_core.store.read.read_options import ReadOptions, with_absolute_times
from store_core.store.read.read_plan import log_end_at
from store_core.views.view_columns import View, find_view, is_messages
from store_core.views.view_names import VIEW_PLANS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from store_core.snapshot.config import ConfigFile, ConfigKind


_NAMES: Final = {option.field: option.name for option in READ_OPTIONS}


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How a view is read; made by `parse`, and picklable."""

    name: str  # the view's name
    columns: tuple[str, ...]  # canonical names, in the order of the rows
    read: ReadOptions  # the other options; its `columns` are not used
    log_end: int | None = None
    """Physical offset at which the log ended at the time `as_of`; None without it, and if all records are older. Set by
    `store_core.views.view.resolved`."""

    @classmethod
    def parse(cls, view: object, **named: object) -> Self:
        """Parse options given by name, as text or as Python values; None means "not given"."""
        found = find_view(view)
        given = {name: value for name, value in named.items() if value is not None}
        for name in given:
            if name in OPTION_PARSERS and name not in found.options:
                _refuse(found, name)
        read = ReadOptions.parse(**{name: value for name, value in given.items() if name != "columns"})
        names = parse_names("columns", given["columns"]) if "columns" in given else found.column_names
        _check(found, read)
        return cls(found.name, resolve_columns(names, (*found.columns, column_named(STORE))), read)

    def named(self, store: Store) -> ViewOptions:
        """Return the options for one of several stores, as `ReadOptions.named` does."""
        return replace(self, read=replace(self.read, store_name=store.name)) if STORE in self.columns else self

    @property
    def view(self) -> View:
        """The view."""
        return find_view(self.name)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.view.schema(self.columns)

    def asks_for(self, *columns: str) -> bool:
        """Return whether at least one of some columns is requested."""
        return not set(columns).isdisjoint(self.columns)


def _refuse(view: View, name: str) -> NoReturn:
    taken = ["columns", *(option for option in view.options if option != "columns")]
    shown = ", ".join(_NAMES[option] for option in taken)
    raise InvalidOptionError(
        f"{shown_option(name)} does not apply to view {view.name!r}, which takes {shown}; {view.hint}"
    )


def _check(view: View, read: ReadOptions) -> None:
    """Refuse values and combinations that have no meaning for a view."""
    bounds = {"starting_offsets": read.starting_offsets, "ending_offsets": read.ending_offsets}
    if "queue_id" not in view.options:
        for name, bound in bounds.items():
            if bound.queues:
                raise InvalidOptionError(
                    f"{shown_option(name)}: expected a physical offset for view {view.name!r}, which has no queue "
                    f"offsets, found those of topic {bound.queues[0][0]!r}"
                )
    if "key" in view.options and (read.key is None) != (not read.topic):
        missing, given = ("topic", "key") if read.key is not None else ("key", "topic")
        raise InvalidOptionError(
            f"{shown_option(given)}: expected {shown_option(missing)} with it for view {view.name!r}; {view.hint}"
        )


class ViewPart(Protocol):
    """A part of a planned view: small, picklable, and read on its own. Memory is bounded by its batches."""

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the part's rows, in order, as batches of the options' schema with at least one row."""


def make_batch(options: ViewOptions, makers: Mapping[str, Callable[[], pa.Array]]) -> pa.RecordBatch:
    """Return a batch with the requested columns; the others are not made."""
    return pa.RecordBatch.from_arrays([makers[name]() for name in options.columns], schema=options.schema)


def rebatched(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of `most` rows, but for the last."""
    waiting: list[pa.RecordBatch] = []
    room = most
    for batch in batches:
        rest = batch
        while rest.num_rows:
            waiting.append(rest.slice(0, room))
            rest, room = rest.slice(room), room - waiting[-1].num_rows
            if not room:
                yield _joined(waiting)
                waiting, room = [], most
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def row_batches(options: ViewOptions, rows: Sequence[Mapping[str, object]]) -> Iterator[pa.RecordBatch]:
    """Yield rows, given as mappings that have at least the requested columns."""
    most = options.read.max_records_per_batch
    for first in range(0, len(rows), most):
        yield pa.RecordBatch.from_pylist(rows[first : first + most], schema=options.schema)


def timestamps(
    milliseconds: npt.NDArray[np.int64], options: ViewOptions, name: str, place: Callable[[int], str]
) -> pa.TimestampArray:
    """Return times as a column, null outside the range of tables, and say so once in a read.

    * `place`: Says what the time of a row belongs to.
    """
    column = table_times(milliseconds)
    if column.null_count:
        row = column.is_null().index(True).as_py()
        tell_null_time(options.read, place(row), name, int(milliseconds[row]))
    return column


def name_text(name: str) -> str:
    """Return a file's or directory's name as text; bytes that are not UTF-8 become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_log: Final = logging.getLogger("store_core")

T = TypeVar("T")


def read_table(store: Store, kind: ConfigKind[T], options: ViewOptions) -> ConfigFile[T] | None:
    """Read a configuration file that is all that a view has; None if `fail_on_data_loss` is off and it is not there."""
    config = store.config.of_release(options.read.release)
    found = config.read(kind)
    if found is None:
        tell(config.absent(kind, ". With failOnDataLoss=false there are no rows."), options)
    return found


def tell(error: StoreError, options: ViewOptions) -> None:
    """Raise the error of what is wrong or not there; log it if `fail_on_data_loss` is off."""
    if options.read.fail_on_data_loss:
        raise error
    _log.warning("%s", error)


@contextmanager
def going_on(options: ViewOptions) -> Iterator[None]:
    """Go on after what vanished since it was planned, and log it, if `fail_on_data_loss` is off."""
    try:
        yield
    except SegmentVanishedError as error:
        if options.read.fail_on_data_loss:
            raise
        _log.warning("%s", error.problem)


def absent(root: Path, words: str, made: str = "") -> StoreError:
    """Return the error that a part of a store is not there, or no directory, and how the log `made` it if it can."""
    try:
        if made:
            check_parts(root, OsFileSystem())
    except StoreAccessError as error:
        return error
    logs = log_directories(root)
    if made and any(names_in(log, OsFileSystem()) for log in logs) and not any(dledger_logs(root, OsFileSystem())):
        words += f", or make {made} from the log: commitlog rebuild {made} {root} --output DIRECTORY"
    return StoreNotFoundError(f"{words}. With failOnDataLoss=false there are no rows.{stores_near([root])}")


def resolved(store: Store, options: ViewOptions) -> ViewOptions:
    """Return options that know where the log ends for them: at `as_of`, or with the moment of a store that is written.

    Called once, before `plan_view`.
    """
    if options.log_end is not None or "as_of" not in options.view.options:
        return options
    as_of = options.read.as_of
    return replace(options, log_end=store.end if as_of is None else log_end_at(store, as_of))


def plan_view(store: Store, options: ViewOptions) -> tuple[ViewPart, ...]:
    """Plan the reading of a view; called once, before any part is read.

    * `options`: As `resolved` returns them.

    Returns: In the order of the rows; each can be pickled, and read by any process that sees the files.
    """
    plan: Callable[[Store, ViewOptions], Sequence[ViewPart]] = resolve_name(VIEW_PLANS[options.name].function)
    stores = chain([store], (Store(store.paths) for _ in count()))  # one taken anew does not have what was deleted
    return retried(lambda: tuple(plan(next(stores), options)))


def read_view(
    path: StorePaths,
    view: str,
    columns: str | list[str] | tuple[str, ...] | None = None,
    **options: Any,  # noqa: ANN401 -- as of `read_messages`
) -> pa.RecordBatchReader:
    """Read a view of a store: a table of what is beside the log. Nothing is written, and no lock taken.

    Parameters
    ----------
    path : path or sequence of paths
        The store's root, its ``commitlog`` directory, or a segment file; or several stores, as of `read_messages`.
    view : str
        ``"consumequeue"``, ``"index"``, ``"segments"``, ``"topics"``, ``"consumer_offsets"``,
        ``"subscription_groups"``, ``"delay_offsets"``, ``"checkpoint"``, ``"timerlog"``, ``"timerwheel"`` or
        ``"rocksdbstore"``;
        ``"messages"`` is `read_messages`. The page on views has the columns of each.
    columns : str or sequence of str, optional
        Names in any case; only these are computed.
    **options
        Those options of `read_messages` that make sense for the view, such as `topic`; others are refused by name.

    Returns
    -------
    pyarrow.RecordBatchReader
        What was there when this function was called.

    Raises
    ------
    StoreError
        If view, option or column is not known, or the store has nothing for the view. What only reading finds is
        raised by the batch that reaches it.

    Examples
    --------
    >>> table = read_view(store, "topics", columns=["topic", "messages"]).read_all()  # doctest: +SKIP
    """
    if is_messages(view):
        return read_messages(path, columns=columns, **options)
    parsed = ViewOptions.parse(view, columns=columns, **with_absolute_times(path, options))
    return _rows_of(parsed.read.stores_of(path), parsed)


def view_of(
    stores: Sequence[Store], view: str, columns: str | list[str] | tuple[str, ...] | None, options: Mapping[str, Any]
) -> pa.RecordBatchReader:
    """Read a view of stores, or their messages, one after the other; see `Store.view`."""
    if is_messages(view):
        readers = [store.messages(columns=columns, **options) for store in stores]
        return pa.RecordBatchReader.from_batches(readers[0].schema, chain.from_iterable(readers))
    return _rows_of(stores, ViewOptions.parse(view, columns=columns, **with_absolute_times(stores, options)))


def _rows_of(stores: Sequence[Store], options: ViewOptions) -> pa.RecordBatchReader:
    asked = [(store, resolved(store, options.named(store))) for store in stores]
    planned = [(part, each) for store, each in asked for part in plan_view(store, each)]
    batches = (batch for part, each in planned for batch in part_batches(part, each))
    return pa.RecordBatchReader.from_batches(options.schema, batches)


def part_batches(part: ViewPart, options: ViewOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, with the column that says of which store they are, if it is requested."""
    if STORE not in options.columns:
        yield from part.batches(options)
        return
    others = tuple(name for name in options.columns if name != STORE) or options.view.column_names[:1]
    for batch in part.batches(replace(options, columns=others)):
        store = repeat_text(options.read.store_name, batch.num_rows)
        arrays = [store if name == STORE else batch[name] for name in options.columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=options.schema)
