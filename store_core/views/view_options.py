# SPDX-License-Identifier: Apache-2.0
"""The options of a view: those of the messages that make sense for it; others are refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Self

from store_core.errors import InvalidOptionError
from store_core.format.columns import resolve_columns
from store_core.store.read.option_checks import shown_option
from store_core.store.read.option_table import READ_OPTIONS
from store_core.store.read.option_values import OPTION_PARSERS, parse_names
from store_core.store.read.read_options import ReadOptions
from store_core.views.view_columns import View, find_view

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ViewOptions"]

_NAMES: Final = {option.field: option.name for option in READ_OPTIONS}


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How a view is read; made by `parse`, and picklable.

    Attributes
    ----------
    name : str
        The view's name.
    columns : tuple of str
        Canonical names, in the order of the rows.
    read : ReadOptions
        The other options; its `columns` are not used.
    log_end : int or None
        Physical offset at which the log ended at the time `as_of`; None without it, and if all records are older. Set
        by `store_core.views.view_plan.resolved`.
    """

    name: str
    columns: tuple[str, ...]
    read: ReadOptions
    log_end: int | None = None

    @classmethod
    def parse(cls, view: object, **named: object) -> Self:
        """Parse options given by name, as text or as Python values; None means "not given".

        Raises
        ------
        InvalidOptionError
            If view, option or column is unknown (the message suggests the nearest), the view does not take an option,
            a value is invalid, or two options contradict.
        """
        found = find_view(view)
        given = {name: value for name, value in named.items() if value is not None}
        for name in given:
            if name in OPTION_PARSERS and name not in found.options:
                _refuse(found, name)
        read = ReadOptions.parse(**{name: value for name, value in given.items() if name != "columns"})
        names = parse_names("columns", given["columns"]) if "columns" in given else found.column_names
        _check(found, read)
        return cls(found.name, resolve_columns(names, found.columns), read)

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
