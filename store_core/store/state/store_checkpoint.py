# SPDX-License-Identifier: Apache-2.0
"""The ``checkpoint`` file: how far log, queues and index were safely on disk when it was last written."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.files.file_system import write_all
from store_core.files.store_parts import CHECKPOINT_FILE
from store_core.format.layout import CHECKPOINT, unit_dtype
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.snapshot.checkpoint import checkpoint_fields

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = [
    "CHECKPOINT_SIZE",
    "LOG_OFFSETS",
    "LOG_TIMES",
    "RECOVERY_MARGIN_MS",
    "StoreCheckpoint",
]

CHECKPOINT_SIZE: Final = 4096
"""Bytes of the file (RocketMQ maps one ``OS_PAGE_SIZE``)."""

LOG_TIMES: Final = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
"""Fields with a store time of a record of the log."""

LOG_OFFSETS: Final = ("confirm_physical_offset", "logics_physical_offset")
"""Fields with a physical offset in the log."""

_DTYPE: Final = unit_dtype(CHECKPOINT)
RECOVERY_MARGIN_MS: Final = 3000
"""How far recovery goes back before the timestamps (RocketMQ: ``StoreCheckpoint.getMinTimestamp``)."""


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
        """Note that all units up to one that was put are on disk.

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
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The same with the index (``messageIndexSafe``), ms."""
        return min(self.min_timestamp, self.index_msg_timestamp)
