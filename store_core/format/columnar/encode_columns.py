# SPDX-License-Identifier: Apache-2.0
"""Columns of bytes that are joined into encoded records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.checksums import body_crcs
from store_core.format.layout import HOST_V6, head_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt


__all__ = [
    "HeadValue",
    "HostColumn",
    "Part",
    "fixed_items",
    "head_items",
    "in_row_order",
    "item_borders",
    "item_crcs",
    "item_lengths",
    "join_items",
    "lengths_before",
    "merge_constants",
    "number_queues",
]

Part: TypeAlias = "bytes | pa.Array"

HeadValue: TypeAlias = "int | npt.NDArray[np.integer] | HostColumn"


def fixed_items(values: npt.NDArray[np.generic]) -> pa.BinaryArray:
    """Return items of a fixed size as a binary array, without a copy."""
    offsets = np.arange(values.size + 1, dtype=np.int32) * np.int32(values.dtype.itemsize)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), values.size, buffers)


def item_lengths(items: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return each item's length in a binary or string array, in bytes; int32, shape (n,). Undefined for null."""
    return np.diff(item_borders(items))


def item_borders(items: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return where each item begins in the array's data, and where the last one ends; int32, shape (n + 1,)."""
    offsets = items.buffers()[1]
    if offsets is None or not len(items):
        return np.zeros(len(items) + 1, np.int32)
    return np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1]


def in_row_order(pieces: Sequence[tuple[npt.NDArray[np.int64], pa.Array]]) -> pa.Array:
    """Return the items of groups of rows in the order of the rows."""
    rows = np.concatenate([rows for rows, _ in pieces])
    return pa.concat_arrays([items for _, items in pieces]).take(pa.array(np.argsort(rows)))


def join_items(parts: Sequence[Part]) -> pa.BinaryArray:
    """Join columns and constants row by row; at least one part is a column."""
    constants = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in merge_constants(parts)]
    return pc.binary_join_element_wise(*constants, pa.scalar(b"", pa.binary()))


def merge_constants(parts: Sequence[Part]) -> list[Part]:
    """Merge consecutive constants and drop empty ones, since each part costs time in every row."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        elif not isinstance(part, bytes) or part:
            merged.append(part)
    return merged


def lengths_before(lengths: npt.NDArray[np.int64], parts: Sequence[Part]) -> list[Part]:
    """Return parts preceded by their two-byte length; a leading constant is merged into the same items."""
    merged = merge_constants(parts)
    constant = merged.pop(0) if merged and isinstance(merged[0], bytes) else b""
    items = np.empty(lengths.size, [("length", ">i2"), ("constant", "u1", (len(constant),))])
    items["length"] = lengths
    items["constant"] = np.frombuffer(constant, np.uint8)
    return [fixed_items(items), *merged]


def head_items(values: Mapping[str, HeadValue], v6_bits: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the heads of records.

    * `values`: Field name to one value for all records, or a column of shape (n,); a host is a `HostColumn`. Other
      fields are 0.
    * `v6_bits`: uint8, shape (n,): host bits of each sys_flag.
    """
    distinct = np.flatnonzero(np.bincount(v6_bits)).tolist()
    if len(distinct) <= 1:
        return fixed_items(_heads(values, None, sum(distinct), v6_bits.size))
    groups = [(np.flatnonzero(v6_bits == bits), bits) for bits in distinct]
    return in_row_order([(rows, fixed_items(_heads(values, rows, bits, rows.size))) for rows, bits in groups])


def _heads(
    values: Mapping[str, HeadValue], rows: npt.NDArray[np.int64] | None, v6_bits: int, count: int
) -> npt.NDArray[np.void]:
    """Return heads of one width: first the shared values, written at once, then the columns."""
    kind = head_dtype(v6_bits)
    shared = np.zeros(1, kind)
    for name, value in values.items():
        if isinstance(value, int):
            shared[name] = value
        elif isinstance(value, HostColumn) and len(value.packed) == 1:
            shared[name] = value.items(None, kind[name])
    heads = np.empty(count, f"V{kind.itemsize}")
    heads[:] = shared.view(heads.dtype)
    fields = heads.view(kind)
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            fields[name] = value if rows is None else value[rows]
        elif isinstance(value, HostColumn) and len(value.packed) > 1:
            fields[name] = value.items(rows, kind[name])
    return fields


@dataclass(frozen=True, slots=True)
class HostColumn:
    """The distinct packed hosts of a column, and for each row the number of its host."""

    packed: tuple[bytes, ...]  # 8 bytes each, or 20 for IPv6
    index: npt.NDArray[np.int32]  # int32, shape (n,)

    @property
    def is_v6(self) -> npt.NDArray[np.bool_]:
        """Which rows have an IPv6 host; bool, shape (n,)."""
        wide = np.array([len(host) == HOST_V6.itemsize for host in self.packed], bool)
        return wide[self.index]

    def items(self, rows: npt.NDArray[np.int64] | None, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """Return the hosts of some rows, all of the width of `kind`; a single one if there is only one."""
        cut = [host[: kind.itemsize].ljust(kind.itemsize, b"\0") for host in self.packed]
        table = np.frombuffer(b"".join(cut), kind)
        if table.size == 1:
            return table
        return table[self.index if rows is None else self.index[rows]]


def item_crcs(items: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the checksum of each item, as `store_core.format.message.body_crc` does for one; int64, shape (n,)."""
    borders = item_borders(items).astype(np.int64)
    raw = np.frombuffer(items.buffers()[2] or b"", np.uint8)
    return body_crcs(raw, borders[:-1], borders[1:])


def number_queues(
    topics: pa.DictionaryArray, queue_ids: npt.NDArray[np.int64]
) -> tuple[tuple[tuple[str, int], ...], npt.NDArray[np.int32]]:
    """Assign a number to each distinct pair of topic and queue id.

    Returns: int32, shape (n,).
    """
    if not len(topics):
        return (), np.zeros(0, np.int32)
    low = int(queue_ids.min())
    width = int(queue_ids.max()) - low + 1
    pairs = topics.indices.to_numpy(zero_copy_only=False) * np.int64(width) + (queue_ids - low)
    distinct, index = _distinct(pairs, len(topics.dictionary) * width)
    names = topics.dictionary.to_pylist()
    queues = tuple((names[pair // width], pair % width + low) for pair in distinct.tolist())
    return queues, index


def _distinct(numbers: npt.NDArray[np.int64], limit: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return what ``numpy.unique`` with its inverse does, by counting if `limit`, above all numbers, is small."""
    if limit > 4 * numbers.size + 1024:
        distinct, index = np.unique(numbers, return_inverse=True)
        return distinct, index.astype(np.int32)
    there = np.zeros(limit, bool)
    there[numbers] = True
    distinct = np.flatnonzero(there)
    table = np.zeros(limit, np.int32)
    table[distinct] = np.arange(distinct.size, dtype=np.int32)
    return distinct, table[numbers]
