# SPDX-License-Identifier: Apache-2.0
"""Deletion in stores that RocketMQ wrote leaves what RocketMQ left; see tests/golden/README.md for ``cleaned.json``."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from tests.golden_stores import Golden, UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.damaged_stores import batch_topics_of, config_of
from tests.store_core.store.store_machine import UnattendedStore

pytestmark = pytest.mark.golden

CLEANED: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).parents[2].joinpath("golden", "cleaned.json").read_text()
)
THERE: Final = {store.name for store in golden_stores()}
FAMILIES: Final = ("commitlog", "consumequeue", "batchconsumequeue", "index")
HOUR_NS: Final = 3_600_000_000_000


class Store:
    """A copy of a golden store, without threads, that deletes at any hour."""

    def __init__(self, root: Path, golden: UnpackedStore) -> None:
        self.root = shutil.copytree(golden.root, root)
        self.clock = FakeClock()
        config = replace(config_of(golden.conf, golden.golden.version), delete_when=";".join(map(str, range(24))))
        root.joinpath("abort").unlink(missing_ok=True)  # else newer index files would go
        self.store = UnattendedStore.open(
            root, config, batch_topics=batch_topics_of(golden.conf), clock=self.clock, file_system=FaultyFileSystem()
        )
        self.services = self.store.clean_services

    def age(self, count: int) -> None:
        """Let the first segments have changed 100 hours ago, the others one hour ago."""
        for place, path in enumerate(sorted(self.root.joinpath("commitlog").iterdir())):
            changed = self.clock.now_ms() * 1_000_000 - (100 if place < count else 1) * HOUR_NS
            os.utime(path, ns=(changed, changed))

    def clean(self) -> Counter[str]:
        """Run both services once, and count the files that are gone by directory."""
        before = self._files()
        self.services.run_once()
        gone = before - self._files()
        return Counter(path.parent.as_posix() for path in gone)

    def _files(self) -> set[Path]:
        found = (path for name in FAMILIES for path in (self.root / name).rglob("*") if path.is_file())
        return {path.relative_to(self.root) for path in found}

    def bounds(self) -> dict[str, list[int]]:
        """Return where queues begin and end, without those of delay levels that 4.9 makes when it is opened."""
        return {
            f"{queue.topic} {queue.queue_id}": [queue.min_offset_in_queue, queue.max_offset_in_queue]
            for queue in self.store.consume_queue_store.queues()
            if queue.topic != SCHEDULE_TOPIC or queue.max_offset_in_queue
        }


@pytest.fixture
def batched(golden: Golden, tmp_path: Path) -> tuple[Store, BatchConsumeQueue]:
    """Provide a store with a batch queue, and the queue."""
    store = Store(tmp_path / "store", golden("5.3.3/bcq"))
    queue = store.store.consume_queue_store.get("bcq_topic", 0)
    assert isinstance(queue, BatchConsumeQueue)
    return store, queue


@pytest.mark.parametrize("case", [case for case in CLEANED if case.split()[0] in THERE])
def test_deletion_leaves_what_rocketmq_left(case: str, golden: Golden, tmp_path: Path) -> None:
    name, old_segments = case.split()
    expected = CLEANED[case]
    store = Store(tmp_path / "store", golden(name))
    store.age(int(old_segments))

    assert expected["deleted"] == store.clean()
    assert expected["log"] == [store.store.min_physical_offset, store.store.max_physical_offset]
    assert expected["queues"] == store.bounds()
    assert not store.clean()


def test_a_batch_queue_that_begins_before_the_log_is_put_right(batched: tuple[Store, BatchConsumeQueue]) -> None:
    store, _ = batched
    right = store.bounds()
    service = store.services.queue_service
    sound = service.correct_batch_queues()
    store.age(3)
    store.services.commit_log_service.run_once()
    soon = service.correct_batch_queues()
    store.clock.advance(301)
    late = service.correct_batch_queues()

    assert (0, 0, 3) == (sound, soon, late)
    assert right != store.bounds()
    assert CLEANED["5.3.3/bcq 3"]["queues"]["bcq_topic 0"] == store.bounds()["bcq_topic 0"]


def test_a_batch_queue_whose_first_file_could_not_be_deleted_is_put_right_at_once(
    batched: tuple[Store, BatchConsumeQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queue = batched
    first = queue.mapped_file_queue.mapped_files[0]

    def refused() -> None:
        first.is_available = False
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(first, "destroy", refused)
        store.age(3)
        with pytest.raises(OSError, match="Input/output error"):
            store.clean()
    bounds_before = store.bounds()["bcq_topic 0"]
    corrected = store.services.queue_service.correct_batch_queues()

    assert 1 == corrected
    assert CLEANED["5.3.3/bcq 3"]["queues"]["bcq_topic 0"] == store.bounds()["bcq_topic 0"] != bounds_before
    assert not first.path.exists()
