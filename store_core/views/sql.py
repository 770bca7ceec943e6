# SPDX-License-Identifier: Apache-2.0
"""SQL over the messages and the views of a store, in the process, by DuckDB.

Each view is a dataset of Arrow, which an engine asks for the columns and the conditions of a query: only these columns
are decoded, and conditions on topic, queue, times, ids and positions narrow what is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.format.columns import COLUMNS, CORRUPT_RECORD, STORE, column_named
from store_core.snapshot.store import stores_of
from store_core.views.view import view_of
from store_core.views.view_columns import MESSAGES, find_view, is_messages
from store_core.views.view_names import ALWAYS, VIEW_PLANS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from store_core.files.store_path import StorePaths

    ViewReader = Callable[..., pa.RecordBatchReader]


_ROWS: Final = 16_384
_SETTINGS: Final = {"autoinstall_known_extensions": "false", "python_enable_replacements": "false"}
"""Nothing is fetched from elsewhere, and no variable of the program is a table."""

_WHOLE: Final = re.compile(r"U?HUGEINT|DECIMAL\(\d+,0\)")
_TEXT_ONLY: Final = re.compile(r'\bINTERVAL\b|\bUNION\(|\bVARIANT\b|\bMAP\("NULL"')
"""Types of DuckDB that are whole numbers in a wider form, and those that Parquet or Arrow itself does not take."""

_COMPARED: Final = re.compile(r'\((\w+) (==|>=|>|<=|<) (?:"([^"\\]*)"|([-\d:.TZ ]+))\)')
_LISTED: Final = re.compile(
    r"if_else\(is_valid\((\w+)\), is_in\(\1, \{value_set=\w+:\[((?:\s+(?:\"[%|$\w-]*\"|-?\d+),?)*)\s*\], "
    r"null_matching_behavior=MATCH\}\), null\[bool\]\)"
)
"""How Arrow writes that a column has one of some values; it leaves out the middle of long lists and of long texts."""

_MARKS: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|[(\[{)\]}]| and ', re.DOTALL)
"""What says where a condition ends: quoted text as a whole, brackets, and the word between two conditions."""

_POINTS: Final = {"msg_id": "msg_id", "physical_offset": "physical_offset", "uniq_msg_id": "unique_key"}
"""Column -> the option that finds its rows; the first one that is asked for is taken."""


def sql(query: str, path: StorePaths, **options: Any) -> pa.RecordBatchReader:  # noqa: ANN401 -- as of `read_view`
    """Ask a store in SQL, without Spark. Nothing is written to it, and no lock taken.

    Parameters
    ----------
    query : str
        In the language of DuckDB. The tables are ``messages`` and the views, such as ``consumequeue``, ``topics`` and
        ``consumer_offsets``. Only the columns that it names are decoded; conditions on topic, queue, store time, ids
        and positions narrow what is read.
    path : path or sequence of paths
        Also several stores, as of `read_messages`: the column ``store`` of each table tells them apart.
    **options
        Options that every view takes: `release`, `storage`, `config`, `store_path_commit_log`, `fail_on_data_loss`.

    Returns
    -------
    pyarrow.RecordBatchReader
        Times are in UTC.

    Raises
    ------
    StoreError
        If the store can't be read, or the query is wrong. What only reading finds is raised by the batch that reaches
        it.

    Examples
    --------
    >>> sql("SELECT topic, count(*) FROM messages GROUP BY topic", store).read_all()  # doctest: +SKIP
    """
    places = {name: options.pop(name, None) for name in ("config", "storage", "store_path_commit_log")}
    stores = stores_of(path, **places)

    def read(view: str, columns: list[str] | None = None, **narrowed: Any) -> pa.RecordBatchReader:  # noqa: ANN401 -- as above
        return view_of(stores, view, columns, {**options, **({} if options.keys() - {*ALWAYS} else narrowed)})

    return rows_of(query, read, are_several=len(stores) > 1)


def rows_of(query: str, read: ViewReader, *, are_several: bool = False) -> pa.RecordBatchReader:
    """Return the rows of a query whose tables are read by a function, of one store or several; see `sql`."""
    try:
        import duckdb  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise UnsupportedStoreError("SQL without Spark needs DuckDB: pip install 'duckdb>=1.5'") from error
    tables = {name: ViewDataset(read, name, are_several=are_several) for name in (MESSAGES, *VIEW_PLANS)}
    connection = duckdb.connect(config={**_SETTINGS})
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in tables.items():
        connection.register(name, table)
    try:
        found = connection.sql(query)
        if found is None:
            raise InvalidOptionError(f"expected a query that returns rows, found {query!r}")
        named = found.project("*")  # which numbers names that occur twice
        columns = (_shown(*each) for each in zip(named.columns, map(str, named.types), strict=True))
        reader = named.project(", ".join(columns)).to_arrow_reader(_ROWS)
    except duckdb.Error as error:
        raise _failure(tables, error) from error
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader, tables, connection))


def _shown(name: str, kind: str) -> str:
    """Return a column of a query in SQL, as whole numbers or text if formats have nothing for its type."""
    quoted = '"{}"'.format(name.replace('"', '""'))
    cast = "BIGINT" if _WHOLE.fullmatch(kind) else "VARCHAR" if _TEXT_ONLY.search(kind) else None
    return f"CAST({quoted} AS {cast}) AS {quoted}" if cast else quoted


def _batches(reader: pa.RecordBatchReader, tables: dict[str, ViewDataset], _open: object) -> Iterator[pa.RecordBatch]:
    """Yield the rows; the connection is open as long."""
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        raise _failure(tables, error) from error


def _failure(tables: dict[str, ViewDataset], error: Exception) -> BaseException:
    """Return what reading a table raised, or else an engine's error in words."""
    advice = ". Numbers have 64 bits: CAST larger ones AS DOUBLE" if "INT64" in str(error) else ""
    told = InvalidOptionError(f"the query: {error}{advice}")
    return next((table.failure for table in tables.values() if table.failure is not None), told)


class ViewDataset(ds.InMemoryDataset):  # type: ignore[misc]  # pyarrow has no types
    """A view of a store, of which an engine reads what it needs; who reads it is `read_view`, or `Store.view`."""

    def __init__(self, read: ViewReader, view: str, *, are_several: bool = False) -> None:
        own = (column_named(STORE),) if are_several else ()
        columns = COLUMNS if is_messages(view) else (*find_view(view).columns, *own)
        shown = [column for column in columns if column.name != CORRUPT_RECORD]
        super().__init__(pa.schema([pa.field(column.name, column.type) for column in shown]).empty_table())
        self._read, self._view = read, view
        self.failure: BaseException | None = None
        """What reading raised: engines pass on only its text."""

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 -- Arrow's name
        **_unused: Any,  # noqa: ANN401 -- batch sizes, and how Arrow reads files
    ) -> ViewScanner:
        """Return a scanner of the rows that meet a condition; of no others more is decoded than needed to tell."""
        asked = list(self.schema.names if columns is None else columns)
        try:
            text = "" if filter is None else str(filter)
        except UnicodeDecodeError:  # Arrow cuts a long list amid a letter: the condition may test any column
            text = " ".join(self.schema.names)
        tested = [name for name in self.schema.names if re.search(rf"\b{name}\b", text) and name not in asked]
        reader = self._reader([*asked, *tested] or [self.schema.names[0]], text)
        schema = pa.schema([reader.schema.field(name) for name in asked])
        return ViewScanner(pa.RecordBatchReader.from_batches(schema, self._rows(reader, asked, filter)))

    def _reader(self, columns: list[str], condition: str) -> pa.RecordBatchReader:
        narrowed = options_of(condition, self._view)
        try:
            try:
                return self._read(self._view, columns=columns, **narrowed)
            except InvalidOptionError:  # such as an id that none can be: then no row has it
                return self._read(self._view, columns=columns)
        except BaseException as error:
            self.failure = error
            raise

    def _rows(
        self, reader: pa.RecordBatchReader, columns: list[str], condition: ds.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                found = pa.Table.from_batches([batch])
                if condition is not None:
                    found = found.filter(condition)
                yield from found.select(columns).to_batches()
        except GeneratorExit:  # the engine wants no more
            raise
        except BaseException as error:
            self.failure = error
            raise

    def get_fragments(self, filter: ds.Expression | None = None) -> NoReturn:  # noqa: A002 -- Arrow's name
        """Refuse: rows come by `scanner` alone."""
        raise NotImplementedError("a view of a store has no fragments; use its scanner")


class ViewScanner:
    """The rows of a scan, as Arrow's own scanner gives them, but read by whoever asks, in its thread."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.reader = reader

    @property
    def projected_schema(self) -> pa.Schema:
        """Columns of the rows."""
        return self.reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows, once."""
        return self.reader

    def to_table(self) -> pa.Table:
        """Read all rows, once."""
        return self.reader.read_all()


def options_of(condition: str, view: str = "messages") -> dict[str, Any]:
    """Return options of a read that leave out no row that meets a condition.

    * `condition`: As Arrow writes an expression. What is not understood narrows nothing.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for part in _conjuncts(condition):
        compared, listed = _COMPARED.fullmatch(part), _LISTED.fullmatch(part)
        if compared:
            found.setdefault(compared[1], []).append((compared[2], compared[3] if compared[4] is None else compared[4]))
        elif listed:
            found.setdefault(listed[1], []).append(("in", listed[2]))
    options: dict[str, Any] = {
        name: values for name in ("topic", "queue_id") if (values := _values(found.get(name, ())))
    }
    if is_messages(view):
        options |= _times(found) | _point(found)
    return {each: options[each] for each in options if is_messages(view) or each in find_view(view).own_options}


def _conjuncts(text: str) -> Iterator[str]:
    """Yield the conditions that all have to hold; quoted text has its quotes escaped."""
    inner, depth = text[1:-1], 0
    for found in _MARKS.finditer(inner) if text.startswith("(") and text.endswith(")") else ():
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if found[0] == " and " and depth == 0:
            yield from _conjuncts(inner[: found.start()])
            yield from _conjuncts(inner[found.end() :])
            return
    yield text


def _values(conditions: Sequence[tuple[str, str]]) -> list[str]:
    """Return the values of the first condition that names all that a column may have."""
    for operator, text in conditions:
        if operator == "==":
            return [text]
        if operator == "in":
            return re.findall(r'"([^"]*)"', text) or re.findall(r"-?\d+", text)
    return []


def _times(found: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, int]:
    """Return the range of store times, in whole milliseconds, that has all rows."""
    bounds = [(operator, int(text)) for operator, text in found.get("store_timestamp_ms", ()) if operator != "in"]
    times = [(operator, text) for operator, text in found.get("store_timestamp", ()) if operator != "in"]
    bounds += [(operator, int(np.datetime64(text.rstrip("Z"), "ms").astype(np.int64))) for operator, text in times]
    begins = [ms for operator, ms in bounds if operator in (">", ">=", "==")]
    ends = [ms + 1 for operator, ms in bounds if operator in ("<", "<=", "==")]
    chosen = {"starting_timestamp": max(begins, default=None), "ending_timestamp": min(ends, default=None)}
    return {name: value for name, value in chosen.items() if value is not None}


def _point(found: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str]:
    for column, option in _POINTS.items():
        for operator, text in found.get(column, ()):
            if operator == "==":
                return {option: text}
    return {}
