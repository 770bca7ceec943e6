# SPDX-License-Identifier: Apache-2.0
"""A store's own state: the ``checkpoint`` file, what a running store may do, and what it counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from enum import IntFlag
from itertools import accumulate, repeat
from threading import Lock
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.files.file_system import FileSystem, OpenFile, write_all
from store_core.files.names import CHECKPOINT_FILE
from store_core.format.layout import CHECKPOINT, unit_dtype
from store_core.format.release import DEFAULT_RELEASE
from store_core.snapshot.config import checkpoint_fields, covered_until

if TYPE_CHECKING:
    from pathlib import Path


CHECKPOINT_SIZE: Final = 4096
"""Bytes of the file (RocketMQ maps one ``OS_PAGE_SIZE``)."""

_DTYPE: Final = unit_dtype(CHECKPOINT)


class StoreCheckpoint:
    """The ``checkpoint`` file, from which abnormal recovery starts (RocketMQ: ``StoreCheckpoint``).

    Values can be set at any time and are written by `flush`, both from any thread. A missing file counts as all zero.

    * `physic_msg_timestamp`: Store time of the last record covered by a thorough flush or a group commit; ms.
    * `logics_msg_timestamp`, `index_msg_timestamp`: The same for the queues and the index; ms.
    * `master_flushed_offset`, `confirm_physical_offset`: Kept by releases with `ReleaseRules.keeps_confirmed_offset`;
      the others leave these bytes as they are.
    * `logics_physical_offset`: Physical offset of a record up to which the queues are on disk. Kept by releases with
      `ReleaseRules.keeps_flushed_queue_offset`; the others leave it as it is.
    * `last_put`: Store time, ms, and physical offset of the last unit put into a queue, flushed or not; zeros if there
      was none. It is not stored (``tmpLogicsMsgTimestamp``, ``tmpLogicsPhysicalOffset``). RocketMQ before 5.5 stores
      this time as that of the queues, so that after a power failure its recovery may start after units that were lost.
    """

    def __init__(self, root: Path, file_system: FileSystem, release: str = DEFAULT_RELEASE) -> None:
        self.path = root / CHECKPOINT_FILE
        self._file_system = file_system
        self._file: OpenFile | None = None
        self._lock = Lock()
        self._flushed: bytes | None = None
        self._size = sum(np.dtype(field.type).itemsize for field in checkpoint_fields(release))
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0
        self.logics_physical_offset = 0
        self.last_put = (0, 0)

    def cover_queues(self, put: tuple[int, int], *, keeps_offset: bool) -> None:
        """Note that all units up to this one are on disk.

        * `put`: What `last_put` was before they were flushed.
        * `keeps_offset`: Whether the physical offset is noted, too. RocketMQ 5.5, which does that, leaves out a time
          that is not after 1970; the releases before take each (``FlushConsumeQueueService.doFlush``).
        """
        time, offset = put
        if time > 0 or (offset > 0 and not keeps_offset):
            self.logics_msg_timestamp = time
        if offset > 0 and keeps_offset:
            self.logics_physical_offset = offset

    def load(self) -> Self:
        """Read the values that the release knows."""
        if self._file_system.status(self.path) is None:
            return self
        stored = self._file_system.open(self.path, writable=False).read(self._size, 0)
        values = np.frombuffer(stored.ljust(_DTYPE.itemsize, b"\0"), _DTYPE, 1)[0]
        for field in CHECKPOINT.fields:
            setattr(self, field.name, int(values[field.name]))
        return self

    @property
    def is_changed(self) -> bool:
        """Whether there are values that `flush` has not written yet."""
        return self._flushed != self._encoded()

    def _encoded(self) -> bytes:
        values = np.zeros((), _DTYPE)
        for field in CHECKPOINT.fields:
            values[field.name] = getattr(self, field.name)
        return values.tobytes()[: self._size]

    def flush(self) -> None:
        """Write the values, durably.

        Steps: 1. open or create the file, and lengthen it to 4,096 bytes; 2. write the values, which lie in one sector;
        3. sync the file; 4. the first time, sync the directory. A crash leaves either the old or the new values.
        """
        with self._lock:
            values = self._encoded()
            file = self._file or self._file_system.open(self.path, create=True)
            file.grow(CHECKPOINT_SIZE)
            write_all(file, memoryview(values), 0)
            file.sync()
            if self._file is None:
                self._file_system.sync_directory(self.path.parent)
                self._file = file
            self._flushed = values

    def close(self) -> None:
        """Close the file without flushing."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    @property
    def min_timestamp(self) -> int:
        """Store time before which log and queues are surely on disk, ms; recovery starts at a file older than this."""
        return covered_until(self.physic_msg_timestamp, self.logics_msg_timestamp)

    @property
    def min_timestamp_index(self) -> int:
        """The same with the index (``messageIndexSafe``), ms."""
        return min(self.min_timestamp, self.index_msg_timestamp)


class RunningFlag(IntFlag):
    """Reasons to refuse, with the bits of RocketMQ's ``RunningFlags``."""

    NOT_READABLE = 1 << 0
    NOT_WRITEABLE = 1 << 1
    WRITE_LOGICS_QUEUE_ERROR = 1 << 2
    WRITE_INDEX_FILE_ERROR = 1 << 3
    DISK_FULL = 1 << 4
    FENCED = 1 << 5
    LOGIC_DISK_FULL = 1 << 6


_FORBID_WRITING: Final = RunningFlag(~RunningFlag.NOT_READABLE & 0x7F)
_FORBID_QUEUES: Final = _FORBID_WRITING & ~(RunningFlag.DISK_FULL | RunningFlag.FENCED)


class RunningFlags:
    """Flags that services set and every put checks (RocketMQ: ``RunningFlags``).

    Setting and clearing is safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._bits = RunningFlag(0)

    def has(self, flag: RunningFlag) -> bool:
        """Whether a flag is set."""
        return bool(self._bits & flag)

    def set(self, flag: RunningFlag) -> bool:
        """Set a flag; return whether it was clear before."""
        with self._lock:
            was_clear = not self._bits & flag
            self._bits |= flag
        return was_clear

    def clear(self, flag: RunningFlag) -> bool:
        """Clear a flag; return whether it was set before."""
        with self._lock:
            was_set = bool(self._bits & flag)
            self._bits &= ~flag
        return was_set

    @property
    def is_readable(self) -> bool:
        """Whether messages may be read."""
        return not self._bits & RunningFlag.NOT_READABLE

    @property
    def is_writeable(self) -> bool:
        """Whether messages may be put."""
        return not self._bits & _FORBID_WRITING

    @property
    def is_cq_writeable(self) -> bool:
        """Whether consume queues may be written, regardless of a full commit log disk or fencing."""
        return not self._bits & _FORBID_QUEUES


PUT_TIME_BORDERS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
"""Bounds of the distribution of put times in ms; a time equal to a bound counts above it."""

PUT_TIME_LABELS: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)

_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
"""Width in ms, and number, of the buckets for percentiles (RocketMQ 5.x: ``PUT_MESSAGE_ENTIRE_TIME_BUCKETS``)."""

_BUCKETS: Final = tuple(accumulate(width for step, times in _STEPS for width in repeat(step, times)))


class StoreStats:
    """Counters of puts and gets since the store was opened (RocketMQ: ``StoreStatsService``); safe from any thread.

    Attributes
    ----------
    put_message_topic_times : Counter
        Messages per topic, as stored: delayed ones count for the schedule topic.
    put_message_topic_size : Counter
        Bytes per topic.
    put_message_failed_times : int
        Puts whose result was not OK.
    put_message_entire_time_max : int
        Longest put, ms.
    get_message_times_total_found, get_message_times_total_miss : int
        Gets that returned messages, and gets with any other status. Gets that the store refuses count in neither.
    get_message_transferred_msg_count : int
        Messages returned by gets; for an inner batch, all that it holds.
    get_message_entire_time_max : int
        Longest get, ms.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.put_message_topic_times: Counter[str] = Counter()
        self.put_message_topic_size: Counter[str] = Counter()
        self.put_message_failed_times = 0
        self.put_message_entire_time_max = 0
        self.get_message_times_total_found = 0
        self.get_message_times_total_miss = 0
        self.get_message_transferred_msg_count = 0
        self.get_message_entire_time_max = 0
        self._distribution = [0] * len(PUT_TIME_LABELS)
        self._buckets = [0] * (len(_BUCKETS) + 1)

    def add_put(self, topic: str, messages: int, size: int) -> None:
        """Count messages that are in the log."""
        with self._lock:
            self.put_message_topic_times[topic] += messages
            self.put_message_topic_size[topic] += size

    def add_put_time(self, elapsed_ms: int, *, is_ok: bool) -> None:
        """Count a put and its duration, from the call to its result."""
        with self._lock:
            self._distribution[bisect_right(PUT_TIME_BORDERS, elapsed_ms)] += 1
            self._buckets[bisect_left(_BUCKETS, elapsed_ms)] += 1
            self.put_message_entire_time_max = max(self.put_message_entire_time_max, elapsed_ms)
            self.put_message_failed_times += not is_ok

    def add_get(self, elapsed_ms: int, messages: int, *, is_found: bool) -> None:
        """Count a get, its duration from the call to its result, and the messages returned."""
        with self._lock:
            self.get_message_times_total_found += is_found
            self.get_message_times_total_miss += not is_found
            self.get_message_transferred_msg_count += messages
            self.get_message_entire_time_max = max(self.get_message_entire_time_max, elapsed_ms)

    @property
    def put_message_times_total(self) -> int:
        """Messages of all topics."""
        return self.put_message_topic_times.total()

    @property
    def put_message_size_total(self) -> int:
        """Bytes of all topics."""
        return self.put_message_topic_size.total()

    @property
    def put_message_distribute_time(self) -> dict[str, int]:
        """Number of puts by duration."""
        return dict(zip(PUT_TIME_LABELS, self._distribution, strict=True))

    def find_put_message_entire_time(self, share: float) -> float:
        """Estimate the time within which a share of all puts completed, in ms; linear within a bucket.

        RocketMQ 5.x (``findPutMessageEntireTimePX``) has one unbounded bucket above 10 s; here such puts count as the
        longest one.

        Examples
        --------
        >>> stats = StoreStats()
        >>> for elapsed in range(100):
        ...     stats.add_put_time(elapsed, is_ok=True)
        >>> stats.find_put_message_entire_time(0.5)
        49.0
        """
        with self._lock:
            counts = list(self._buckets)
        wanted, passed = int(sum(counts) * share), 0
        lower = 0
        for upper, count in zip((*_BUCKETS, max(self.put_message_entire_time_max, _BUCKETS[-1])), counts, strict=True):
            if wanted <= passed + count:
                return lower + ((upper - lower) * (wanted - passed) / count if count else 0.0)
            passed += count
            lower = upper
        return float(lower)
