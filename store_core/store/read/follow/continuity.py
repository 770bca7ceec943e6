# SPDX-License-Identifier: Apache-2.0
"""Whether a log is still the one that a position was taken in, and where reading goes on if it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import (
    DataLossError,
    ExpiredSegmentsError,
    MissingSegmentsError,
    ReplacedStoreError,
    TruncatedLogError,
)
from store_core.format.times import iso_time

if TYPE_CHECKING:
    from store_core.store.read.follow.log_position import LogPosition, RecordProof
    from store_core.store.read.follow.log_segments import LogSegments

__all__ = ["Continuation", "find_continuation"]

_ADVICE: Final = "To go on at offset {offset}: failOnDataLoss=false"
_OVER_HOLE: Final = f"{_ADVICE}, or mode=DROPMALFORMED or PERMISSIVE"
_RESTART: Final = "or begin a new query with a new checkpoint"


class Continuation(NamedTuple):
    """Where reading goes on."""

    position: LogPosition  # the position asked about, if the log is the one that it was taken in
    loss: DataLossError | None = None  # what is lost, to be raised or reported; None if nothing is


def find_continuation(log: LogSegments, known: LogPosition, *, verify_crc: bool) -> Continuation:
    """Compare what lies before a position with what the position remembers.

    * `known`: Where reading is to go on.
    * `verify_crc`: As of `LogSegments.latest`.

    Returns: If segments were deleted: the first byte that is left. If the log was truncated: the first record that was
    stored after the last one that was read, wherever it is, since brokers write on where their recovery ended the log.
    If only that record was changed: the next one. If it is another log: its first byte.
    """
    if log.is_proven(known):
        is_next_missing = (
            log.find(known.physical_offset) is None and log.segments[-1].start_offset > known.physical_offset
        )
        return _expired(log, known) if is_next_missing else Continuation(known)
    last = known.last_record
    if last is None or last.physical_offset < log.segments[0].start_offset:
        return _without_proof(log, known, verify_crc=verify_crc)
    if log.find(last.physical_offset) is None and last.physical_offset < log.segments[-1].start_offset:
        return _expired(log, known)
    return _changed(log, known, verify_crc=verify_crc)


def _without_proof(log: LogSegments, known: LogPosition, *, verify_crc: bool) -> Continuation:
    """Go on where nothing is left that precedes the position, or nothing ever was."""
    if known.physical_offset < log.segments[0].start_offset:
        return _expired(log, known)
    if log.find(known.physical_offset) is not None or known.physical_offset == log.segments[-1].end_offset:
        return Continuation(known)
    return _changed(log, known, verify_crc=verify_crc)


def _expired(log: LogSegments, known: LogPosition) -> Continuation:
    following = next(each for each in log.segments if each.start_offset > known.physical_offset)
    begin, end = known.physical_offset, following.start_offset
    kind, what, way_on = ExpiredSegmentsError, "segments were deleted before they were read, as by retention", _ADVICE
    if following is not log.segments[0]:
        kind, what, way_on = MissingSegmentsError, "segments are missing", _OVER_HOLE
    problem = (
        f"{what}: expected offset {begin} in segment {known.segment}, found {following.path} as the next one; "
        f"{end - begin} bytes from offset {begin} to {end} are lost"
    )
    position = type(known).at_start(following)
    return Continuation(position, kind(problem, begin, end, end, _advice(end, way_on)))


def _changed(log: LogSegments, known: LogPosition, *, verify_crc: bool) -> Continuation:
    """Tell a truncated log from another one: anchors before the cut stay when a log is truncated."""
    last = known.last_record
    end = log.latest(log.earliest, verify_crc=verify_crc)
    if last is None or not any(log.record_at(each.physical_offset) == each for each in known.anchor_records):
        return _replaced(log, known, end)
    position = log.first_since(last.store_timestamp + 1, end)
    if _is_only_changed(log, known, last, position, end):
        return _rewritten(log, known)
    begin, lost_end = position.physical_offset, known.physical_offset
    problem = (
        f"the log was truncated behind the position that was read, as a broker's recovery does: expected the record "
        f"that is remembered at offset {last.physical_offset} of segment {known.segment}, found {_found(log, known)}. "
        f"The log ends at offset {end.physical_offset}. Records that were read between the offsets {begin} and "
        f"{lost_end} are no longer in it, and those stored after them begin at {begin}"
    )
    return Continuation(position, TruncatedLogError(problem, begin, lost_end, begin, _advice(begin)))


def _is_only_changed(
    log: LogSegments, known: LogPosition, last: RecordProof, position: LogPosition, end: LogPosition
) -> bool:
    """Return whether the last record that was read is another one in its place, or damaged, and the log goes on.

    A recovery removes that record with all after it, and what is written then is newer.
    """
    found = log.record_at(last.physical_offset)
    if found is not None:
        return found.store_timestamp == last.store_timestamp
    return position.physical_offset >= last.physical_offset and end.physical_offset >= known.physical_offset


def _rewritten(log: LogSegments, known: LogPosition) -> Continuation:
    """Go on at the same offset, without proof."""
    begin = known.physical_offset
    problem = (
        f"the last record that was read was changed in its place, as by a redaction or by damage: expected the record "
        f"that is remembered before offset {begin} of segment {known.segment}, found {_found(log, known)}. Whether "
        f"others that were read have changed is not known"
    )
    position = type(known)(begin, known.segment)
    return Continuation(position, ReplacedStoreError(problem, begin, begin, begin, _advice(begin)))


def _replaced(log: LogSegments, known: LogPosition, end: LogPosition) -> Continuation:
    start = log.earliest
    problem = (
        f"another log is there than the one that was read up to offset {known.physical_offset}: expected the record "
        f"that is remembered before it, found {_found(log, known)}. This log has the offsets from "
        f"{start.physical_offset} to {end.physical_offset}; what the other one had from offset "
        f"{known.physical_offset} on is lost"
    )
    begin, resume = known.physical_offset, start.physical_offset
    return Continuation(
        start, ReplacedStoreError(problem, begin, max(begin, end.physical_offset), resume, _advice(resume))
    )


def _found(log: LogSegments, known: LogPosition) -> str:
    """Describe what lies where a position remembers a record."""
    last = known.last_record
    if last is None:
        return f"no segment with offset {known.physical_offset}"
    segment = log.find(last.physical_offset)
    if segment is None:
        return f"no segment with offset {last.physical_offset}"
    found = log.record_at(last.physical_offset)
    return (
        f"no record in {segment.path}" if found is None else f"another one, stored at {iso_time(found.store_timestamp)}"
    )


def _advice(offset: int, way_on: str = _ADVICE) -> str:
    return f"{way_on.format(offset=offset)}; {_RESTART}"
