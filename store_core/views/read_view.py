# SPDX-License-Identifier: Apache-2.0
"""Reading a view of a store in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from store_core.snapshot.store import Store
from store_core.store.read.read_messages import read_messages
from store_core.store.read.relative_time import with_absolute_times
from store_core.views.view import ViewOptions, plan_view, resolved
from store_core.views.view_columns import is_messages

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from store_core.files.store_path import StorePaths

__all__ = ["read_view", "view_at_end"]


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
        The store's root, its ``commitlog`` directory, or a segment file.
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
    return view_of(Store(parsed.read.configured(path), storage=parsed.read.storage), parsed)


def view_of(store: Store, options: ViewOptions) -> pa.RecordBatchReader:
    """Read a view of a store; see `read_view`."""
    parsed = resolved(store.paths, options)
    batches = (batch for part in plan_view(store.paths, parsed) for batch in part.batches(parsed))
    return pa.RecordBatchReader.from_batches(parsed.schema, batches)


def view_at_end(
    store: Store, view: str, columns: str | list[str] | tuple[str, ...] | None, options: Mapping[str, Any]
) -> pa.RecordBatchReader:
    """Read a view of a store, or its messages, up to where the store ends; see `Store.view`."""
    if is_messages(view):
        return store.messages(columns=columns, **options)
    parsed = ViewOptions.parse(view, columns=columns, **with_absolute_times(store.paths, options))
    is_older = parsed.read.as_of is not None
    return view_of(store, parsed if is_older else replace(parsed, log_end=store.end))
