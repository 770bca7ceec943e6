# SPDX-License-Identifier: Apache-2.0
"""Deletion in stores that RocketMQ wrote leaves what RocketMQ left; see tests/golden/README.md for ``cleaned.json``."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import QueueServices
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.index_service import IndexService
from store_core.store.clean import CleanServices
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import CommitLog
from store_core.store.store_layout import log_paths
from store_core.store.store_life import disk_space
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.format.release import Release

pytestmark = pytest.mark.golden

CLEANED: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).parents[2].joinpath("golden", "cleaned.json").read_text()
)
THERE: Final = {store.name for store in golden_stores()}
FAMILIES: Final = ("commitlog", "consumequeue", "batchconsumequeue", "index")
HOUR_NS: Final = 3_600_000_000_000


class Disk(FaultyFileSystem):
    """A disk that is nearly empty."""

    def used_percent(self, path: Path) -> int:
        return 10 if path.exists() else -1


class Store:
    """Log, queues and index of a copy of a golden store, without threads."""

    def __init__(self, root: Path, golden: UnpackedStore, end_offset: int) -> None:
        self.root = root
        clock, disk = FakeClock(), Disk()
        release = cast("Release", golden.golden.release)
        config = MessageStoreConfig(
            release=release,
            mapped_file_size_commit_log=131072,
            mapped_file_size_consume_queue=800,
            mapper_file_size_batch_consume_queue=460,
            max_hash_slot_num=100,
            max_index_num=400,
            delete_when=";".join(map(str, range(24))),
        )
        space = disk_space(root, config, disk)
        paths = replace(log_paths(root, config, disk), full_paths=space.full_paths)
        self.log = CommitLog(paths, config, disk, clock)
        self.log.load()
        queue = self.log.mapped_file_queue
        queue.truncate_dirty_files(end_offset)
        rules = config.queue_rules(["bcq_topic"])
        self.queues = ConsumeQueueStore(root, QueueServices(rules, disk, clock), lambda *_: None)
        self.queues.load()
        self.queues.recover()
        self.queues.correct_min_offset(self.log.min_offset)
        self.index = IndexService(root / "index", rules, disk, clock)
        self.index.load(last_exit_ok=True, index_msg_timestamp=0)
        self.services = CleanServices(config, self.log, space, self.queues, self.index, clock, time_zone=UTC)
        self.clock = clock

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
        return {
            f"{queue.topic} {queue.queue_id}": [queue.min_offset_in_queue, queue.max_offset_in_queue]
            for queue in self.queues.queues()
        }


@pytest.mark.parametrize("case", [case for case in CLEANED if case.split()[0] in THERE])
def test_deletion_leaves_what_rocketmq_left(case: str, golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    name, old_segments = case.split()
    root = tmp_path / "store"
    shutil.copytree(golden(name).root, root)
    expected = CLEANED[case]
    store = Store(root, golden(name), expected["log"][1])
    store.age(int(old_segments))

    assert expected["deleted"] == store.clean()
    assert expected["log"] == [store.log.min_offset, store.log.max_offset]
    assert expected["queues"] == store.bounds()
    assert not store.clean()


def test_a_batch_queue_that_begins_before_the_log_is_put_right(
    golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("5.3.3/bcq").root, root)
    store = Store(root, golden("5.3.3/bcq"), CLEANED["5.3.3/bcq 1"]["log"][1])
    right = store.bounds()
    service = store.services.queue_service
    sound = service.correct_batch_queues()
    queue = store.queues.get("bcq_topic", 0)
    assert isinstance(queue, BatchConsumeQueue)
    store.age(3)
    store.services.commit_log_service.run_once()
    soon = service.correct_batch_queues()
    store.clock.advance(301)
    late = service.correct_batch_queues()

    assert (0, 0, 3) == (sound, soon, late)
    assert right != store.bounds()
    assert CLEANED["5.3.3/bcq 3"]["queues"]["bcq_topic 0"] == store.bounds()["bcq_topic 0"]


def test_a_batch_queue_whose_first_file_could_not_be_deleted_is_put_right_at_once(
    golden: Callable[[str], UnpackedStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("5.3.3/bcq").root, root)
    store = Store(root, golden("5.3.3/bcq"), CLEANED["5.3.3/bcq 1"]["log"][1])
    queue = store.queues.get("bcq_topic", 0)
    assert isinstance(queue, BatchConsumeQueue)
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
