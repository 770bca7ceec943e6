# SPDX-License-Identifier: Apache-2.0
"""Properties strings of one layout as Arrow columns: names and value positions are those of the first string."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from store_core.format.columnar.arrow_slices import as_text, binary_parts
from store_core.format.columnar.property_spans import PropertyLayout
from store_core.format.columns import MAP_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["AlikeProperties", "property_maps"]


class AlikeProperties:
    """Properties of `n` strings with the same names in the same order, and values of the same lengths.

    Parameters
    ----------
    table : numpy.ndarray
        uint8, shape (n, size), contiguous: the strings, which are UTF-8.
    layout : PropertyLayout
        The layout of all of them.
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
