# SPDX-License-Identifier: Apache-2.0
"""A store that RocketMQ appends to while it is read: every read is a prefix of the final log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from tests.interop.puts import Put

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from tests.interop.judge import Judge

pytestmark = pytest.mark.interop


@dataclass(frozen=True)
class Rhythm:
    """How fast RocketMQ puts: with a pause after every burst."""

    segment_size: int
    count: int
    burst: int
    pause_ms: int


SLOW = Rhythm(segment_size=4096, count=1000, burst=3, pause_ms=3)
FAST = Rhythm(segment_size=65536, count=100_000, burst=1000, pause_ms=3)


def read(store: Path) -> pa.Table:
    return read_messages(
        store, columns=["physical_offset", "queue_offset", "store_timestamp", "topic", "body"]
    ).read_all()


@pytest.mark.parametrize("rhythm", [SLOW, FAST], ids=["slow", "fast"])
def test_reads_of_a_growing_store_are_prefixes_of_one_another(judge: Judge, tmp_path: Path, rhythm: Rhythm) -> None:
    store, put = tmp_path / "store", Put("grows", bytes(range(200)), 0, (("KEYS", "k"), ("TAGS", "t")))
    sizes = {"mappedFileSizeCommitLog": rhythm.segment_size}
    judge.put(store, [put], **sizes).result()
    growing = judge.live(store, put, count=rhythm.count, burst=rhythm.burst, pause_ms=rhythm.pause_ms, **sizes)

    sizes_seen, last = set[int](), read(store)
    while not growing.done():
        table = read(store)
        assert table.slice(0, last.num_rows) == last
        sizes_seen.add(table.num_rows)
        last = table
    whole = read(store)

    assert growing.exception() is None
    assert list(range(rhythm.count + 1)) == whole["queue_offset"].to_pylist()
    assert whole.slice(0, last.num_rows) == last
    assert len(sizes_seen) > 5
