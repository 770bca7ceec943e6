# SPDX-License-Identifier: Apache-2.0
"""What a reader of a DLedger log should know: that its last entries may still be replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.format.columnar.entries import entry_column

if TYPE_CHECKING:
    from store_core.store.read.found_end import SegmentEnd

__all__ = ["uncommitted_note"]


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
        f"the DLedger log in {end.segment.path} goes on to entry {index}, but its checkpoint calls only those up to "
        f"{entries.committed_index} committed: another leader may still replace the rows whose dledger_committed is "
        f"false."
    )
