# SPDX-License-Identifier: Apache-2.0
"""The report of opening a store: what was found, decided and done, in words for operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.format.release import DEFAULT_RELEASE
from store_core.format.words import counted
from store_core.snapshot.log_end import FoundEnd
from store_core.store.read.ranges import CheckKind, Coverage

if TYPE_CHECKING:
    from store_core.files.overlay_file_system import FileChange
    from store_core.format.record.scan import StopReason
    from store_core.queue.queue_path import QueueRules


_IN_THE_CONDITIONAL: Final = {
    "checked": "would check",
    "counted": "would count",
    "created": "would create",
    "cut": "would cut",
    "deleted": "would delete",
    "dispatched": "would dispatch",
    "ended": "would end",
    "indexed": "would index",
    "kept": "would keep",
    "left": "would leave",
    "removed": "would remove",
    "stopped": "would stop",
    "truncated": "would truncate",
    "written": "would write",
}
"""First words of decisions and changes, as a dry run says them."""


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """One decision of a recovery.

    Attributes
    ----------
    what : str
        What is done, e.g. ``"ended the log at 12345"``.
    where : str
        File, directory or queue.
    why : str
        The rule, and the facts it was applied to.
    """

    what: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} in {self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The report of opening a store.

    Attributes
    ----------
    last_exit_ok : bool
        Whether the store was closed cleanly, leaving no ``abort`` file.
    is_live : bool
        Whether a broker is writing the store: what is told is as of the moment at which the log was followed.
    files : int
        Segments of the commit log, after recovery.
    records : int
        Number of records checked, from `start_offset` on.
    min_offset, max_offset : int
        Bounds of the log after recovery, physical offsets, as RocketMQ counts (``getMaxPhyOffset``): the next record
        goes to `max_offset`, which is the start of a new file if a blank record closed the previous one.
    recovery_end_offset : int
        One past the last record that this release keeps; see ADR 0005.
    end : FoundEnd
        Where the log ended before anything was truncated, and what followed; the same in all reports.
    coverage : Coverage
        What was checked, and what was not.
    reason : StopReason or None
        Why it ends there; None if there is no file.
    truncated_files : int
        Number of segments after the end, which were deleted.
    notes : tuple of str
        What an operator should know besides `decisions`: files skipped, units refused.
    release : str
        The release whose rules were followed.
    start_offset : int
        Where the check of the log began.
    queues_cover : int
        How far the queues covered the log when they were loaded; -1 if they had no units.
    dispatched : int
        Records dispatched to queues and index while the log was checked.
    caught_up : int
        Bytes of the log dispatched afterwards, before the store was ready.
    reput_from_offset : int
        Where dispatching continues.
    confirm_offset : int
        Confirmed offset that release 5.3 notes in the checkpoint; otherwise -1.
    refused_units : int
        Records that did not get a unit in a queue, see `ConsumeQueueStore.refused`.
    decisions : tuple of RecoveryDecision
        In order.
    refusal : str
        Why the store can't be opened; empty if it can.
    changes : tuple of FileChange
        What opening for writing would do to the store's files. Only for a read-only open or a dry run; not kept for a
        store opened for writing.
    """

    last_exit_ok: bool = True
    is_live: bool = False
    files: int = 0
    records: int = 0
    min_offset: int = -1
    max_offset: int = 0
    recovery_end_offset: int = 0
    end: FoundEnd = field(default_factory=FoundEnd)
    coverage: Coverage = field(default_factory=Coverage)
    reason: StopReason | None = None
    truncated_files: int = 0
    notes: tuple[str, ...] = ()
    release: str = DEFAULT_RELEASE
    start_offset: int = 0
    queues_cover: int = -1
    dispatched: int = 0
    caught_up: int = 0
    reput_from_offset: int = 0
    confirm_offset: int = -1
    refused_units: int = 0
    decisions: tuple[RecoveryDecision, ...] = ()
    refusal: str = ""
    changes: tuple[FileChange, ...] = ()

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last sound record, whatever damage precedes it, before any truncation."""
        return self.end.end_offset

    @property
    def is_refused(self) -> bool:
        """Whether the store can't be opened."""
        return bool(self.refusal)

    @property
    def state(self) -> str:
        """How the store was left, in words."""
        if self.is_live:
            return f"the store is open, its lock is held: this is after a crash when its log ended at {self.end_offset}"
        return f"the store was {'closed' if self.last_exit_ok else 'not closed (there is an abort file)'}"

    def __str__(self) -> str:
        lines = [f"RocketMQ {self.release}: {self.state}"]
        is_done = not self.changes
        lines += ["nothing was changed: opening the store for writing would do this"] * (not is_done)
        lines += [*(_said(each, is_done=is_done) for each in self.decisions), *self.notes]
        if self.refusal:
            return "\n".join([*lines, f"refused: {self.refusal}"])
        lines += [*map(str, self.end.tails), *self._lost()]
        files, records = counted(self.files, "file"), counted(self.records, "record")
        lines.append(f"log {self.min_offset} to {self.max_offset} in {files}, {records} checked")
        return "\n".join([*lines, *self.coverage.lines, *(_said(each, is_done=False) for each in self.changes)])

    def _lost(self) -> list[str]:
        """Return lines for what the recovery truncates although it is readable."""
        if self.recovery_end_offset >= self.end_offset:
            return []
        ends = f"the last sound record ends at {self.end_offset}, and this recovery ends the log at"
        return [f"{ends} {self.recovery_end_offset}: what is between them is truncated, and can be read until then"]


def _said(found: RecoveryDecision | FileChange, *, is_done: bool) -> str:
    """Return what was decided or changed, or what would be."""
    first, blank, rest = str(found).partition(" ")
    return f"{first if is_done else _IN_THE_CONDITIONAL.get(first, first)}{blank}{rest}"


def recovery_coverage(rules: QueueRules, *, is_whole: bool) -> Coverage:
    """Return what a recovery checks, which is what the release checks.

    * `is_whole`: Whether the check begins at the log's first segment.
    """
    earlier = {} if is_whole else {CheckKind.LENGTHS_OF_EARLIER_SEGMENTS: False}
    has_property_crc = rules.features.has_property_crc and rules.check_crc and rules.verify_property_crc
    return Coverage.of(
        {
            CheckKind.SEGMENT_SIZES: True,
            CheckKind.LENGTHS: True,
            **earlier,
            CheckKind.BODY_CHECKSUMS: rules.check_crc,
            CheckKind.PROPERTY_CHECKSUMS: has_property_crc,
            CheckKind.PLACES: False,
            CheckKind.QUEUES: False,
            CheckKind.INDEX: False,
        }
    )
