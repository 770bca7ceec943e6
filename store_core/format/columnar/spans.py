# SPDX-License-Identifier: Apache-2.0
"""Heads, parts and checksums of many records at once: gathered, converted, and checked against size and contents.

Heads of many DLedger entries, too; `store_core.format.record.scan` is the definition of both.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.format.crc32 import CRC_MASK, crc32
from store_core.format.layout import HEAD_SIZES, MESSAGE_HEAD, MIN_HEAD_SIZE, V6_BITS, MagicCode, head_dtype, unit_dtype
from store_core.format.properties import CRC_DIGITS, CRC_NAME, CRC_RESERVED
from store_core.format.record.scan import ENTRY_DTYPE, ENTRY_HEAD_SIZE, ENTRY_MAGIC, entry_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt


_PROPERTIES_LENGTH_SIZE: Final = 2
_BYTE: Final = 256


def gather(raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Copy one item of `dtype` from each start.

    * `raw`: uint8, shape (m,), contiguous.
    * `starts`: int64, shape (n,); each item must be inside `raw`.

    Returns: Shape (n,), contiguous, in stored byte order.

    The bytes are viewed as overlapping opaque items one byte apart, so that picking is one memory copy per item;
    picking from a structured dtype goes field by field and takes three times as long.
    """
    if not starts.size:
        return np.empty(0, dtype)
    size = dtype.itemsize
    items: npt.NDArray[np.void] = np.ndarray((raw.size - size + 1,), f"V{size}", raw, strides=(1,))
    return items[starts].view(dtype)


class Heads:
    """The fixed parts of many records.

    Records with different host widths have their later fields at different positions. Nearly always all widths are
    equal, and then a column is one conversion; otherwise each width is a group of rows.

    * `raw`: uint8, shape (m,): the segment.
    * `starts`: int64, shape (n,): record starts; at least `MIN_HEAD_SIZE` bytes must follow each.
    """

    __slots__ = ("_groups", "_leading", "_narrow", "raw", "starts", "widths")

    def __init__(self, raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> None:
        self.raw = raw
        self.starts = starts
        self._narrow = gather(raw, starts, head_dtype())
        self._leading: dict[str, npt.NDArray[Any]] = {}
        self.widths: npt.NDArray[np.int64] | int = MIN_HEAD_SIZE
        self._groups: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]] = []
        flags = self.leading("sys_flag") & V6_BITS
        if flags.any():
            self.widths = HEAD_SIZES[flags]
            inside = self.starts + self.widths <= self.raw.size  # others can't be sound
            for bits in np.unique(flags).tolist():
                rows = np.flatnonzero((flags == bits) & inside)
                self._groups.append((rows, gather(self.raw, self.starts[rows], head_dtype(bits))))

    def __len__(self) -> int:
        """Return the number of records."""
        return self.starts.size

    def leading(self, name: str) -> npt.NDArray[Any]:
        """Return a field before the hosts, which has the same position in every record; native byte order.

        The array is made once, and is read-only.
        """
        if name not in self._leading:
            column = self._narrow[name]
            self._leading[name] = column.astype(column.dtype.newbyteorder("="))
            self._leading[name].flags.writeable = False
        return self._leading[name]

    def groups(self) -> list[tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.void]]]:
        """Return (rows, heads) of each width; rows is None if all records have the same width."""
        return [*self._groups] or [(None, self._narrow)]

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return any integer field of all records in native byte order, shape (n,); do not write to it."""
        if not self._groups:
            return self.leading(name)
        values = np.zeros(len(self), self._narrow.dtype[name].newbyteorder("="))
        for rows, heads in self._groups:
            values[rows] = heads[name]
        return values


@dataclass(frozen=True, slots=True)
class Spans:
    """The parts of many records, as positions in the segment; int64 arrays of shape (n,).

    Where `sound` is False the parts do not add up to the record's size, or the record claims another offset; such a
    row's spans are meaningless and must not be used.
    """

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    body_start: npt.NDArray[np.int64]
    body_stop: npt.NDArray[np.int64]
    topic_start: npt.NDArray[np.int64]
    topic_stop: npt.NDArray[np.int64]
    properties_start: npt.NDArray[np.int64]
    sound: npt.NDArray[np.bool_]


def measure(heads: Heads, start_offset: int | npt.NDArray[np.int64] | None) -> Spans:
    """Follow the three length fields of all records, as `store_core.format.record.scan.check_record` does for one.

    * `heads`: Heads of records whose magic code and size are those of a message inside the segment.
    * `start_offset`: Physical offset of the segment's first byte, or int64, shape (n,), what to add to each start; None
      leaves the records' own offsets unchecked.
    """
    starts, raw = heads.starts, heads.raw
    stops = starts + heads.leading("total_size")
    length_size = _topic_length_sizes(heads)
    body_start = starts + heads.widths
    body_stop = body_start + np.maximum(heads.column("body_length"), 0)
    topic_start = body_stop + length_size
    sound = topic_start + _PROPERTIES_LENGTH_SIZE <= stops
    topic_stop = topic_start + _topic_lengths(raw, _where_sound(sound, body_stop, starts), length_size)
    sound &= (topic_stop >= topic_start) & (topic_stop + _PROPERTIES_LENGTH_SIZE <= stops)
    properties_start = topic_stop + _PROPERTIES_LENGTH_SIZE
    sound &= properties_start + _property_lengths(raw, _where_sound(sound, topic_stop, starts)) == stops
    if start_offset is not None:
        sound &= heads.leading("physical_offset") == starts + start_offset
    return Spans(starts, stops, body_start, body_stop, topic_start, topic_stop, properties_start, sound)


def _where_sound(
    sound: npt.NDArray[np.bool_], positions: npt.NDArray[np.int64], fallback: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Keep positions that are known to be inside their record; replace the others by the record's start."""
    return positions if sound.all() else np.where(sound, positions, fallback)


def _topic_length_sizes(heads: Heads) -> npt.NDArray[np.int64] | int:
    is_v2 = heads.leading("magic_code") == MagicCode.MESSAGE_V2
    if not is_v2.any():
        return MagicCode.MESSAGE_V1.topic_length_size
    return np.where(is_v2, MagicCode.MESSAGE_V2.topic_length_size, MagicCode.MESSAGE_V1.topic_length_size).astype(
        np.int64
    )


def _topic_lengths(
    raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], length_size: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.int64]:
    """Read signed topic lengths of one byte, or of two where `length_size` is 2."""
    first = raw.view(np.int8).take(at).astype(np.int64)
    if isinstance(length_size, int):
        return first
    second = raw.take(at + 1)
    return np.where(length_size == 1, first, first * _BYTE + second)


def _property_lengths(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Read signed properties lengths; a negative one means no bytes."""
    lengths = raw.view(np.int8).take(at).astype(np.int64)
    lengths *= _BYTE
    lengths += raw.take(at + 1)
    return np.maximum(lengths, 0, out=lengths)


_RECORD_SIZE: Final = np.dtype([("total_size", unit_dtype(MESSAGE_HEAD)["total_size"])])


@dataclass(frozen=True, slots=True)
class EntryLog:
    """What is known of the DLedger log that a segment belongs to."""

    committed_index: int | None = None
    """Index of the last entry that its checkpoint calls committed: another leader may still replace those after it.
    None if it does not say."""


def entry_column(raw: npt.NDArray[np.uint8], records: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.int64]:
    """Return a field of the heads of entries, by where their records start; int64, shape (n,)."""
    return gather(raw, records - ENTRY_HEAD_SIZE, ENTRY_DTYPE)[name].astype(np.int64)


def sound_entries(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], start_offset: int | None, previous: int = -1
) -> npt.NDArray[np.bool_]:
    """Return which entries of a chain have a sound head, and continue the one before; records are not measured.

    * `raw`: uint8, shape (m,), contiguous: the whole file.
    * `starts`: int64, shape (n,): positions of entries, one behind the other, with records inside the file.
    * `start_offset`: Physical offset of the file's first byte; None leaves positions unchecked.
    * `previous`: Position of the last sound entry before the first; -1 if there is none.
    """
    heads = gather(raw, starts, ENTRY_DTYPE)
    index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
    sound = _sound_alone(raw, starts, start_offset, heads)
    sound[1:] &= (index[1:] == index[:-1] + 1) & (term[1:] >= term[:-1])
    if starts.size and previous >= 0 and previous + entry_size(raw.data, previous) == starts[0]:
        before = gather(raw, np.array([previous]), ENTRY_DTYPE)[0]
        sound[0] &= int(index[0]) == int(before["index"]) + 1 and int(term[0]) >= int(before["term"])
    return sound


def sound_leads(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], start_offset: int | npt.NDArray[np.int64] | None
) -> npt.NDArray[np.bool_]:
    """Return which entries have a sound head, wherever they lie.

    Parameters as of `sound_entries`; `start_offset` may also be what to add to each start, int64, shape (n,).
    """
    return _sound_alone(raw, starts, start_offset, gather(raw, starts, ENTRY_DTYPE))


def _sound_alone(
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    start_offset: int | npt.NDArray[np.int64] | None,
    heads: npt.NDArray[np.void],
) -> npt.NDArray[np.bool_]:
    record_size = gather(raw, starts + ENTRY_HEAD_SIZE, _RECORD_SIZE)["total_size"].astype(np.int64)
    sound: npt.NDArray[np.bool_] = (heads["magic"] == ENTRY_MAGIC) & (heads["index"].astype(np.int64) >= 0)
    sound &= (heads["body_length"] == record_size) & (heads["size"] == record_size + ENTRY_HEAD_SIZE)
    if start_offset is not None:
        sound &= heads["position"] == starts + start_offset
    return sound


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
