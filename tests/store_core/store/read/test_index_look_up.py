# SPDX-License-Identifier: Apache-2.0
"""Look-ups of keys return the rows of a scan, or `check` has a finding, wherever the store is."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import explain, read_messages
from tests.budgets import budget
from tests.builders import LogBuilder
from tests.store_core.store.read.lookup_stores import (
    ENTRY,
    FIRST,
    index_files,
    keeps_the_promise,
    keyed_store,
    lie_in_index,
    lying_copy,
    questions,
    same_as_scan,
    swap_links,
    write_index,
    write_queues,
)
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("no_pauses", "few_bytes")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LogBuilder, Path]:
    """Return a store, its log, and a store with records in the same places that have other keys."""
    root = tmp_path_factory.mktemp("keys")
    keyed_store(root / "other", version=1)
    return root / "store", keyed_store(root / "store"), root / "other"


def test_keys_of_a_sound_store_are_looked_up(stores: tuple[Path, LogBuilder, Path]) -> None:
    root, log, _ = stores
    url = in_memory(root, "keys")

    for options in questions(log):
        for at in (root, url):
            explained = same_as_scan(root, at, **options).explanation
            assert explained.plan == "index", explained


def test_a_message_of_a_batch_is_found_by_either_unique_key(tmp_path: Path) -> None:
    """The index has the batch's, which RocketMQ reads as the last one; for the producer's a scan is needed."""
    log, ids = LogBuilder(2048), [f"{number:032X}" for number in range(40)]
    for number, own in enumerate(ids):
        batch = f"{number // 4:056X}"
        packed = f"UNIQ_KEY\x01{own}\x02KEYS\x01k{number}\x02WAIT\x01true\x02UNIQ_KEY\x01{batch}\x02".encode()
        log.append(b"x", topic="orders", properties=packed)
    log.write(tmp_path)
    write_queues(tmp_path, log.records)
    write_index(tmp_path, log.records)

    for name in ("key", "unique_key"):
        for asked, rows, plan in ((ids[7], 1, "scan"), (f"{3:056X}", 4, "index")):
            options: dict[str, Any] = {name: asked}
            assert same_as_scan(tmp_path, **options).explanation.plan == plan
            assert read_messages(tmp_path, **options).read_all().num_rows == rows
    assert same_as_scan(tmp_path, key="absent").explanation.plan == "index"
    assert read_messages(tmp_path, unique_key="k7").read_all().num_rows == 0


def test_a_look_up_reads_only_records_that_may_have_the_key(stores: tuple[Path, LogBuilder, Path]) -> None:
    root, log, _ = stores
    named = [record for record in log.records if b"U21" in record.encode()]

    plan = same_as_scan(root, unique_key="U21")

    assert len(named) == 1
    assert plan.explanation.bytes < explain(root, use_index_files="never").bytes / 3
    assert plan.explanation.entries == 1
    assert plan.explanation.records <= 1 + 2 * len(index_files(root))  # the first and the last of each file, too


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "k11", "use_index_files": "never"}, "option use_index_files is never"),
        ({"key": "k11", "mode": "PERMISSIVE"}, "mode PERMISSIVE looks for damage everywhere"),
        ({"key": "k\ufffd"}, "releases read such a key or topic in different ways"),
        ({"tag": "Tag1"}, "no option names topics, queues or a position"),
    ],
)
def test_a_read_that_has_no_use_for_the_index_scans(
    stores: tuple[Path, LogBuilder, Path], options: dict[str, Any], why: str
) -> None:
    assert same_as_scan(stores[0], **options).explanation.why == why


def test_a_small_log_is_scanned(stores: tuple[Path, LogBuilder, Path]) -> None:
    assert explain(stores[0], key="k11").why == "a scan reads less than 64 MiB"


def test_without_an_index_a_key_is_searched_in_the_log(tmp_path: Path) -> None:
    keyed_store(tmp_path)
    shutil.rmtree(tmp_path / "index")

    assert same_as_scan(tmp_path, key="k11").explanation.why == "there is no index beside the log"


def test_without_queues_the_index_is_used_for_a_topic(tmp_path: Path) -> None:
    """Entries are of a key of a topic, and only queues name all topics."""
    keyed_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "t1")
    assert same_as_scan(tmp_path, key="shared1", topic="t1").explanation.plan == "index"
    shutil.rmtree(tmp_path / "consumequeue")

    assert same_as_scan(tmp_path, key="k11", topic="t1").explanation.plan == "index"
    assert same_as_scan(tmp_path, key="k11").explanation.why.startswith("no topic is named")


def test_records_that_no_entry_names_are_read(tmp_path: Path) -> None:
    """A message is stored and in its queue, but not in the index, as messages of the last moments are."""
    log = keyed_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    log.append(b"new", topic="t0", queue_id=1, properties={"KEYS": "newest"})
    log.write(tmp_path)
    write_queues(tmp_path, log.records)

    assert same_as_scan(tmp_path, key="newest").explanation.plan == "index"
    assert read_messages(tmp_path, key="newest").read_all().num_rows == 1


def test_what_no_index_file_covers_is_scanned(tmp_path: Path) -> None:
    """The oldest files are gone, as after their retention, and one in the middle was lost."""
    log = keyed_store(tmp_path, segments=6)
    files = index_files(tmp_path)
    for path in (*files[:2], files[4]):
        path.unlink()

    unnamed = {"unique_key": "U11"}  # of a client's batch, for all that the index says
    assert same_as_scan(tmp_path, **unnamed).explanation.plan == "scan"
    for options in questions(log):
        if options == unnamed:
            continue
        plan = same_as_scan(tmp_path, **options)
        assert plan.explanation.plan == "index"
        scanned = [part for part in plan.ranges if part.picks is None]
        assert sum(part.end - part.begin for part in scanned) < log.end / 2


def test_an_entry_that_names_another_place_hides_no_row_without_a_finding(tmp_path: Path) -> None:
    """Two records after one another have the same key, and the entry of the first names the second."""
    log = LogBuilder(2048)
    for number in range(8):
        log.append(b"", topic="t0", properties={"UNIQ_KEY": f"U{number}", "KEYS": "same"})
    log.write(tmp_path)
    write_queues(tmp_path, log.records)
    write_index(tmp_path, log.records)
    data = bytearray(index_files(tmp_path)[0].read_bytes())
    at = FIRST + 3 * ENTRY.size
    key_hash, _, seconds, previous = ENTRY.unpack_from(data, at)
    ENTRY.pack_into(data, at, key_hash, log.records[2].physical_offset, seconds, previous)
    index_files(tmp_path)[0].write_bytes(data)

    keeps_the_promise(tmp_path, key="same")


@budget(0.3)
@given(seed=st.integers(0, 2**32), lies=st.integers(1, 4))
def test_lying_index_files_give_sound_rows_and_lack_none_without_a_finding(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, LogBuilder, Path], seed: int, lies: int
) -> None:
    sound, log, other = stores
    root = tmp_path_factory.getbasetemp() / "lying-index"
    drawn = lying_copy(sound, root, seed, lies, lambda copy, drawn: lie_in_index(copy, other, drawn))

    asked = drawn.sample(questions(log), 3)
    for options in asked:
        keeps_the_promise(root, **options)
    keeps_the_promise(root, in_memory(root, "lying-index"), **asked[0])


@pytest.mark.parametrize("seed", range(4))
def test_links_in_a_circle_hide_no_row(tmp_path: Path, stores: tuple[Path, LogBuilder, Path], seed: int) -> None:
    sound, log, _ = stores
    root = shutil.copytree(sound, tmp_path / "store")
    path = index_files(root)[0]
    data = bytearray(path.read_bytes())
    while data == path.read_bytes():
        swap_links(data, 25, random.Random(seed))  # noqa: S311 -- reproducible
        seed += 4
    path.write_bytes(data)

    for options in questions(log):
        keeps_the_promise(root, **options)
