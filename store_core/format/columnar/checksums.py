# SPDX-License-Identifier: Apache-2.0
"""Checksums of many records: of bodies, and over the whole of each."""

from __future__ import annotations

import io
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.columnar.spans import Heads, Spans, gather
from store_core.format.crc32 import CRC_MASK, crc32
from store_core.format.properties import CRC_DIGITS, CRC_NAME, CRC_RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt


_LONG: Final = 1 << 10
"""Size from which a slice of the buffer is cheaper than a copy, in bytes."""

_TOGETHER_BYTES: Final = 512 << 10
"""Bytes copied at a time, so that the objects of one round reuse the memory of the last."""


def body_crcs(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return `store_core.format.record.scan.body_crc` of many pieces, shape (n,); 0 for empty ones.

    * `raw`: uint8, shape (m,), contiguous.
    * `starts`, `stops`: int64, shape (n,): the pieces ``raw[starts[i]:stops[i]]``.

    The checksum is one call per piece, and for short pieces cutting them out takes longer. A slice of the buffer has a
    fixed cost; a short copy is cheaper if one call makes many of them (pieces of one length), or if a stream returns
    one after the other (pieces close together).
    """
    lengths = stops - starts
    if not lengths.any():
        return np.zeros(starts.size, np.int64)
    pieces: Iterable[bytes | memoryview]
    if 0 < lengths[0] < _LONG and (lengths == lengths[0]).all():
        pieces = chain.from_iterable(_cut_alike(raw, starts, int(lengths[0])))
    elif _lie_close(starts, stops):
        pieces = chain.from_iterable(_read_through(raw, starts, stops))
    else:
        view = raw.data
        pieces = (view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True))
    return np.fromiter(map(crc32, pieces), np.int64, starts.size) & CRC_MASK


def wrong_bodies(heads: Heads, spans: Spans) -> npt.NDArray[np.bool_]:
    """Return which records have a body that does not match its checksum; empty bodies are not checked."""
    found = body_crcs(heads.raw, spans.body_start, spans.body_stop)
    wrong: npt.NDArray[np.bool_] = (found != heads.leading("body_crc")) & (spans.body_stop > spans.body_start)
    return wrong


def _cut_alike(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> Iterator[list[bytes]]:
    together, kind = max(1, _TOGETHER_BYTES // size), np.dtype(f"V{size}")
    for first in range(0, starts.size, together):
        yield gather(raw, starts[first : first + together], kind).tolist()


def _lie_close(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> bool:
    """Return whether pieces are in order, and short on average including the gaps between them."""
    in_order = (starts[1:] >= stops[:-1]).all() and (stops >= starts).all()
    return bool(in_order and stops[-1] - starts[0] < _LONG * starts.size)


def _read_through(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> Iterator[Iterator[bytes]]:
    """Yield pieces read from a stream together with the gaps between them, which are dropped."""
    together = max(1, _TOGETHER_BYTES * starts.size // int(stops[-1] - starts[0]))
    for first in range(0, starts.size, together):
        rows = slice(first, first + together)
        borders = np.stack([starts[rows], stops[rows]], axis=1).ravel()
        steps = np.diff(borders, prepend=borders[0])
        stream = io.BytesIO(raw[borders[0] : borders[-1]].tobytes())
        yield islice(map(stream.read, steps.tolist()), 1, None, 2)


_NAME: Final = np.frombuffer(CRC_NAME, np.uint8)
_POWERS: Final = 10 ** np.arange(CRC_DIGITS, dtype=np.int64)
"""What each digit is worth: the least significant comes first."""

_LARGEST_DIGIT: Final = 9
_END: Final = 2


class RecordCrcs(NamedTuple):
    """The records that have such a checksum, and what it says."""

    rows: npt.NDArray[np.int64]  # int64, shape (k,), ascending
    is_right: npt.NDArray[np.bool_]  # bool, shape (k,)


def record_crcs(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> RecordCrcs:
    """Check records against their checksums, as far as they have any.

    * `raw`: uint8, shape (m,), contiguous.
    * `starts`, `stops`: int64, shape (n,): records ``raw[starts[i]:stops[i]]`` whose last property has room for a
      checksum.
    """
    rows, tails = _tails(raw, stops)
    digits = tails[:, _NAME.size : -1].astype(np.int64) - ord("0")
    is_whole = ((digits >= 0) & (digits <= _LARGEST_DIGIT)).all(axis=1) & (tails[:, -1] == _END)
    actual = body_crcs(raw, starts[rows], stops[rows] - CRC_RESERVED)
    return RecordCrcs(rows, is_whole & ((digits * _POWERS).sum(axis=1) == actual))


def _tails(
    raw: npt.NDArray[np.uint8], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the rows with a checksum, and their last bytes, shape (k, `CRC_RESERVED`)."""
    begins = stops - CRC_RESERVED
    likely = np.flatnonzero(raw.take(begins) == _NAME[0])  # one byte of each record: most logs have no such checksums
    if not likely.size:
        return likely, np.empty((0, CRC_RESERVED), np.uint8)
    items = gather(raw, begins[likely], np.dtype(f"V{CRC_RESERVED}"))
    tails = items.view(np.uint8).reshape(likely.size, CRC_RESERVED)
    is_named = (tails[:, : _NAME.size] == _NAME).all(axis=1)
    return likely[is_named], tails[is_named]
