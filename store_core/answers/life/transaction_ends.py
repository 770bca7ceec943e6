# SPDX-License-Identifier: Apache-2.0
"""How transactions ended, as an operator asks: also which commits no consumer gets, and what nobody settles."""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.broker.transaction_book import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from store_core.broker.transaction_book import Transaction

__all__ = ["BROKER_GROUP", "End", "Evidence", "end_of"]

BROKER_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Consumer group by which a broker reads its half messages, to ask about those that are not settled."""


class End(StrEnum):
    """How a transaction ended; the value is its name in reports."""

    PENDING = "pending"
    GIVEN_UP = "given_up"
    COMMITTED = "committed"
    COMMITTED_ABSENT = "committed_absent"
    ROLLED_BACK = "rolled_back"
    SETTLED = "settled"
    HALF_MISSING = "half_missing"
    HALF_DELETED = "half_deleted"

    @property
    def meaning(self) -> str:
        """What that is, in one line."""
        return _MEANINGS[self]

    @property
    def is_finding(self) -> bool:
        """Whether somebody should look at it; a pending one only when it is old, or was asked about too often."""
        return self in (End.GIVEN_UP, End.COMMITTED_ABSENT, End.SETTLED, End.HALF_MISSING)


_MEANINGS: Final = {
    End.PENDING: "neither committed nor rolled back; the broker asks the producer",
    End.GIVEN_UP: "not settled, and the broker asks no more: it moved the half message, or is past it",
    End.COMMITTED: "its message is in the log, and its queue leads to it",
    End.COMMITTED_ABSENT: "its message is in the log, and its queue does not lead to it: no consumer gets it",
    End.ROLLED_BACK: "settled, and no message was put",
    End.SETTLED: "settled, and bytes of the log are lost since: rolled back, or committed and lost",
    End.HALF_MISSING: "a commit or an operation whose half message is not in the log, though later ones are",
    End.HALF_DELETED: "the same, with a half message from before the log begins",
}


class Evidence(NamedTuple):
    """What else is known of a store.

    Attributes
    ----------
    absent : collection of int
        Physical offsets of commits to which no queue leads.
    asked_next : int
        Queue offset of the half message that the broker looks at next; 0 if it is not known.
    lost : sequence of (int, int)
        Ranges of the log without records that should be there, ascending.
    log_begin : int
        Physical offset.
    first_half : int or None
        Queue offset of the first half message in the log.
    """

    absent: Collection[int]
    asked_next: int
    lost: Sequence[tuple[int, int]]
    log_begin: int
    first_half: int | None

    def is_lost_between(self, begin: int, end: int) -> bool:
        """Return whether anything is lost between two physical offsets."""
        at = bisect_left(self.lost, begin, key=lambda each: each[1])
        return at < len(self.lost) and self.lost[at][0] < end


def end_of(found: Transaction, evidence: Evidence) -> End:
    """Return how a transaction ended."""
    match found.status:
        case TransactionStatus.COMMITTED:
            return End.COMMITTED_ABSENT if found.commit_offset in evidence.absent else End.COMMITTED
        case TransactionStatus.ROLLED_BACK:
            begin, end = found.half_offset or 0, found.op_offset or 0
            return End.SETTLED if evidence.is_lost_between(begin, end) else End.ROLLED_BACK
        case TransactionStatus.PENDING:
            is_passed = found.half_queue_offset is not None and found.half_queue_offset < evidence.asked_next
            return End.GIVEN_UP if is_passed else End.PENDING
        case TransactionStatus.ORPHANED:
            return _orphaned(found, evidence)


def _orphaned(found: Transaction, evidence: Evidence) -> End:
    if found.commit_offset is None and found.op_offset is None:
        return End.GIVEN_UP
    if found.half_offset is not None:
        return End.HALF_DELETED if found.half_offset < evidence.log_begin else End.HALF_MISSING
    is_first = evidence.first_half is None or (found.half_queue_offset or 0) < evidence.first_half
    return End.HALF_DELETED if evidence.log_begin and is_first else End.HALF_MISSING
