# SPDX-License-Identifier: Apache-2.0
"""Queue numbers of many records, found by topic and queue id without creating a Python object per record.

A log has few queues and many records. Topic and queue id of each record are mixed into 64 bits, which select a queue
seen before; whether it is the right one is then compared byte by byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.byte_words import WORD_SIZE, piece_words, words_before
from store_core.format.properties import decode_text
from store_core.queue.dispatch.queue_numbering import QueueNumbering

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

__all__ = ["QueueNumbers"]

_FACTORS: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
"""Odd numbers with well-spread bits; any three would do."""

_SLOT_BITS: Final = 16
_SLOT_SHIFT: Final = np.uint64(64 - _SLOT_BITS)
_FOLD_SHIFT: Final = np.uint64(32)

_KEPT_STEPS: Final = 8
"""Words of a topic that are kept between mixing and comparing; longer topics are read again."""


class _Names:
    """Topics and queue ids of many records; topics as words, read from their ends."""

    def __init__(
        self,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        queue_ids: npt.NDArray[np.int32],
    ) -> None:
        self._raw = raw
        self.stops = stops
        self.lengths = stops - starts
        self.queue_ids = queue_ids
        self._steps: list[tuple[int, npt.NDArray[np.int64] | slice, npt.NDArray[np.uint64]]] | None = None

    def only(self, rows: npt.NDArray[np.int64]) -> _Names:
        """Return those of some rows."""
        return _Names(self._raw, self.stops[rows] - self.lengths[rows], self.stops[rows], self.queue_ids[rows])

    def steps(self) -> Iterable[tuple[int, npt.NDArray[np.int64] | slice, npt.NDArray[np.uint64]]]:
        """Return the words of the topics; see `store_core.format.columnar.byte_words.piece_words`."""
        words = piece_words(self._raw, self.stops, self.lengths)
        if int(self.lengths.max(initial=0)) > _KEPT_STEPS * WORD_SIZE:
            return words
        if self._steps is None:
            self._steps = list(words)
        return self._steps

    def mixed(self) -> npt.NDArray[np.uint64]:
        """Mix topic and queue id into 64 bits; different queues rarely have the same result."""
        mixed = self.queue_ids.astype(np.uint64)
        mixed *= _FACTORS[0]
        mixed += self.lengths.view(np.uint64)
        for _, rows, words in self.steps():
            step = mixed[rows] ^ words
            step *= _FACTORS[1]
            step ^= step >> _FOLD_SHIFT
            mixed[rows] = step
        mixed *= _FACTORS[2]
        return mixed

    def differ(self, others: npt.NDArray[np.int64], known: _Names) -> npt.NDArray[np.bool_]:
        """Report which rows differ from the known ones of these numbers (shape (n,))."""
        differ: npt.NDArray[np.bool_] = known.queue_ids.take(others) != self.queue_ids
        differ |= known.lengths.take(others) != self.lengths
        for passed, rows, words in self.steps():
            if known.stops.size < words.size:
                table = words_before(self._raw, known.stops - passed, known.lengths - passed)
                differ[rows] |= table.take(others[rows]) != words
            else:
                same = others[rows]
                stops, left = known.stops.take(same) - passed, known.lengths.take(same) - passed
                differ[rows] |= words_before(self._raw, stops, left) != words
        return differ

    def followed_by(self, names: _Names) -> _Names:
        """Concatenate two."""
        stops = np.concatenate([self.stops, names.stops])
        lengths = np.concatenate([self.lengths, names.lengths])
        return _Names(self._raw, stops - lengths, stops, np.concatenate([self.queue_ids, names.queue_ids]))

    def key(self, row: int) -> tuple[bytes, int]:
        """Return topic and queue id of one row."""
        stop = int(self.stops[row])
        return self._raw[stop - int(self.lengths[row]) : stop].tobytes(), int(self.queue_ids[row])


class QueueNumbers:
    """Numbering of the queues of a file's records, in order of first appearance.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous: the file.

    Attributes
    ----------
    queues : list of tuple of str and int
        Topic and queue id by number. Malformed bytes of topics are U+FFFD; as in Java, topics that differ only in such
        bytes are the same.
    """

    def __init__(self, raw: npt.NDArray[np.uint8]) -> None:
        self._raw = raw
        self._numbers = QueueNumbering()
        self.queues = self._numbers.queues
        self._examples: dict[tuple[bytes, int], int] = {}
        self._known: _Names | None = None
        self._queue_of = np.empty(0, np.int32)
        self._slots = np.zeros(1 << _SLOT_BITS, np.int64)

    def find(
        self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], queue_ids: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int32]:
        """Return the number of each record's queue.

        Parameters
        ----------
        starts, stops : numpy.ndarray
            int64, shape (n,): where the topics lie in the file, each after at least one word of other bytes.
        queue_ids : numpy.ndarray
            int32, shape (n,).
        """
        names = _Names(self._raw, starts, stops, queue_ids)
        mixed = names.mixed()
        slots = (mixed >> _SLOT_SHIFT).view(np.int64)
        others = self._slots.take(slots)
        wrong = np.arange(starts.size)
        if self._known is not None:
            wrong = np.flatnonzero(names.differ(others, self._known))
        if wrong.size:
            others[wrong] = self._resolve(names.only(wrong), mixed[wrong])
            self._slots[slots[wrong]] = others[wrong]
        return self._queue_of.take(others)

    def _resolve(self, names: _Names, mixed: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Look up rows that the table got wrong: one row per mixed value, then the rows that differ from it."""
        _, first, kinds = np.unique(mixed, return_index=True, return_inverse=True)
        others = self._look_up(names, first)[kinds]
        if self._known is not None:
            unlike = np.flatnonzero(names.differ(others, self._known))
            others[unlike] = self._look_up(names, unlike)
        return others

    def _look_up(self, names: _Names, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Look up some rows one by one, and remember new queues."""
        found, new = [], []
        for row in rows.tolist():
            key = names.key(row)
            if key not in self._examples:
                self._examples[key] = len(self._examples)
                new.append(row)
            found.append(self._examples[key])
        if new:
            self._remember(names.only(np.array(new, np.int64)))
        return np.array(found, np.int64)

    def _remember(self, names: _Names) -> None:
        self._known = names if self._known is None else self._known.followed_by(names)
        keys = map(names.key, range(names.stops.size))
        numbers = [self._numbers.number((decode_text(topic), queue_id)) for topic, queue_id in keys]
        self._queue_of = np.concatenate([self._queue_of, np.array(numbers, np.int32)])
