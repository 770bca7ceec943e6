# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays of pieces of memory, and of words and positions in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.spans import gather

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt


_FIRST_NOT_ASCII: Final = 0x80
_FALSE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\0")])[0]
"""Not made by ``pa.scalar``, which imports pandas: see `texts`."""


def fixed_array(values: npt.NDArray[np.generic], kind: pa.DataType | None = None) -> pa.Array:
    """Return numpy values of native order as an Arrow array without nulls and without a copy.

    ``pa.array`` does the same, but looks for pandas at every call.
    """
    kind = pa.from_numpy_dtype(values.dtype) if kind is None else kind
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(np.ascontiguousarray(values))])


def take_rows(array: pa.Array, rows: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> pa.Array:
    """Return rows of an array by their numbers."""
    return array.take(fixed_array(rows))


def true_mask(booleans: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return an Arrow mask as a numpy one; null becomes False."""
    mask: npt.NDArray[np.bool_] = numbers(pc.coalesce(booleans, _FALSE).cast(pa.uint8())).view(np.bool_)
    return mask


def texts(items: Sequence[str]) -> pa.StringArray:
    """Return strings as an array.

    ``pa.array`` of a list looks first whether it is a pandas object, and imports pandas for that where it is installed:
    0.4 s in each new process.
    """
    return packed_items([item.encode() for item in items]).cast(pa.string())


def packed_items(items: Sequence[bytes]) -> pa.BinaryArray:
    """Return byte strings as an array; see `texts`."""
    offsets = np.zeros(len(items) + 1, np.int32)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(items), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))])


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """View integers without nulls as a numpy array.

    ``to_numpy`` imports pandas, too, and so does ``to_pandas_dtype`` of a type with pyarrow 18, which fails without it.
    """
    kind = np.dtype(str(array.type))
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def repeat_text(text: str, count: int) -> pa.StringArray:
    """Return an array of one text `count` times."""
    item = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(item))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(item * count)])


def take_slices(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> pa.BinaryArray:
    """Copy the slices ``raw[starts[i]:stops[i]]`` into one array.

    * `raw`: uint8, shape (m,).
    * `starts`, `stops`: int64, shape (n,), ascending without overlap: ``starts[i] <= stops[i] <= starts[i + 1]``; all
      within 2 GiB.

    The slices and the gaps between them are the items of one array over `raw`; every other item is taken. Slices of
    equal length are rows of a table.
    """
    if not starts.size:
        return pa.nulls(0, pa.binary())
    size = int(stops[0] - starts[0])
    if size and (stops - starts == size).all():
        return table_rows(gather(raw, starts, np.dtype(f"V{size}")))
    base, end = int(starts[0]), int(stops[-1])
    offsets = np.empty(2 * starts.size, np.int32)
    np.subtract(starts, base, out=offsets[0::2], casting="unsafe")
    np.subtract(stops, base, out=offsets[1::2], casting="unsafe")
    return take_alternate(offsets, pa.py_buffer(raw[base:end]), 0, 2)


def table_rows(items: npt.NDArray[np.void]) -> pa.BinaryArray:
    """Return the opaque items of a contiguous array, shape (n,), as binary items of equal length."""
    offsets = np.arange(items.size + 1, dtype=np.int32) * np.int32(items.itemsize)
    return pa.Array.from_buffers(
        pa.binary(), items.size, [None, pa.py_buffer(offsets), pa.py_buffer(items.view(np.uint8))]
    )


def take_alternate(offsets: npt.NDArray[np.int32], data: pa.Buffer, first: int, step: int) -> pa.BinaryArray:
    """Return every `step`-th item, from `first` on, of the array with these `offsets` and `data`."""
    if not offsets.size:
        return pa.nulls(0, pa.binary())
    items = pa.Array.from_buffers(pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), data])
    return take_rows(items, np.arange(first, offsets.size - 1, step, dtype=np.int32))


def binary_parts(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], pa.Buffer]:
    """Return the offsets (shape (n + 1,)) and the data of a binary or string array that starts at offset 0."""
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.empty(0, np.uint8), pa.py_buffer(b"")
    data = pa.py_buffer(b"") if data is None else data
    return np.frombuffer(offsets, np.int32)[: len(array) + 1], np.frombuffer(data, np.uint8), data


def as_text(array: pa.BinaryArray) -> pa.StringArray | None:
    """Return bytes as text, without a copy; None if any item is not UTF-8.

    Arrow checks item by item, and ASCII needs no such check.
    """
    if not array.offset and is_ascii(array):
        return as_checked_text(array)
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def is_ascii(array: pa.BinaryArray) -> bool:
    """Return whether all bytes of an array that starts at offset 0 are ASCII."""
    offsets, data, _ = binary_parts(array)
    used = data[: offsets[-1]]
    return not used.size or int(used.max()) < _FIRST_NOT_ASCII


def as_checked_text(array: pa.BinaryArray) -> pa.StringArray:
    """Return bytes that are known to be UTF-8 as text, unchecked."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count, array.offset)


def number_queues(
    topics: pa.DictionaryArray, queue_ids: npt.NDArray[np.int64]
) -> tuple[tuple[tuple[Any, int], ...], npt.NDArray[np.int32]]:
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


_PROPERTIES: Final = "properties"


def with_properties(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return a batch with columns of single properties in place of that of all properties.

    * `names`: New column -> property. Of two properties with one name the last counts, as in Java.
    """
    maps = batch[_PROPERTIES]
    for column, name in names.items():
        batch = batch.append_column(column, pc.map_lookup(maps, pa.scalar(name), "last"))
    return batch.drop_columns([_PROPERTIES])
