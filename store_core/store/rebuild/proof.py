# SPDX-License-Identifier: Apache-2.0
"""Proof that a record is what was written, beyond what a broker checks when it dispatches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.record_crcs import record_crcs

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.queue_rules import QueueRules

__all__ = ["NO_STORE_TIME", "WRONG_RECORD_CRC", "count_unproven", "wrong_record_crcs"]

WRONG_RECORD_CRC: Final = "the record does not match its checksum over all of it, the property __CRC32#"

NO_STORE_TIME: Final = "the record has no store time"


def wrong_record_crcs(
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    rules: QueueRules,
) -> npt.NDArray[np.int64]:
    """Return which records do not match the checksum over all of them; none in releases that have no such checksum.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,): the segment.
    starts, stops : numpy.ndarray
        int64, shape (n,): positions of the records.
    rules : QueueRules
    """
    if not rules.features.has_property_crc:
        return np.empty(0, np.int64)
    checked = record_crcs(raw, starts, stops)
    return checked.rows[~checked.is_right]


def count_unproven(raw: npt.NDArray[np.uint8], start_offset: int, batch: DispatchBatch, rules: QueueRules) -> int:
    """Count the records that are not where they say they are, have no store time, or do not match their checksum."""
    is_wrong = (batch.physical_offset != batch.starts + start_offset) | (batch.store_timestamp <= 0)
    is_wrong[wrong_record_crcs(raw, batch.starts, batch.starts + batch.message_size, rules)] = True
    return int(np.count_nonzero(is_wrong))
