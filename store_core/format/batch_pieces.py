# SPDX-License-Identifier: Apache-2.0
"""Columns of bytes that are joined into records."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.layout import head_dtype
from store_core.format.message import CRC_MASK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.format.property_join import Part

__all__ = ["body_crcs", "fixed_items", "head_items", "in_row_order", "item_lengths", "join_items", "number_queues"]


def fixed_items(values: npt.NDArray[np.generic]) -> pa.BinaryArray:
    """See items of a fixed size as a binary array, without a copy."""
    offsets = np.arange(values.size + 1, dtype=np.int32) * np.int32(values.dtype.itemsize)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), values.size, buffers)


def item_lengths(items: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Give the bytes of each item; int64, shape (n,)."""
    return np.asarray(pc.binary_length(items).to_numpy(zero_copy_only=False), np.int64)


def in_row_order(pieces: Sequence[tuple[npt.NDArray[np.int64], pa.Array]]) -> pa.Array:
    """Bring the items of groups of rows back into the order of the rows."""
    rows = np.concatenate([rows for rows, _ in pieces])
    return pa.concat_arrays([items for _, items in pieces]).take(pa.array(np.argsort(rows)))


def join_items(parts: Sequence[Part]) -> pa.BinaryArray:
    """Join columns and constants row by row; at least one part is a column."""
    constants = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*constants, pa.scalar(b"", pa.binary()))


def head_items(values: Mapping[str, npt.NDArray[np.generic]], v6_bits: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Write the heads of records.

    Parameters
    ----------
    values : mapping
        Field name to column, shape (n,). Host fields have 20 bytes, the first 8 of which count for IPv4.
    v6_bits : numpy.ndarray
        uint8, shape (n,): host bits of each sys_flag.
    """
    distinct = np.unique(v6_bits).tolist()
    if len(distinct) <= 1:
        return fixed_items(_heads(values, slice(None), sum(distinct), v6_bits.size))
    groups = [(np.flatnonzero(v6_bits == bits), bits) for bits in distinct]
    return in_row_order([(rows, fixed_items(_heads(values, rows, bits, rows.size))) for rows, bits in groups])


def _heads(
    values: Mapping[str, npt.NDArray[np.generic]], rows: npt.NDArray[np.int64] | slice, v6_bits: int, count: int
) -> npt.NDArray[np.void]:
    heads = np.zeros(count, head_dtype(v6_bits))
    for name, column in values.items():
        field = heads[name]
        if field.dtype.names is None:
            field[:] = column[rows]
        else:
            narrow = column.view(np.uint8).reshape(column.size, column.dtype.itemsize)[rows, : field.dtype.itemsize]
            heads[name] = np.ascontiguousarray(narrow).view(field.dtype).ravel()
    return heads


def body_crcs(bodies: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Give the checksum of each body, as `store_core.format.message.body_crc` does one."""
    _, offsets, data = bodies.buffers()
    if not len(bodies) or data is None:
        return np.zeros(len(bodies), np.int64)
    borders = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1].tolist()
    view = memoryview(data)
    bounds = pairwise(borders)
    return np.fromiter((zlib.crc32(view[start:stop]) for start, stop in bounds), np.int64, len(bodies)) & CRC_MASK


def number_queues(
    topics: pa.DictionaryArray, queue_ids: npt.NDArray[np.int64]
) -> tuple[tuple[tuple[str, int], ...], npt.NDArray[np.int32]]:
    """Give each distinct pair of topic and queue id a number.

    Returns
    -------
    queues : tuple of tuple
    queue_index : numpy.ndarray
        int32, shape (n,).
    """
    if not len(topics):
        return (), np.zeros(0, np.int32)
    topic_index = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    low, width = int(queue_ids.min()), int(queue_ids.max() - queue_ids.min()) + 1
    pairs = topic_index * width + (queue_ids - low)
    distinct, index = _distinct(pairs, len(topics.dictionary) * width)
    names = topics.dictionary.to_pylist()
    queues = tuple((names[pair // width], pair % width + low) for pair in distinct.tolist())
    return queues, index


def _distinct(numbers: npt.NDArray[np.int64], limit: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Do as ``numpy.unique`` with its inverse, but by counting where the numbers, all below `limit`, are few."""
    if limit > 4 * numbers.size + 1024:
        distinct, index = np.unique(numbers, return_inverse=True)
        return distinct, index.astype(np.int32)
    there = np.zeros(limit, bool)
    there[numbers] = True
    distinct = np.flatnonzero(there)
    table = np.zeros(limit, np.int32)
    table[distinct] = np.arange(distinct.size, dtype=np.int32)
    return distinct, table[numbers]
