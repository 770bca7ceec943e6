# SPDX-License-Identifier: Apache-2.0
"""Finding out, when a store is opened, where its log ends and where its queues stand.

The queues are read from the log itself: a queue whose records are all deleted starts at 0 again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.decode import decode_message
from store_core.format.lockstep import scan
from store_core.format.message import CRC_MASK
from store_core.format.properties import PropertyParser
from store_core.format.property_string import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM
from store_core.format.scan import StopReason
from store_core.format.slices import as_text, take_slices
from store_core.format.spans import Heads, measure
from store_core.format.sys_flag import TRANSACTION_MASK, MessageSysFlag, TransactionType
from store_core.store.light_queues import is_light, split_names

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.spans import Spans
    from store_core.store.config import MessageStoreConfig
    from store_core.store.queue_offsets import QueueOffsets

__all__ = ["LogRecovery", "RecoveryReport", "recover_log"]

_LAST_FILES: Final = 3
_CHUNK: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a store found.

    Attributes
    ----------
    last_exit_ok : bool
        Whether the store was closed, and no ``abort`` file left.
    files : int
        Segments of the commit log.
    records : int
        Records in them.
    min_offset, max_offset : int
        Physical offsets between which the log lies.
    reason : StopReason or None
        Why it ends there; None without a file.
    truncated_files : int
        Segments behind the end, which were deleted.
    notes : tuple of str
        What an operator should know.
    """

    last_exit_ok: bool = True
    files: int = 0
    records: int = 0
    min_offset: int = -1
    max_offset: int = 0
    reason: StopReason | None = None
    truncated_files: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class LogRecovery:
    """Where a log ends.

    Attributes
    ----------
    end_offset : int
        Behind the last record. A blank record behind that is not counted.
    records : int
    reason : StopReason or None
    notes : list of str
    """

    end_offset: int = 0
    records: int = 0
    reason: StopReason | None = None
    notes: list[str] = field(default_factory=list)


def recover_log(queue: MappedFileQueue, config: MessageStoreConfig, offsets: QueueOffsets) -> LogRecovery:
    """Walk the log, find its end, and learn where the queues stand.

    In the last three files the log ends at the first thing that is no record, by the rules of RocketMQ: a record's own
    physical offset is not looked at, and bodies must match their checksums if ``checkCRCOnRecover`` says so. Damage in
    earlier files is passed over, and noted.

    Parameters
    ----------
    queue : MappedFileQueue
        Loaded: all files count as full.
    config : MessageStoreConfig
    offsets : QueueOffsets
        Learns the next index of each queue.
    """
    found = LogRecovery(end_offset=max(queue.min_offset, 0))
    files = queue.mapped_files
    for index, file in enumerate(files):
        is_last = index >= len(files) - _LAST_FILES
        end, records, reason = _read(file, config, offsets, verify_crc=is_last and config.check_crc_on_recover)
        found.records += records
        if is_last or reason is StopReason.END_OF_FILE:
            found.end_offset, found.reason = file.file_from_offset + end, reason
        if reason is not StopReason.END_OF_FILE:
            if reason.is_damage or not is_last:
                found.notes.append(f"{file.path}: no record at {file.file_from_offset + end}: {reason.value}")
            if is_last:
                break
    return found


def _read(
    file: MappedFile, config: MessageStoreConfig, offsets: QueueOffsets, *, verify_crc: bool
) -> tuple[int, int, StopReason]:
    """Walk one file: give its end, its records, and why it ends there."""
    view = file.select(0)
    if view is None:
        return 0, 0, StopReason.UNWRITTEN
    raw = np.frombuffer(view, np.uint8)
    found = scan(raw, 0, None, None)
    for begin in range(0, found.starts.size, _CHUNK):
        chunk = _Chunk(raw, found.starts[begin : begin + _CHUNK], config.release)
        bad = chunk.first_bad_body() if verify_crc else None
        if bad is not None:
            chunk = _Chunk(raw, chunk.starts[:bad], config.release)
        chunk.note_queues(offsets, looks_for_light=config.encode_rules.enable_lmq)
        if bad is not None:
            return int(found.starts[begin + bad]), begin + bad, StopReason.BAD_CRC
    return found.stop, found.starts.size, found.reason


class _Chunk:
    """Some records of a file."""

    def __init__(self, raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], release: str) -> None:
        self.raw = raw
        self.starts = starts
        self.heads = Heads(raw, starts)
        self.spans: Spans = measure(self.heads, None)
        self.parser = PropertyParser.of_release(release)

    def first_bad_body(self) -> int | None:
        """Give the number of the first record whose body does not match its checksum."""
        view = memoryview(self.raw)  # type: ignore[arg-type]  # arrays have buffers
        bounds = zip(self.spans.body_start.tolist(), self.spans.body_stop.tolist(), strict=True)
        crcs = np.fromiter((zlib.crc32(view[start:stop]) for start, stop in bounds), np.int64, self.starts.size)
        wrong = (crcs & CRC_MASK) != self.heads.leading("body_crc")
        wrong &= self.spans.body_stop > self.spans.body_start
        return int(np.argmax(wrong)) if wrong.any() else None

    def note_queues(self, offsets: QueueOffsets, *, looks_for_light: bool) -> None:
        """Move the queues of these records on."""
        flags = self.heads.leading("sys_flag")
        kinds = flags & TRANSACTION_MASK
        queued = (kinds == TransactionType.NOT_TYPE.value) | (kinds == TransactionType.COMMIT_TYPE.value)
        inner = (flags & MessageSysFlag.INNER_BATCH_FLAG) != 0
        self._note_plain(offsets, queued & ~inner)
        for row in np.flatnonzero(queued & inner).tolist():
            self._note_inner(offsets, row)
        if looks_for_light:
            for row in self._light_rows():
                self._note_light(offsets, row)

    def _note_plain(self, offsets: QueueOffsets, rows: npt.NDArray[np.bool_]) -> None:
        topics = take_slices(self.raw, self.spans.topic_start[rows], self.spans.topic_stop[rows])
        columns = [
            topics,
            pa.array(self.heads.leading("queue_id")[rows]),
            pa.array(self.heads.leading("queue_offset")[rows]),
        ]
        table = pa.table(columns, ["topic", "queue_id", "queue_offset"])
        last = table.group_by(["topic", "queue_id"]).aggregate([("queue_offset", "max")])
        for line in last.to_pylist():
            name = line["topic"].decode("utf-8", "replace")
            _raise_to(offsets, name, line["queue_id"], line["queue_offset_max"] + 1)

    def _note_inner(self, offsets: QueueOffsets, row: int) -> None:
        message = decode_message(self.raw.data, int(self.starts[row]), None, parser=self.parser, verify_crc=False)
        number = message.properties.get(INNER_NUM, "1")
        taken = max(int(number), 1) if number.removeprefix("-").isdecimal() else 1
        _raise_to(offsets, message.topic, message.queue_id, message.queue_offset + taken)

    def _light_rows(self) -> list[int]:
        fields = take_slices(self.raw, self.spans.properties_start, self.spans.stops)
        text = as_text(fields)
        found = pc.match_substring(fields if text is None else text, INNER_MULTI_DISPATCH)
        return np.flatnonzero(np.asarray(found, bool)).tolist()

    def _note_light(self, offsets: QueueOffsets, row: int) -> None:
        message = decode_message(self.raw.data, int(self.starts[row]), None, parser=self.parser, verify_crc=False)
        names = split_names(message.properties.get(INNER_MULTI_DISPATCH, ""))
        indexes = split_names(message.properties.get(INNER_MULTI_QUEUE_OFFSET, ""))
        for name, index in zip(names, indexes, strict=False):
            if is_light(name) and index.isdecimal():
                offsets.set_light_offset(name, max(offsets.next_light_offset(name), int(index) + 1))


def _raise_to(offsets: QueueOffsets, topic: str, queue_id: int, offset: int) -> None:
    if offset > offsets.next_offset(topic, queue_id):
        offsets.set_offset(topic, queue_id, offset)
