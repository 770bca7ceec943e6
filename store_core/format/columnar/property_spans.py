# SPDX-License-Identifier: Apache-2.0
"""Positions of some properties' values in many properties strings at once, without parsing the rest.

Records of one producer have properties of one layout: the same names in the same order, with values of the same
lengths. So strings of equal length are compared with the layout of the first of them, all in one step; those that fit
are done. The others are split at their separators. Both find what `store_core.format.properties.parse_properties`
finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.arrow_slices import binary_parts, take_slices
from store_core.format.columnar.spans import gather
from store_core.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PropertyParser

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
