# SPDX-License-Identifier: Apache-2.0
"""Gets of damaged stores are those of four releases of RocketMQ, which take any bytes for the record of a unit.

We leave out what is no record; with RocketMQ's way of reading the log in its place, all answers are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from store_core import DefaultMessageStore
from store_core.store.get_message import LogLookup
from tests.golden_stores import read_conf
from tests.store_core.store.damaged_stores import (
    RELEASES,
    batch_topics_of,
    config_of,
    damaged_archives,
    expected_answers,
    unpack_damaged,
)

pytestmark = pytest.mark.golden

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "damage"
ARCHIVES: Final = damaged_archives()
FEW: Final = [archive for archive in ARCHIVES if (GOLDEN / archive.name).exists()]
_MOST: Final = 32
"""Messages that RocketMQ was asked for at a time."""


def any_bytes(self: LogLookup, physical_offset: int, size: int) -> memoryview | None:
    """Return what RocketMQ takes for a record (``CommitLog.getMessage``): of offset 0 the oldest file has it."""
    queue = self._queue
    file = queue.find_mapped_file_by_offset(physical_offset, return_first=not physical_offset)
    return None if file is None else file.select(physical_offset % queue.file_size, size)


def pulled(archive: Path, directory: Path, version: str) -> int:
    """Compare all gets of a store with those of a release; return how many there are."""
    path = unpack_damaged(archive, directory)
    expected = expected_answers(path).get(version, {})
    if expected.get("load") is not True:
        return 0
    conf, gets = read_conf(path / "store.conf"), expected.get("pull", [])
    topics = batch_topics_of(conf)
    opened = DefaultMessageStore.open(path / "store", config_of(conf, version), batch_topics=topics, read_only=True)
    with opened as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogLookup, "get_message", any_bytes)
        for topic, queue_id, offset, *answer in gets:
            found = store.get_message("group", topic, queue_id, offset, _MOST)
            assert found is not None
            assert answer == [found.status.name, found.next_begin_offset, found.message_count], (topic, offset)
    return len(gets)


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("archive", FEW, ids=lambda path: path.name.split(".")[0])
def test_gets_of_a_damaged_store_are_those_of_rocketmq(archive: Path, version: str, tmp_path: Path) -> None:
    pulled(archive, tmp_path, version)


@pytest.mark.soak
@pytest.mark.parametrize("version", RELEASES)
def test_all_gets_of_damaged_stores_are_those_of_rocketmq(version: str, tmp_path: Path) -> None:
    assert sum(pulled(archive, tmp_path, version) for archive in ARCHIVES)
