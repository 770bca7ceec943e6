# SPDX-License-Identifier: Apache-2.0
"""What a reader of a log should know: entries that may still be replaced, and records that a blank one hides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.format.columnar.entries import entry_column

if TYPE_CHECKING:
    from store_core.snapshot.log_end import SegmentEnd

__all__ = ["covered_note", "uncommitted_note"]


def covered_note(path: str, blank: int, covered: int) -> str:
    """Return a note that a blank record hides sound ones.

    Parameters
    ----------
    path : str
        The segment file.
    blank, covered : int
        Physical offsets of the blank record, and of the first sound record behind it.
    """
    return (
        f"the blank record at offset {blank} of {path} closes the file, but sound records that are not older follow it "
        f"from offset {covered} on. They are not rows: an append of this package was not committed, or something "
        f"overwrote the record at {blank}; commitlog check shows which queue units lead there."
    )


def uncommitted_note(end: SegmentEnd) -> str | None:
    """Return a note if the last entries of a DLedger log are not known to be committed; None if all are.

    Parameters
    ----------
    end : SegmentEnd
        The end of the segment that the log ends in.
    """
    entries, chain = end.segment.entries, end.found.chain
    if entries is None or entries.committed_index is None or chain is None:
        return None
    last = chain.place.last_sound
    if last < 0:
        return None
    raw = chain.segment.raw
    index = int(entry_column(raw, np.array([last + end.segment.framing.lead]), "index")[0])
    if index <= entries.committed_index:
        return None
    return (
        f"the DLedger log in {end.segment.path} goes on to entry {index}, but by its checkpoint only those up to "
        f"{entries.committed_index} are committed: another leader may still replace the rows whose dledger_committed "
        f"is false."
    )
