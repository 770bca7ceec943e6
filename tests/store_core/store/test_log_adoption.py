# SPDX-License-Identifier: Apache-2.0
"""An open store takes over records that another program wrote, in order, or leaves them to the next recovery."""

from __future__ import annotations

import errno
import logging
import re
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message
from store_core.errors import SegmentLayoutError
from store_core.format.columnar.encode_batch import complete_batch, encode_batch
from store_core.snapshot.config import REWOUND
from store_core.store.reput import ReputMessageService
from store_core.store.store_state import StoreCheckpoint
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.sink.staging import CONFIG, bodies_of, check_queues, make_store, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_core.store.store_life import LogAdoption

BEFORE = [b"old %d" % number for number in range(7)]
ADDED = [b"new %d" % number for number in range(5)]
LATER = 1_900_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", BEFORE)
    return tmp_path / "store"


@pytest.fixture
def store(root: Path, disk: FaultyFileSystem) -> Iterator[DefaultMessageStore]:
    with DefaultMessageStore.open(root, CONFIG, file_system=disk) as store:
        yield store


def write_behind(adoption: LogAdoption) -> tuple[int, int]:
    """Write records at the end of a log, as another process may; return where they begin and end."""
    batch, place = encode_batch(table(ADDED)), adoption.place
    indexes = batch.queue_offsets(adoption.offsets.next_offsets(batch.queues))
    records = complete_batch(batch, slice(0, len(batch)), place.end_offset, indexes, LATER)
    assert place.last_path is not None
    with place.last_path.open("r+b") as file:
        file.seek(place.position)
        file.write(records)
    adoption.offsets.advance_all(batch.queues, batch.queue_counts)
    return place.end_offset, place.end_offset + len(records)


def stored_times(root: Path) -> tuple[int, int]:
    """Read the times of the log and of the queues from the checkpoint on disk."""
    checkpoint = StoreCheckpoint(root, FaultyFileSystem()).load()
    return checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp


def test_adopted_records_are_found_like_those_that_were_put(store: DefaultMessageStore, root: Path) -> None:
    adoption = store.prepare_adoption()
    begin, end = write_behind(adoption)
    adoption.adopt(begin, end, LATER)
    put = store.put_message(Message("orders", b"put", queue_id=1, keys=["key"])).append_message_result
    store.close()

    assert (end, end) == (store.max_physical_offset - (put.wrote_bytes if put else 0), put.wrote_offset if put else 0)
    assert [*BEFORE, *ADDED, b"put"] == bodies_of(root)
    assert len(BEFORE) + len(ADDED) + 1 == check_queues(root)
    assert not (root / "abort").exists()


def test_a_store_that_prepares_hands_out_where_its_log_ends_and_copies_of_its_indexes(
    store: DefaultMessageStore,
) -> None:
    adoption = store.prepare_adoption()
    assert store.max_physical_offset == adoption.place.end_offset

    before = store.get_max_offset_in_queue("orders", 1, committed=False)
    adoption.offsets.advance("orders", 1, 5)
    assert before == store.get_max_offset_in_queue("orders", 1, committed=False)


def test_the_checkpoint_covers_adopted_records_only_when_queues_and_index_have_them(
    store: DefaultMessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, run_once = [], ReputMessageService.run_once

    def note(service: ReputMessageService, **options: object) -> None:
        if options:  # the service's own thread has none
            seen.append((store.max_physical_offset, store.checkpoint.physic_msg_timestamp, stored_times(root)))
        run_once(service, **options)  # type: ignore[arg-type]  # what it was called with

    adoption = store.prepare_adoption()
    begin, end = write_behind(adoption)
    adoption.rewind_checkpoint()
    monkeypatch.setattr(ReputMessageService, "run_once", note)
    adoption.adopt(begin, end, LATER)

    assert [(end, REWOUND, (REWOUND, REWOUND))] == seen
    assert LATER == store.checkpoint.physic_msg_timestamp
    store.close()
    assert LATER == stored_times(root)[0]


def test_a_checkpoint_that_is_rewound_is_so_on_disk_until_it_is_restored(
    store: DefaultMessageStore, root: Path
) -> None:
    before = store.checkpoint.physic_msg_timestamp, store.checkpoint.logics_msg_timestamp
    assert min(before) > 0
    adoption = store.prepare_adoption()
    adoption.rewind_checkpoint()
    assert (REWOUND, REWOUND) == stored_times(root)

    adoption.restore_checkpoint()
    store.close()
    assert before == stored_times(root)
    assert not (root / "abort").exists()


def test_records_left_to_recovery_come_to_the_queues_when_the_store_is_opened_next(
    store: DefaultMessageStore, root: Path
) -> None:
    adoption = store.prepare_adoption()
    write_behind(adoption)
    adoption.leave_to_recovery()
    assert not store.is_writeable
    store.close()

    assert (root / "abort").exists()
    assert len(BEFORE) + len(ADDED) == check_queues(root)
    assert [*BEFORE, *ADDED] == bodies_of(root)


def fail_to_dispatch(disk: FaultyFileSystem, _: DefaultMessageStore) -> None:
    disk.fail("write", errno.EIO, times=100)


def put_meanwhile(_: FaultyFileSystem, store: DefaultMessageStore) -> None:
    assert store.put_message(Message("orders", b"meanwhile")).is_ok


@pytest.mark.parametrize("accident", [fail_to_dispatch, put_meanwhile])
def test_what_can_not_be_adopted_is_logged_and_left_to_recovery_with_the_checkpoint_rewound(
    accident: Callable[[FaultyFileSystem, DefaultMessageStore], None],
    store: DefaultMessageStore,
    root: Path,
    disk: FaultyFileSystem,
    caplog: pytest.LogCaptureFixture,
) -> None:
    adoption = store.prepare_adoption()
    adoption.rewind_checkpoint()
    accident(disk, store)
    with caplog.at_level(logging.ERROR, "store_core"):
        adoption.adopt(*write_behind(adoption), LATER)
    disk.heal()

    assert not store.is_writeable
    assert store.checkpoint.physic_msg_timestamp == REWOUND
    assert any(re.search("are in the log, but not all are in queues|is not in it", text) for text in caplog.messages)
    store.close()
    assert (root / "abort").exists()


def test_a_log_that_was_put_into_is_not_extended_and_the_error_says_so(store: DefaultMessageStore) -> None:
    adoption = store.prepare_adoption()
    before = store.max_physical_offset
    put_meanwhile(FaultyFileSystem(), store)
    found = store.max_physical_offset
    with pytest.raises(
        SegmentLayoutError,
        match=rf"commitlog can't be extended to {found + 9}: expected its end at {before}, found {found}\.",
    ):
        store.commit_log.adopt(before, found + 9, LATER, adoption.offsets)

    assert found == store.max_physical_offset


def test_an_adoption_is_made_once(store: DefaultMessageStore, root: Path) -> None:
    adoption = store.prepare_adoption()
    begin, end = write_behind(adoption)
    adoption.adopt(begin, end, LATER)
    adoption.adopt(begin, end, LATER)
    store.close()

    assert not store.is_writeable
    assert len(BEFORE) + len(ADDED) == check_queues(root)
