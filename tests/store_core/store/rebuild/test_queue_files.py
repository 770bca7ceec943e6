# SPDX-License-Identifier: Apache-2.0
"""Queues that are kept in memory for a comparison are those that a release loads from the files."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.queue_path import QueueRules
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.queue_compare import StoredQueues
from store_core.store.rebuild.queue_files import QueuePlace, QueueWriters
from store_core.store.rebuild.segment_scan import SegmentUnits
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.queue.dispatch_logs import hostile_requests

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.queue.unit_rows import QueueUnits

RULES: Final = QueueRules(consume_queue_file_size=100, batch_consume_queue_file_size=138, ext_file_size=100)


def units_of(rules: RebuildRules, requests: list[DispatchRequest]) -> list[QueueUnits]:
    units = SegmentUnits(rules, 7)
    return [*units.add(RequestBatch(requests)), *units.rest()]


@pytest.mark.parametrize("release", ["4.3", "5.3"])
@given(data=st.data(), min_offset=st.sampled_from([0, 0, 1500, 2**40]))
def test_what_is_kept_in_memory_is_what_is_loaded_from_the_files(
    tmp_path_factory: pytest.TempPathFactory, release: Release, data: st.DataObject, min_offset: int
) -> None:
    root = tmp_path_factory.mktemp("q")
    rules = replace(
        RULES,
        release=release,
        batch_topics=frozenset({"B"}) if release == "5.3" else frozenset(),
        is_ext_enabled=data.draw(st.booleans()),
        is_multi_dispatch_enabled=data.draw(st.booleans()),
    )
    asked = RebuildRules(rules)
    pieces = units_of(asked, data.draw(hostile_requests()))
    kept = QueueWriters(asked, QueuePlace(root, None, FaultyFileSystem()))
    written = QueueWriters(asked, QueuePlace(root, root, FaultyFileSystem()))
    for piece in pieces:
        kept.put(piece)
        written.put(piece)

    assert kept.finish() == written.finish()
    with StoredQueues(root, rules) as stored:
        for name, writer in kept.writers.items():
            expected, found = stored.side(name, min_offset), writer.side(min_offset)
            assert expected.indexes.tolist() == found.indexes.tolist()
            assert expected.units.tolist() == found.units.tolist()


def test_a_queue_on_a_failing_disk_is_given_up_at_once(tmp_path: Path) -> None:
    """A broker tries for half a minute; a job would wait as long for each of its queues."""
    disk, asked = FaultyFileSystem(), RebuildRules(RULES)
    (piece,) = units_of(asked, [DispatchRequest("T", 0, 1000, 100, 0, 1, 0)])
    disk.fail("open", errno.EIO, times=1)
    writers = QueueWriters(asked, QueuePlace(tmp_path, tmp_path, disk))

    with pytest.raises(OSError, match="Input/output error"):
        writers.put(piece)
