# SPDX-License-Identifier: Apache-2.0
"""Properties of many records: positions of some values, columns, and maps.

Records of one producer have properties of one layout: the same names in the same order, with values of the same
lengths. For positions, strings of equal length are compared with the layout of the first of them, all in one step; the
others are split at their separators.

For columns and maps, if all strings have one layout, names and value positions are those of the first string,
and columns of bytes suffice. Otherwise nearly every string is a plain run of ``name 1 value 2``, and the separators'
positions cut all names and values out of one buffer. Rows that break the pattern (empty or missing parts, a separator
inside a value, a duplicate name, bytes that are not UTF-8) go through `store_core.format.properties.parse_properties`,
which is the definition of all.
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
from store_core.format.columnar.spans import gather
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE
from store_core.format.properties import (
    KEY_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PropertyParser,
    decode_text,
    first_property,
    parse_properties,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


_NAME_END: Final = ord(NAME_VALUE_SEPARATOR)
_VALUE_END: Final = ord(PROPERTY_SEPARATOR)
_NAME_END_BYTE: Final = NAME_VALUE_SEPARATOR.encode()
_VALUE_END_BYTE: Final = PROPERTY_SEPARATOR.encode()
_WORD: Final = 8

_BLOCK: Final = 128 << 10
"""Bytes compared in one step: a few blocks fit into the second-level cache."""

_MOST_LAYOUTS: Final = 64
"""Most layouts remembered; an eighth of them are tried on strings of one length."""

_FEWEST_ROWS: Final = 64
"""Fewest strings of one length for which a layout pays."""

_CUT_BYTES: Final = 2 << 20
"""Bytes of strings split together: bounds the memory, which may be some forty times as much."""


@dataclass(frozen=True, slots=True)
class PropertySpans:
    """Positions of one property's value in each of `n` strings, in the buffer; int64, shape (n,).

    ``starts[i] == stops[i]`` where the property is absent: a value has at least one byte.
    """

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """Whether each string has the property."""
        present: npt.NDArray[np.bool_] = self.stops > self.starts
        return present


class PropertyLayout:
    """Names and value lengths of a plain string: non-empty names, each once, and values without separators.

    A string fits if its names and separators are the same bytes, and no byte of a value is as low as a separator: each
    byte is between two bounds.

    * `values`: Start and stop of each name's value, in bytes from the string's start.
    """

    __slots__ = ("_lowest", "_width", "names", "values")

    def __init__(self, example: bytes, names: tuple[bytes, ...], values: tuple[tuple[int, int], ...]) -> None:
        self.names = names
        self.values = values
        lowest = np.frombuffer(example, np.uint8).copy()
        width = np.zeros(len(example), np.uint8)
        for start, stop in values:
            lowest[start:stop] = _VALUE_END + 1
            width[start:stop] = 0xFF - _VALUE_END - 1
        rows = max(_BLOCK // len(example), 1)
        self._lowest, self._width = np.tile(lowest, rows), np.tile(width, rows)

    @classmethod
    def of(cls, example: bytes) -> PropertyLayout | None:
        """Return the layout of a string; None if it is not plain."""
        items = example.removesuffix(_VALUE_END_BYTE).split(_VALUE_END_BYTE)
        pairs = [item.partition(_NAME_END_BYTE) for item in items]
        names = tuple(name for name, _, _ in pairs)
        is_plain = all(name and value and _NAME_END_BYTE not in value for name, _, value in pairs)
        if not is_plain or len(set(names)) < len(names):
            return None
        values, position = [], 0
        for name, item in zip(names, items, strict=True):
            values.append((position + len(name) + 1, position + len(item)))
            position += len(item) + 1
        return cls(example, names, tuple(values))

    def fits(self, strings: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_] | None:
        """Return which rows of a table (shape (n, size)) fit; None if all do."""
        flat = strings.reshape(-1)
        inside = np.empty(flat.size, np.bool_)
        block = self._lowest.size
        for first in range(0, flat.size, block):
            part = flat[first : first + block] - self._lowest[: flat.size - first]
            np.less_equal(part, self._width[: part.size], out=inside[first : first + part.size])
        return None if inside.all() else np.logical_and.reduce(inside.reshape(strings.shape), axis=1)


class PropertyFinder:
    """Finds some properties in many strings; remembers the layouts it has seen."""

    def __init__(self, names: Sequence[str], parser: PropertyParser) -> None:
        self._names = tuple(name.encode() for name in names)
        self._parser = parser
        self._layouts: dict[int, list[PropertyLayout]] = {}
        self._count = 0

    def find(
        self, raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
    ) -> list[PropertySpans | None]:
        """Return the positions of each property; None for one that no string has.

        * `raw`: uint8, shape (m,), contiguous.
        * `starts`, `stops`: int64, shape (n,): the strings ``raw[starts[i]:stops[i]]``, ascending without overlap,
          within 2 GiB, each of at most 32,767 bytes.
        """
        found = _Found(raw, starts, stops, len(self._names))
        lengths = stops - starts
        counts = np.bincount(lengths)
        left = []
        for size in np.flatnonzero(counts).tolist():
            rows = np.flatnonzero(lengths == size) if counts[size] < lengths.size else np.arange(lengths.size)
            if size:
                left.append(self._find_layouts(found, rows, size) if rows.size >= _FEWEST_ROWS else rows)
        rest = np.sort(np.concatenate(left)) if left else np.empty(0, np.int64)
        if rest.size:
            self._cut(found, rest)
        return found.spans

    def _find_layouts(self, found: _Found, rows: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
        """Find the properties of strings of one length by layouts; return the rows that fit none."""
        strings = gather(found.raw, found.starts[rows], np.dtype(f"V{size}")).view(np.uint8).reshape(-1, size)
        known = self._layouts.setdefault(size, [])
        for number in range(_MOST_LAYOUTS // _WORD):
            if number == len(known) and not self._learn(strings[0].tobytes(), known):
                break
            fitting = known[number].fits(strings)
            fitting_rows = rows if fitting is None else rows[fitting]
            for name, span in zip(known[number].names, known[number].values, strict=True):
                if name in self._names:
                    found.put(self._names.index(name), fitting_rows, span)
            if fitting is None:
                return rows[:0]
            strings, rows = strings[~fitting], rows[~fitting]
            if rows.size < _FEWEST_ROWS:
                break
        return rows

    def _learn(self, example: bytes, known: list[PropertyLayout]) -> bool:
        """Remember the layout of a plain string, while there is room."""
        layout = PropertyLayout.of(example) if self._count < _MOST_LAYOUTS else None
        if layout is None:
            return False
        known.append(layout)
        self._count += 1
        return True

    def _cut(self, found: _Found, rows: npt.NDArray[np.int64]) -> None:
        """Find the properties of the other rows, some at a time."""
        ends = np.cumsum(found.stops[rows] - found.starts[rows])
        while rows.size:
            count = max(int(np.searchsorted(ends, ends[0] + _CUT_BYTES)), 1)
            _Items(found, rows[:count], self._parser).find(self._names)
            rows, ends = rows[count:], ends[count:]


class _Found:
    """The positions found so far, of each property in each string."""

    def __init__(
        self,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        count: int,
    ) -> None:
        self.raw = raw
        self.starts = starts
        self.stops = stops
        self.spans: list[PropertySpans | None] = [None] * count

    def put(self, name: int, rows: npt.NDArray[np.int64], span: tuple[int, int]) -> None:
        """Record that a property has the same position in some strings, relative to their starts."""
        if rows.size == self.starts.size:
            self.spans[name] = PropertySpans(self.starts + span[0], self.starts + span[1])
            return
        into = self.at(name)
        into.starts[rows] = self.starts[rows] + span[0]
        into.stops[rows] = self.starts[rows] + span[1]

    def at(self, name: int) -> PropertySpans:
        """Return the positions of a property, for writing."""
        spans = self.spans[name]
        if spans is None:
            spans = PropertySpans(self.starts.copy(), self.starts.copy())
            self.spans[name] = spans
        return spans


class _Items:
    """Strings split at their value separators, whatever is between."""

    def __init__(self, found: _Found, rows: npt.NDArray[np.int64], parser: PropertyParser) -> None:
        self._found = found
        self._rows = rows
        self._parser = parser
        offsets, data, _ = binary_parts(take_slices(found.raw, found.starts[rows], found.stops[rows]))
        self._offsets = offsets.astype(np.int64)
        self._data = np.concatenate([data[: offsets[-1]], np.zeros(2 * _WORD, np.uint8)])
        marks = np.flatnonzero(self._data[: offsets[-1]] == _VALUE_END)
        first = np.searchsorted(marks, self._offsets)
        owners = np.repeat(np.arange(rows.size), np.diff(first))
        following = np.append(marks, offsets[-1])
        stops = self._offsets[1:]
        self._begins = np.concatenate([self._offsets[:-1], marks + 1])
        self._ends = np.concatenate(
            [np.minimum(following[first[:-1]], stops), np.minimum(following[1:], stops[owners])]
        )
        self._owners = np.concatenate([np.arange(rows.size), owners])
        self._words = gather(self._data, self._begins, np.dtype(f"V{_WORD}")).view("<u8")

    def find(self, names: Sequence[bytes]) -> None:
        """Record the positions of the properties; if a name occurs twice in a string, of the last one with a value."""
        for number, name in enumerate(names):
            hits = self._hits(name + _NAME_END_BYTE)
            if not hits.size:
                continue
            owners, begins = self._owners[hits], self._begins[hits] + len(name) + 1
            ends = self._ends[hits]
            if self._parser is PropertyParser.EXACT_PAIR:
                owners, begins, ends = self._exact(owners, begins, ends)
            rows = self._rows[owners]
            moved = self._found.starts[rows] - self._offsets[owners]
            into = self._found.at(number)
            into.starts[rows] = begins + moved
            into.stops[rows] = ends + moved

    def _hits(self, prefix: bytes) -> npt.NDArray[np.int64]:
        """Return the items that begin with a name and its separator, and have a value."""
        leading = prefix[:_WORD].ljust(_WORD, b"\0")
        mask = np.uint64((1 << 8 * min(len(prefix), _WORD)) - 1)
        hits: npt.NDArray[np.int64] = np.flatnonzero((self._words & mask) == np.frombuffer(leading, "<u8"))
        hits = hits[self._ends[hits] - self._begins[hits] > len(prefix)]
        for at in range(_WORD, len(prefix)):
            hits = hits[self._data[self._begins[hits] + at] == prefix[at]]
        return hits

    def _exact(
        self, owners: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Keep the values that `PropertyParser.EXACT_PAIR` accepts, without the name separators at their end."""
        is_mark = self._data == _NAME_END
        counts = np.zeros(is_mark.size + 1, np.int64)
        np.cumsum(is_mark, out=counts[1:])
        odd = np.flatnonzero(counts[ends] > counts[begins])
        ends = ends.copy()
        for item in odd.tolist():
            value = self._data[begins[item] : ends[item]].tobytes().rstrip(_NAME_END_BYTE)
            ends[item] = begins[item] if _NAME_END_BYTE in value else begins[item] + len(value)
        kept = ends > begins
        return owners[kept], begins[kept], ends[kept]


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
