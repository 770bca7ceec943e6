# SPDX-License-Identifier: Apache-2.0
"""Many short ranges of a local file, read into memory without what lies between them."""

from __future__ import annotations

import os
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.local_file import LocalFile

__all__ = ["read_packed"]


def read_packed(file: LocalFile, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the bytes of ranges of a file, one after another.

    Parameters
    ----------
    file : LocalFile
    begins, sizes : numpy.ndarray
        int64, shape (n,), n >= 1: positions in the file, ascending, of ranges that are inside of it.

    Returns
    -------
    numpy.ndarray
        uint8, shape (sizes.sum(),), read-only.

    Raises
    ------
    SegmentVanishedError
        If the file has become shorter.
    StoreAccessError
        If the disk, or the server that has the file, can't read it.

    Notes
    -----
    A call of its own for each range takes 1.7 µs, of which Python takes little. Memory in which each range lay at its
    position would cost 12 µs: a page of it is provided and cleared for each.
    """
    edges = np.flatnonzero(begins[1:] != begins[:-1] + sizes[:-1]) + 1
    firsts = np.append(0, edges)
    whole = begins[firsts].tolist(), np.add.reduceat(sizes, firsts).tolist()
    try:
        pieces = list(map(os.pread, repeat(file.descriptor), whole[1], whole[0]))
    except OSError as error:
        raise file.unreadable(error, int(begins[0])) from error
    for number, (begin, size) in enumerate(zip(*whole, strict=True)):
        if len(pieces[number]) < size:
            pieces[number] = _completed(file, begin, size, pieces[number])
    return np.frombuffer(b"".join(pieces), np.uint8)


def _completed(file: LocalFile, begin: int, size: int, piece: bytes) -> bytes:
    """Return a range of which a call has read only a part."""
    parts, at = [piece], len(piece)
    while at < size:
        try:
            more = os.pread(file.descriptor, size - at, begin + at)
        except OSError as error:
            raise file.unreadable(error, begin + at) from error
        if not more:
            raise file.truncated()
        parts.append(more)
        at += len(more)
    return b"".join(parts)
