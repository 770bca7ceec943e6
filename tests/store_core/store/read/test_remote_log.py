# SPDX-License-Identifier: Apache-2.0
"""A log in an object store or another file system is followed as on a local disk: it grows by segments."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from store_core import ReadOptions, read_messages, read_range
from store_core.errors import DataLossError, ExpiredSegmentsError, SegmentVanishedError
from store_core.files import remote_bytes
from store_core.store.read.follow.log_follower import NO_LIMITS, LogFollower, ReadLimits
from store_core.store.read.follow.log_segments import LogPosition
from tests.object_store import SECRET, ObjectStore
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.usefixtures("no_pauses")

LIMITS = (NO_LIMITS, ReadLimits(max_records=50), ReadLimits(max_bytes=40_000))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load a page at a time, so that what is read and not loaded is zeros."""
    monkeypatch.setattr(remote_bytes, "_BLOCK", 1 << 12)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 1 << 14)


def batches(paths: object, options: ReadOptions, limits: ReadLimits) -> list[tuple[object, pa.Table]]:
    """Follow a log to its end, by a new follower for each batch, as after a restart."""
    found: list[tuple[object, pa.Table]] = []
    position = LogFollower(paths, options).initial()  # type: ignore[arg-type]  # a path or a URL
    while True:
        follower = LogFollower(paths, options)  # type: ignore[arg-type]  # as above
        end = follower.advance(LogPosition.from_json(position.as_json()), limits)
        if end == position:
            return found
        rows = [batch for part in follower.ranges(position, end) for batch in read_range(part, options)]
        found.append((end.as_json(), pa.Table.from_batches(rows)))
        position = end


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", ["5.3.3/tx", "4.9.7/tx"])
def test_batches_are_those_of_a_local_log(
    name: str, limits: ReadLimits, golden: Callable[[str], UnpackedStore]
) -> None:
    root = golden(name).root
    options = ReadOptions.parse(columns=["physical_offset", "body"])
    assert batches(root, options, limits) == batches(in_memory(root, f"followed-{name}"), options, limits)


def test_positions_of_times_offsets_and_the_end_are_those_of_a_local_log(
    golden: Callable[[str], UnpackedStore],
) -> None:
    root = golden("5.3.3/tx").root
    url = in_memory(root, "positions")
    rows = read_messages(root, columns=["physical_offset", "store_timestamp"]).read_all()
    times = rows["store_timestamp"].cast("int64").to_pylist()
    offsets = rows["physical_offset"].to_pylist()
    for options in (
        ReadOptions.parse(),
        ReadOptions.parse(starting_timestamp=times[len(times) // 2] // 1000),
        ReadOptions.parse(starting_offsets=offsets[len(offsets) // 3] + 1),
    ):
        for at_end in (False, True):
            assert LogFollower(root, options).initial(at_end=at_end) == LogFollower(url, options).initial(at_end=at_end)


def test_new_segments_are_read_and_replaced_ones_are_named(
    server: ObjectStore, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    store = golden("5.3.3/tx")
    first, *others = store.segments
    begun = tmp_path / "begun"
    (begun / "commitlog").mkdir(parents=True)
    shutil.copy(first, begun / "commitlog" / first.name)
    url = server.upload(begun, "growing")
    options = ReadOptions.parse(columns=["physical_offset"], storage=server.settings)
    follower = LogFollower(url, options)
    begin = follower.initial()
    seen = follower.advance(begin, NO_LIMITS)
    assert seen == follower.advance(seen, NO_LIMITS)
    for segment in others:
        server.put(f"growing/commitlog/{segment.name}", segment.read_bytes())
    end = follower.advance(seen, NO_LIMITS)
    assert LogFollower(store.root, ReadOptions.parse()).latest() == end
    ranges = [*follower.ranges(begin, seen), *follower.ranges(seen, end)]
    found = [offset for part in ranges for batch in read_range(part, options) for offset in batch[0].to_pylist()]
    assert read_messages(store.root, columns=["physical_offset"]).read_all()[0].to_pylist() == found
    assert SECRET not in json.dumps(end.as_json())
    assert SECRET not in repr(ranges)

    changed = bytearray(others[-1].read_bytes())
    assert end.last_record is not None
    changed[end.last_record.physical_offset + 60 - int(others[-1].name)] ^= 1
    server.put(f"growing/commitlog/{others[-1].name}", bytes(changed) + b"longer")
    with pytest.raises(SegmentVanishedError, match="replaced"):
        list(read_range(ranges[-1], options))
    with pytest.raises(DataLossError, match="expected the record"):
        follower.advance(LogPosition.from_json(end.as_json()), NO_LIMITS)

    server.file_system.delete_file(f"{server.bucket}/growing/commitlog/{first.name}")
    with pytest.raises(ExpiredSegmentsError):
        LogFollower(url, options).advance(begin, NO_LIMITS)
