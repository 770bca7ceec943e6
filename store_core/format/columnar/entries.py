# SPDX-License-Identifier: Apache-2.0
"""Heads of many DLedger entries at once; `store_core.format.record.scan` is the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.spans import gather
from store_core.format.layout import MESSAGE_HEAD, unit_dtype
from store_core.format.record.scan import ENTRY_DTYPE, ENTRY_HEAD_SIZE, ENTRY_MAGIC, entry_size

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["EntryLog", "entry_column", "sound_entries", "sound_leads"]

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
