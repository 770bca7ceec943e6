# SPDX-License-Identifier: Apache-2.0
"""Indexes with small files for tests, and the requests that fill them."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.queue.index_service import IndexService
from store_core.queue.queue_path import QueueRules
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem


ALWAYS: Final = (0, 2**63 - 1)
"""Begin and end of a query for all times."""


def rules(slots: int = 10, entries: int = 6, **values: Any) -> QueueRules:  # noqa: ANN401 -- fields of QueueRules
    return QueueRules(max_hash_slot_num=slots, max_index_num=entries, **values)


def index_service(
    directory: Path,
    of: QueueRules,
    file_system: FileSystem | None = None,
    **arguments: Any,  # noqa: ANN401 -- arguments of IndexService
) -> IndexService:
    arguments.setdefault("clock", FakeClock())
    return IndexService(directory, of, file_system or FaultyFileSystem(), time_zone=UTC, **arguments)


def request(offset: int, keys: str = "", timestamp: int = 1_000_000, **values: Any) -> DispatchRequest:  # noqa: ANN401
    values.setdefault("topic", "T")
    return DispatchRequest(
        queue_id=0,
        physical_offset=offset,
        message_size=100,
        tags_code=0,
        store_timestamp=timestamp,
        consume_queue_offset=0,
        keys=keys,
        **values,
    )


def contents(index: IndexService) -> list[tuple[str, bytes]]:
    """Return names and bytes of all files, as they are on disk."""
    return [(path.name, path.read_bytes()) for path in sorted(index.directory.glob("*"))]


def _requests_of(steps: list[tuple[int, int, str | None, str, int]]) -> list[DispatchRequest]:
    offset, made = 0, []
    for step, timestamp, unique_key, keys, sys_flag in steps:
        offset = max(-5, offset + step)
        made.append(request(offset, keys, timestamp, unique_key=unique_key, sys_flag=sys_flag))
    return made


_KEYS: Final = st.lists(st.sampled_from(["a", "b", "é", "😀", "k1", "k2", ""]), max_size=4).map(" ".join)
_TIMES: Final = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_009_000), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 1])
)
_STEPS: Final = st.sampled_from([100, 100, 100, 0, -100, 7])
_FLAGS: Final = st.sampled_from([0, 0, 4, 8, 12])

requests: Final = st.lists(
    st.tuples(_STEPS, _TIMES, st.none() | st.sampled_from(["u1", "u2", "u3", ""]), _KEYS, _FLAGS), max_size=30
).map(_requests_of)
"""Requests roughly in log order: some are repeated, some are out of order, some have no key."""
