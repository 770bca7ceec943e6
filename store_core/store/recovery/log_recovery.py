# SPDX-License-Identifier: Apache-2.0
"""Following a log for recovery, record by record from a given file to the log's end."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from store_core.files.segment_source import Segment
from store_core.format.columnar.chain import Chain
from store_core.format.record.scan import StopReason, check_record
from store_core.format.segment_view import AllThere, SegmentView
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.snapshot.log_end import FoundEnd, segment_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch.dispatch_request import MessageCheck
    from store_core.queue.queue_rules import QueueRules

__all__ = ["FollowedLog", "find_end_of_files", "follow_log_for_recovery"]


@dataclass(slots=True)
class FollowedLog:
    """Result of following a log for recovery: where the log ends, and why.

    Attributes
    ----------
    end_offset : int
        Where the next record goes, as RocketMQ counts (``processOffset``): one past the last record, or the start of
        the next file if a blank record leads there.
    record_end : int or None
        One past the last record; None if none was found.
    last_record : int or None
        Start of the last record; None if none was found.
    records : int
    path : Path or None
        File that holds the end.
    reason : StopReason or None
        None if only RocketMQ's check rejects the record.
    why : str
        The same in words.
    """

    end_offset: int = 0
    record_end: int | None = None
    last_record: int | None = None
    records: int = 0
    path: Path | None = None
    reason: StopReason | None = None
    why: str = ""


def follow_log_for_recovery(
    files: Sequence[MappedFile],
    rules: QueueRules,
    on_batch: Callable[[DispatchBatch], None],
    on_half: Callable[[int], None] | None = None,
    chains: Mapping[str, Chain] = MappingProxyType({}),
) -> FollowedLog:
    """Follow the records of some files, as ``CommitLog.recoverNormally`` and ``recoverAbnormally`` do.

    After a blank record the next file follows, wherever that starts. The first bytes that are not a record end the log.
    Readers find the end differently, by `store_core.format.damage.log_end.find_log_end`: they continue after damage,
    where a recovery truncates.

    Parameters
    ----------
    files : sequence of MappedFile
        The file at which recovery starts, and those after it; all count as full.
    rules : QueueRules
    on_batch : callable
        Called with the records, in order.
    on_half : callable, optional
        With release 4.3 after an abnormal exit: called with the size of a record whose parts do not add up to it.
        Following then continues right after those parts, but offsets are counted as if after the whole record.
    chains : mapping, optional
        Chains already followed, by file path; see `find_end_of_files`.

    Returns
    -------
    FollowedLog
    """
    found = FollowedLog()
    for file in files:
        found.end_offset, found.path = file.file_from_offset, file.path
        chain = chains.get(str(file.path)) or Chain(SegmentView(_FileBytes(file).raw, file.file_from_offset))
        if not _follow_file(chain, rules, found, on_batch, on_half).is_blank:
            break
    return found


def find_end_of_files(files: Sequence[MappedFile], *, verify_crc: bool) -> tuple[FoundEnd, dict[str, Chain]]:
    """Find where the log in loaded files ends for readers, which, unlike a recovery, continue after damage.

    Returns
    -------
    FoundEnd
    dict
        The chains that were followed to find it, by file path. They are views of the files' bytes.
    """
    by_path = {str(file.path): file for file in files}
    segments = [Segment(path, file.file_from_offset, file.file_size) for path, file in by_path.items()]
    ends = segment_ends(segments, verify_crc=verify_crc, open_bytes=lambda segment: _FileBytes(by_path[segment.path]))
    return FoundEnd.of(ends), {end.segment.path: end.found.chain for end in ends if end.found.chain is not None}


class _FileBytes(AllThere):
    """The bytes of a loaded file, which stays open."""

    def __init__(self, file: MappedFile) -> None:
        self.raw: npt.NDArray[np.uint8] = np.frombuffer(file.select(0) or b"", np.uint8)
        self.next_data = file.next_data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _follow_file(
    chain: Chain,
    rules: QueueRules,
    found: FollowedLog,
    on_batch: Callable[[DispatchBatch], None],
    on_half: Callable[[int], None] | None,
) -> MessageCheck:
    raw, start_offset = chain.segment.raw, chain.segment.start_offset
    position = drift = 0
    while True:
        reader = DispatchReader(
            raw,
            start_offset,
            position,
            rules,
            check_crc=rules.check_crc,
            read_body=True,
            check_dup_info=rules.is_duplication_enabled,
        ).along(chain)
        for batch in reader:
            found.records += len(batch)
            found.last_record = start_offset + int(batch.starts[-1]) + drift
            found.record_end = start_offset + reader.position + drift
            on_batch(batch)
        end, position = reader.end, reader.position
        if on_half is None or end.is_success or end.size <= 0:
            break
        on_half(end.size)
        drift += end.size - end.parsed
        position += end.parsed
    found.end_offset = start_offset + position + drift
    found.reason, found.why = _explain(raw, position, end, rules)
    return end


def _explain(
    raw: np.ndarray[tuple[int], np.dtype[np.uint8]], position: int, end: MessageCheck, rules: QueueRules
) -> tuple[StopReason | None, str]:
    """Return why there is no record at a position, as a reason and in words."""
    if end.is_blank:
        return StopReason.END_OF_FILE, StopReason.END_OF_FILE.value
    if position >= raw.size:
        return StopReason.LIMIT, "the file is full"
    check = check_record(raw.data, position, None, verify_crc=rules.check_crc)
    if check.reason is None or check.reason is StopReason.END_OF_FILE:
        return None, f"release {rules.release} accepts no record like the one there"
    detail = f": expected {check.expected}, found {check.found}" if check.expected else ""
    return check.reason, check.reason.value + detail
