# SPDX-License-Identifier: Apache-2.0
"""Look-ups in stores that are elsewhere ask for little, and say how much."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import ReadOptions, StoreError, explain, plan_ranges, read_range, store_at
from store_core.files import remote_bytes
from store_core.store.read.lookup.explanation import LookUpCosts
from tests.builders import LogBuilder
from tests.object_store import Faults, ObjectStore
from tests.store_core.store.read.lookup_stores import (
    ALWAYS,
    questions_about,
    same_as_scan,
    small_store,
    write_index,
    write_queues,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.usefixtures("no_pauses", "no_chance")

_MIB: Final = 1 << 20


def test_faults_change_no_row(server: ObjectStore, golden: Callable[[str], UnpackedStore]) -> None:
    """Requests are cut off, throttled and refused while a store is looked up."""
    store = golden("5.3.3/tx")
    url = store_at(server.upload(store.root, "faulty-look-ups"), server.settings)
    drawn = random.Random(5)  # noqa: S311 -- reproducible
    server.faults = Faults(every=6)
    plans = {
        same_as_scan(store.root, url, release="5.3", **options).explanation.plan  # type: ignore[arg-type]  # a path
        for options in questions_about(store.root, drawn, 1)
    }
    assert {"queues", "index", "position"} <= plans
    assert server.faults.failed


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of a few kilobytes."""
    root = tmp_path_factory.mktemp("small") / "store"
    small_store(root)
    return root


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LogBuilder]:
    """Return a store of 16 MiB in segments of 2, with 40 records of a rare topic, and its log."""
    root = tmp_path_factory.mktemp("large") / "store"
    log = LogBuilder(2 * _MIB)
    for number in range(15 * _MIB // 4096):
        is_rare = number // 40 == 10
        name = {"topic": "rare" if is_rare else f"t{number % 4}", "queue_id": 0}
        log.append(b"x" * 3800, **name, properties={"UNIQ_KEY": f"U{number}", "KEYS": f"k{number}"})
    log.write(root)
    write_queues(root, log.records, units_per_file=2000)
    write_index(root, log.records, slots=1000, entries=10_000)
    return root, log


_LARGE: Final = LookUpCosts(least_log=0, per_request=16 << 10)
"""As if requests were cheap, so that 16 MiB are a large log."""


def _moved(server: ObjectStore, url: str, **options: Any) -> tuple[str, int, int, int]:  # noqa: ANN401 -- any option
    """Read by a look-up; return the plan, and how many rows, bytes and requests for bytes there were."""
    asked = ReadOptions.parse(storage=server.settings, **options)
    server.forget()
    plan = plan_ranges(url, asked, _LARGE)
    rows = sum(batch.num_rows for part in plan.ranges for batch in read_range(part, asked))
    return plan.explanation.plan, rows, server.faults.bytes_sent, server.faults.gets


def test_a_record_is_read_by_its_position(server: ObjectStore, large: tuple[Path, LogBuilder]) -> None:
    """Planning reads the record, its unit, and whether the last segment has records; a task reads the record again."""
    root, log = large
    record = log.records[900]
    url = server.upload(root, "by-position")
    plan, rows, size, gets = _moved(server, url, physical_offset=record.physical_offset)

    assert (plan, rows) == ("position", 1)
    assert gets <= 4
    assert size < 4 * record.size + (64 << 10)  # listings, and the file of units, which is read whole


def test_a_queue_is_read_by_its_units(server: ObjectStore, large: tuple[Path, LogBuilder]) -> None:
    root, _ = large
    url = server.upload(root, "by-queue")
    plan, rows, size, gets = _moved(server, url, topic="rare")

    assert (plan, rows) == ("queues", 40)
    assert gets < 30
    assert size < 16 * _MIB / 4


def test_a_message_is_read_by_its_key(
    server: ObjectStore, large: tuple[Path, LogBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requests are cheap: gaps are left out that are longer than four records, as in `_LARGE`.
    monkeypatch.setattr(remote_bytes, "NEAR", 16 << 10)
    root, _ = large
    url = server.upload(root, "by-key")
    plan, rows, size, gets = _moved(server, url, key="k1000")

    assert (plan, rows) == ("index", 1)
    assert gets < 150
    assert size < 16 * _MIB / 4


@pytest.mark.parametrize(("before", "gets"), [(b"\xa5", 3), (b"x", 5)])
def test_a_look_up_says_what_it_moves(
    server: ObjectStore,
    large: tuple[Path, LogBuilder],
    before: bytes,
    gets: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where ranges of the log end as their arrays did before, so that their ends are read again."""
    monkeypatch.setattr(remote_bytes, "token_bytes", lambda size: before * size)
    root, _ = large
    url = server.upload(root, "explained")
    server.forget()
    found = explain(url, storage=server.settings, physical_offset=0)
    counted = server.faults

    assert (found.plan, counted.gets) == ("position", gets)
    assert found.planned.requests == counted.gets + counted.lists + counted.heads
    assert found.planned.bytes <= counted.bytes_sent
    assert f"moves {found.planned} to plan, and about {found.reading} to read" in str(found)


def test_a_look_up_that_would_move_more_is_a_scan(server: ObjectStore, large: tuple[Path, LogBuilder]) -> None:
    """A request costs as much as 256 KiB, so that a log of 16 MiB is scanned."""
    root, _ = large
    url = server.upload(root, "dear")
    asked = ReadOptions.parse(storage=server.settings, topic="t1")
    plan = plan_ranges(url, asked, LookUpCosts(least_log=0)).explanation

    assert plan.plan == "scan"
    assert plan.why == "the answer is a large part of the log"


def test_a_segment_that_is_replaced_after_a_look_up_is_an_error(server: ObjectStore, small: Path) -> None:
    url = server.upload(small, "swapped-look-up")
    options = ReadOptions.parse(topic="t0", storage=server.settings)
    plan = plan_ranges(url, options, ALWAYS)
    first = min((small / "commitlog").iterdir())
    server.put(f"swapped-look-up/commitlog/{first.name}", first.read_bytes() + b"longer")

    with pytest.raises(StoreError, match="was replaced since the read was planned"):
        list(read_range(replace(plan.ranges[0]), options))


def test_archives_and_compressed_segments_name_why_they_are_scanned(small: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "store"), "tar", small)

    assert "in an archive" in same_as_scan(small, archive, topic="t0").explanation.why
