# SPDX-License-Identifier: Apache-2.0
"""Properties of many records as columns and as maps.

If all strings have one layout, as those of one producer do, names and value positions are those of the first string,
and columns of bytes suffice. Otherwise nearly every string is a plain run of ``name 1 value 2``, and the separators'
positions cut all names and values out of one buffer. Rows that break the pattern (empty or missing parts, a separator
inside a value, a duplicate name, bytes that are not UTF-8) go through `store_core.format.properties.parse_properties`,
which is the definition of all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.arrow_slices import (
    as_checked_text,
    as_text,
    binary_parts,
    numbers,
    take_alternate,
    take_rows,
    take_slices,
)
from store_core.format.columnar.property_spans import PropertyLayout
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE
from store_core.format.properties import KEY_SEPARATOR, PropertyParser, decode_text, first_property, parse_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class AlikeProperties:
    """Properties of `n` strings with the same names in the same order, and values of the same lengths.

    * `table`: uint8, shape (n, size), contiguous: the strings, which are UTF-8.
    * `layout`: The layout of all of them.
    """

    __slots__ = ("_layout", "_table")

    def __init__(self, table: npt.NDArray[np.uint8], layout: PropertyLayout) -> None:
        self._table = table
        self._layout = layout

    @classmethod
    def of(cls, packed: pa.BinaryArray) -> AlikeProperties | None:
        """Return the properties of strings (shape (n,), offset 0); None unless all are alike, plain and UTF-8."""
        offsets, data, _ = binary_parts(packed)
        size = int(offsets[1]) if len(packed) else 0
        if not size or not (np.diff(offsets) == size).all():
            return None
        table = data[: offsets[-1]].reshape(-1, size)
        layout = PropertyLayout.of(table[0].tobytes())
        if layout is None or layout.fits(table) is not None:
            return None
        if as_text(packed) is None:
            return None
        return cls(table, layout)

    def map(self) -> pa.MapArray:
        """Return all properties of each row."""
        rows, names = len(self._table), self._layout.names
        bounds = np.arange(rows + 1, dtype=np.int32) * np.int32(len(names))
        keys = _texts(b"".join(names) * rows, [len(name) for name in names], rows)
        return property_maps(bounds, keys, self._values())

    def value(self, name: str) -> pa.StringArray:
        """Return one property of each row, null where it is absent."""
        rows = len(self._table)
        if name.encode() not in self._layout.names:
            return pa.nulls(rows, pa.string())
        start, stop = self._layout.values[self._layout.names.index(name.encode())]
        return _texts(np.ascontiguousarray(_cells(self._table, start, stop)), [stop - start], rows)

    def _values(self) -> pa.StringArray:
        """Return the values of all rows, row by row."""
        widths = [stop - start for start, stop in self._layout.values]
        joined = np.empty((len(self._table), sum(widths)), np.uint8)
        at = 0
        for (start, stop), width in zip(self._layout.values, widths, strict=True):
            _cells(joined, at, at + width)[:] = _cells(self._table, start, stop)
            at += width
        return _texts(joined, widths, len(joined))


def property_maps(bounds: npt.NDArray[np.int32], keys: pa.StringArray, values: pa.StringArray) -> pa.MapArray:
    """Return maps of names and values: row i has the pairs ``bounds[i]`` to ``bounds[i + 1]``."""
    entries = pa.StructArray.from_arrays([keys, values], fields=[MAP_TYPE.key_field, MAP_TYPE.item_field])
    return pa.Array.from_buffers(MAP_TYPE, bounds.size - 1, [None, pa.py_buffer(bounds)], children=[entries])


def _cells(table: npt.NDArray[np.uint8], start: int, stop: int) -> npt.NDArray[np.void]:
    """View adjacent columns of a contiguous table as one column of opaque items, which are copied whole."""
    return np.ndarray((len(table),), f"V{stop - start}", table, start, table.strides[:1])


def _texts(data: bytes | npt.NDArray[np.generic], widths: Sequence[int], rows: int) -> pa.StringArray:
    """Return `data` as texts, which have these widths in each row."""
    ends = np.cumsum(widths, dtype=np.int32)
    offsets = np.zeros(rows * ends.size + 1, np.int32)
    begins = np.arange(rows, dtype=np.int32) * ends[-1]
    for number, end in enumerate(ends):
        np.add(begins, end, out=offsets[1 + number :: ends.size])
    return pa.Array.from_buffers(pa.string(), offsets.size - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


_NAME_END: Final = 1
_VALUE_END: Final = 2
_BLANK: Final = ord(KEY_SEPARATOR)
_MOST_PAIRS: Final = 64
"""Rows with more properties are left to the parser: the search for duplicate names compares all with all."""


class PropertyColumns:
    """Properties of a batch of records as columns of `n` rows.

    * `packed`: The properties strings, shape (n,), offset 0.
    """

    __slots__ = ("_odd", "_order", "_parsed", "_parser", "_plain")

    def __init__(self, packed: pa.BinaryArray, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> None:
        self._plain: AlikeProperties | _Pairs
        self._odd: list[str] = []
        self._parsed: list[dict[str, str]] = []
        self._parser = parser
        self._order: npt.NDArray[np.int64] | None = None
        alike = AlikeProperties.of(packed)
        if alike is None:
            # Rows that are not plain are left to the parser.
            rows, odd_rows = np.arange(len(packed)), np.empty(0, np.int64)
            pairs, odd = _cut(packed)
            while odd.any():
                odd_rows = np.concatenate([odd_rows, rows[odd]])
                rows = rows[~odd]
                pairs, odd = _cut(take_rows(packed, rows))
            self._plain = pairs
            self._odd = [decode_text(packed[row].as_py()) for row in odd_rows.tolist()]
            self._parsed = [parse_properties(text, parser) for text in self._odd]
            if self._parsed:
                self._order = np.argsort(np.concatenate([rows, odd_rows]))
        else:
            self._plain = alike

    def map(self) -> pa.MapArray:
        """Return all properties of each row."""
        plain = self._plain.map()
        if self._order is None:
            return plain
        return self._merge(plain, pa.array([list(row.items()) for row in self._parsed], MAP_TYPE))

    def value(self, name: str) -> pa.StringArray:
        """Return one property of each row, null where it is absent."""
        plain = self._plain.value(name)
        if self._order is None:
            return plain
        return self._merge(plain, pa.array([row.get(name) for row in self._parsed], pa.string()))

    def first(self, name: str) -> pa.StringArray:
        """Return the first value of a property of each row, where `value` has the last; null where it is absent."""
        plain = self._plain.value(name)  # no name occurs twice in these
        if self._order is None:
            return plain
        firsts = [first_property(text, name, self._parser) for text in self._odd]
        return self._merge(plain, pa.array(firsts, pa.string()))

    def _merge(self, plain: pa.Array, parsed: pa.Array) -> pa.Array:
        """Merge plain and parsed rows in the order of the records."""
        order = np.empty(0, np.int64) if self._order is None else self._order
        return take_rows(pa.concat_arrays([plain, parsed]), order)


def split_key_column(keys: pa.StringArray) -> pa.ListArray:
    """Split the KEYS property of each row at blanks, dropping empty keys; null stays null.

    Each row equals `store_core.format.properties.split_keys` of its value.
    """
    offsets, data, _ = binary_parts(keys)
    data = data[: offsets[-1]]
    is_key = data != _BLANK
    filled = offsets[1:] > offsets[:-1]
    if not is_key.all():
        starts, stops = _tokens(is_key, offsets)
        tokens = as_checked_text(take_slices(data, starts, stops))
        bounds = np.searchsorted(starts, offsets).astype(np.int32)
    elif filled.all():
        tokens, bounds = keys, np.arange(len(keys) + 1, dtype=np.int32)
    else:
        tokens, bounds = take_rows(keys, np.flatnonzero(filled)), _running_count(filled)
    validity = keys.buffers()[0]
    return pa.Array.from_buffers(STRINGS_TYPE, len(keys), [validity, pa.py_buffer(bounds)], children=[tokens])


def _running_count(chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return how many are chosen before each position, and in total: shape (n + 1,)."""
    counts = np.zeros(chosen.size + 1, np.int32)
    np.cumsum(chosen, out=counts[1:])
    return counts


def _tokens(
    is_key: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return starts and stops of the runs of key bytes within each row."""
    is_first = np.zeros(is_key.size, np.bool_)
    is_first[offsets[:-1][np.diff(offsets) > 0]] = True
    begins, ends = is_key.copy(), is_key.copy()
    begins[1:] &= ~is_key[:-1] | is_first[1:]
    ends[:-1] &= ~is_key[1:] | is_first[1:]
    return np.flatnonzero(begins), np.flatnonzero(ends) + 1


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Names and values of plain rows: row i has the pairs ``bounds[i]`` to ``bounds[i + 1]``.

    `ids` number the names within `names`; None if every row has exactly the names of the first one.
    """

    bounds: npt.NDArray[np.int32]
    keys: pa.StringArray
    values: pa.StringArray
    names: list[str]
    ids: npt.NDArray[np.int32] | None
    owners: npt.NDArray[np.int32]
    """The row of each pair; empty without `ids`."""

    def map(self) -> pa.MapArray:
        return property_maps(self.bounds, self.keys, self.values)

    def value(self, name: str) -> pa.StringArray:
        rows = self.bounds.size - 1
        if name not in self.names:
            return pa.nulls(rows, pa.string())
        number = self.names.index(name)
        if self.ids is None:
            return take_rows(self.values, self.bounds[:-1] + np.int32(number))
        hits = np.flatnonzero(self.ids == number)
        present = np.zeros(rows, np.bool_)
        present[self.owners[hits]] = True
        return _spread(take_rows(self.values, hits), present)


_NO_PAIRS: Final = _Pairs(
    np.zeros(1, np.int32), pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), [], None, np.empty(0, np.int32)
)


def _spread(values: pa.StringArray, present: npt.NDArray[np.bool_]) -> pa.StringArray:
    """Return one value for each row that has one, in order, and null for the others."""
    if present.all():
        return values
    offsets, _, data = binary_parts(values)
    bounds = offsets.take(_running_count(present))
    validity = np.packbits(present, bitorder="little")
    buffers = [pa.py_buffer(validity), pa.py_buffer(bounds), data]
    return pa.Array.from_buffers(pa.string(), present.size, buffers, present.size - len(values))


def _cut(packed: pa.BinaryArray) -> tuple[_Pairs, npt.NDArray[np.bool_]]:
    """Split rows into names and values if all are plain; also return which rows are not."""
    offsets, data, buffer = binary_parts(packed)
    marks, first = _separators(offsets, data)
    odd = _rows_out_of_turn(marks, first, data) | _rows_not_utf8(packed)
    if odd.any():
        return _NO_PAIRS, odd
    bounds = (first >> 1).astype(np.int32)
    cuts = np.empty(2 * marks.size, np.int32)  # start and stop of name and value of every pair
    cuts[1::2] = marks
    cuts[2::2] = marks[:-1] + 1
    filled = bounds[1:] > bounds[:-1]
    cuts[0::4][bounds[:-1][filled]] = offsets[:-1][filled]
    empty = cuts[1::2] <= cuts[0::2]
    if empty.any():
        return _NO_PAIRS, _rows_of(np.flatnonzero(empty) >> 1, bounds)
    keys = as_checked_text(take_alternate(cuts, buffer, 0, 4))
    names, ids = _number_names(keys, bounds)
    values = as_checked_text(take_alternate(cuts, buffer, 2, 4))
    counts = np.diff(bounds)
    owners = np.repeat(np.arange(counts.size, dtype=np.int32), 0 if ids is None else counts)
    return _Pairs(bounds, keys, values, names, ids, owners), _rows_with_twins(names, ids, bounds)


def _separators(
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the separators, and the number of each row's first one.

    Rows that do not end with one (written by RocketMQ 4.9.1 to 5.1) get one after their last byte.
    """
    marks = np.flatnonzero(data <= _VALUE_END)
    first = _first_marks(marks, offsets)
    filled = offsets[1:] > offsets[:-1]
    unended = filled & (data.take(offsets[1:] - 1, mode="clip") != _VALUE_END) if data.size else filled
    if unended.any():
        marks = np.insert(marks, first[1:][unended], offsets[1:][unended])
        first[1:] += np.cumsum(unended)
    return marks, first


def _first_marks(marks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return the number of each row's first separator; directly if all rows have equally many."""
    rows = offsets.size - 1
    each = marks.size // rows if rows else 0
    if each and each * rows == marks.size:
        table = marks.reshape(rows, each)
        if (table[:, 0] >= offsets[:-1]).all() and (table[:, -1] < offsets[1:]).all():
            return np.arange(rows + 1) * each
    return np.searchsorted(marks, offsets)


def _rows_out_of_turn(
    marks: npt.NDArray[np.int64], first: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> npt.NDArray[np.bool_]:
    """Return which rows' separators are not 1, 2, 1, 2 and so on.

    The last one of a row is a 2, or stands for one, so only those before it need a check.
    """
    counts = np.diff(first)
    odd: npt.NDArray[np.bool_] = (counts & 1) != 0
    kinds = data.take(marks, mode="clip") if data.size else np.empty(0, np.uint8)
    kinds[first[1:][counts > 0] - 1] = _VALUE_END
    if not odd.any() and (kinds[0::2] == _NAME_END).all() and (kinds[1::2] == _VALUE_END).all():
        return odd
    turn = np.arange(kinds.size) - np.repeat(first[:-1], counts)
    wrong = kinds != (turn & 1) + _NAME_END
    odd[_row_numbers(np.flatnonzero(wrong), first)] = True
    return odd


def _row_numbers(
    items: npt.NDArray[np.int64], bounds: npt.NDArray[np.int32] | npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the row of each item, where row i has the items ``bounds[i]`` to ``bounds[i + 1]``."""
    return np.searchsorted(bounds, items, side="right") - 1


def _rows_of(items: npt.NDArray[np.int64], bounds: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return which rows have any of the items."""
    marked = np.zeros(bounds.size - 1, np.bool_)
    marked[_row_numbers(items, bounds)] = True
    return marked


def _rows_not_utf8(packed: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    if as_text(packed) is not None:
        return np.zeros(len(packed), np.bool_)
    return np.array([as_text(packed[row : row + 1]) is None for row in range(len(packed))], np.bool_)


def _number_names(
    keys: pa.StringArray, bounds: npt.NDArray[np.int32]
) -> tuple[list[str], npt.NDArray[np.int32] | None]:
    """Return the distinct names and each name's number; no numbers if all rows repeat the first row's names."""
    rows, pairs = bounds.size - 1, len(keys)
    width = int(bounds[1]) if rows else 0
    if width * rows == pairs and width and np.array_equal(bounds, np.arange(rows + 1) * width):
        offsets, data, _ = binary_parts(keys)
        lengths = np.diff(offsets).reshape(rows, width)
        size = int(offsets[width])
        if (lengths == lengths[0]).all() and (data[: offsets[-1]].reshape(rows, size) == data[:size]).all():
            return keys[:width].to_pylist(), None
    encoded = keys.dictionary_encode()
    return encoded.dictionary.to_pylist(), numbers(encoded.indices)


def _rows_with_twins(
    names: list[str], ids: npt.NDArray[np.int32] | None, bounds: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Return which rows have a duplicate name, or too many names to check."""
    if ids is None:
        twice = len(set(names)) < len(names)
        return np.full(bounds.size - 1, twice)
    counts = np.diff(bounds)
    marked: npt.NDArray[np.bool_] = counts > _MOST_PAIRS
    row = np.repeat(np.arange(counts.size), counts)
    for distance in range(1, min(int(counts.max(initial=0)), _MOST_PAIRS)):
        twins = (ids[distance:] == ids[:-distance]) & (row[distance:] == row[:-distance])
        marked[row[:-distance][twins]] = True
    return marked


def used_names(properties: pa.MapArray) -> pa.StringArray:
    """Return the names that maps use; a slice also carries those of all other rows."""
    return properties.keys.slice(*_used(properties))


def used_values(properties: pa.MapArray) -> pa.StringArray:
    """Return the values that maps use, as `used_names`."""
    return properties.items.slice(*_used(properties))


def _used(properties: pa.MapArray) -> tuple[int, int]:
    first, last = properties.offsets[0].as_py(), properties.offsets[len(properties)].as_py()
    return first, last - first


def have_name(properties: pa.MapArray, name: str) -> npt.NDArray[np.bool_]:
    """Return which maps have a name.

    >>> have_name(pa.array([[("KEYS", "k")], None, []], pa.map_(pa.string(), pa.string())), "KEYS").tolist()
    [True, False, False]
    """
    offsets = np.asarray(properties.offsets)[: len(properties) + 1]
    before = np.concatenate([[0], np.cumsum(np.asarray(pc.equal(used_names(properties), name)))])
    return np.asarray(np.diff(before[offsets - offsets[0]]) > 0)


def without_names(
    properties: pa.MapArray, names: Sequence[str], rows: npt.NDArray[np.bool_] | None = None
) -> pa.MapArray:
    """Return maps without some names; what is null stays null.

    * `rows`: Which maps are changed; by default all are.

    >>> maps = pa.array([[("KEYS", "k"), ("DELAY", "3")], None], pa.map_(pa.string(), pa.string()))
    >>> without_names(maps, ["DELAY"]).to_pylist()
    [[('KEYS', 'k')], None]
    """
    offsets = np.asarray(properties.offsets)[: len(properties) + 1]
    keys, items = used_names(properties), used_values(properties)
    kept = np.asarray(pc.invert(pc.is_in(keys, pa.array(names))))
    if rows is not None:
        kept = kept | ~np.repeat(rows, np.diff(offsets))
    before = np.concatenate([[0], np.cumsum(kept)])
    is_null = np.append(np.asarray(properties.is_null()), False)  # whether an offset begins one, as Arrow expects it
    places = pa.array(before[offsets - offsets[0]].astype(np.int32), mask=is_null)
    mask = pa.array(kept)
    return pa.MapArray.from_arrays(places, keys.filter(mask), items.filter(mask))
