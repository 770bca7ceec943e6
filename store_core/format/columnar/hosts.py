# SPDX-License-Identifier: Apache-2.0
"""Host fields of many records as ``ip:port`` text, and message ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.format.columnar.arrow_slices import fixed_array, numbers, repeat_text, take_rows, texts
from store_core.format.record.host import format_host

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from store_core.format.columnar.spans import Heads

__all__ = ["host_column", "message_id_column"]

_PORT_SIZE: Final = 4
_V4_SIZE: Final = np.dtype(np.int64).itemsize
"""Bytes of an IPv4 address with its port, which are handled as one number."""

_OFFSET: Final = np.dtype(">i8")


def host_column(heads: Heads, name: str) -> pa.StringArray:
    """Return a host of all records as text, as `store_core.format.record.host.format_host` does for one.

    A broker has one address and a log few producers, so each distinct host of the batch is formatted once.

    Parameters
    ----------
    heads : Heads
        Heads of sound records.
    name : str
        ``"born_host"`` or ``"store_host"``.
    """
    return _by_width(heads, lambda group: _host_texts(group[name]))


def message_id_column(heads: Heads) -> pa.StringArray:
    """Return the offset message ids of all records, as `store_core.format.record.host.message_id` does for one."""
    return _by_width(heads, _message_ids)


def _by_width(heads: Heads, convert: Callable[[npt.NDArray[np.void]], pa.StringArray]) -> pa.StringArray:
    """Convert the records of each head width separately, and restore their order."""
    pieces, rows = [], []
    for members, group in heads.groups():
        pieces.append(convert(group))
        if members is None:
            return pieces[0]
        rows.append(members)
    return take_rows(pa.concat_arrays(pieces), np.argsort(np.concatenate(rows)))


def _packed(column: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """Return a structured column as a table of bytes, shape (n, item size)."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(column.size, column.dtype.itemsize)


def _host_texts(hosts: npt.NDArray[np.void]) -> pa.StringArray:
    if not hosts.size:
        return pa.array([], pa.string())
    size = hosts.dtype.itemsize
    packed = np.ascontiguousarray(hosts.view(f"V{size}"))
    words = packed.view(np.int64 if size == _V4_SIZE else np.int32).reshape(hosts.size, -1)
    if all((words[:, column] == words[0, column]).all() for column in range(words.shape[1])):
        return repeat_text(_format(packed[0].tobytes()), hosts.size)
    if size == _V4_SIZE:
        distinct = fixed_array(words[:, 0]).dictionary_encode()
        found = numbers(distinct.dictionary).view(packed.dtype).tolist()
    else:
        items = pa.Array.from_buffers(pa.binary(size), hosts.size, [None, pa.py_buffer(packed.view(np.uint8))])
        distinct = items.dictionary_encode()
        found = distinct.dictionary.to_pylist()
    return texts([_format(host) for host in found]).take(distinct.indices)


def _format(host: bytes) -> str:
    return format_host(host[:-_PORT_SIZE], int.from_bytes(host[-_PORT_SIZE:], signed=True))


def _message_ids(heads: npt.NDArray[np.void]) -> pa.StringArray:
    hosts, offsets = _packed(heads["store_host"]), heads["physical_offset"].copy().view(np.uint8)
    table = np.hstack([hosts, offsets.reshape(heads.size, _OFFSET.itemsize)])
    digits = table.tobytes().hex().upper().encode()
    width = 2 * table.shape[1]
    bounds = np.arange(heads.size + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.string(), heads.size, [None, pa.py_buffer(bounds), pa.py_buffer(digits)])
