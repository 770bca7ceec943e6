# SPDX-License-Identifier: Apache-2.0
"""A file of a store that is no segment is refused by what it is, wherever it lies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import SegmentLayoutError, StoreError, UnsupportedStoreError, read_messages
from store_core.files.segment_listing import refuse_other_file
from store_core.format.layout import CONSUME_QUEUE_UNIT, unit_dtype
from store_core.snapshot.log import Log
from tests.builders import Timer, write_timers
from tests.golden_stores import UnpackedStore
from tests.stores_in_memory import in_memory

Golden = Callable[[str], UnpackedStore]
REFUSED = (SegmentLayoutError, UnsupportedStoreError)

KINDS = {
    "consumequeue": "is a consume queue of topic ",
    "batchconsumequeue": "is a batch consume queue of topic ",
    "consumequeue_ext": "is the extension of the consume queue of topic ",
    "index": "is a file of the key index",
    "timerlog": "is a file of the log of timers",
    "config": "is a file of the broker's configuration",
    "checkpoint": "is the checkpoint of a store",
    "timerwheel": "is the wheel of the timers",
    "lock": "is the lock of a store",
}


def others(root: Path) -> list[Path]:
    """Return the files of a store that are no segments, one of each directory."""
    found = {path.parent if path.parent != root else path: path for path in sorted(root.rglob("*")) if path.is_file()}
    return [path for path in found.values() if path.relative_to(root).parts[0] in KINDS]


@pytest.fixture
def timers(tmp_path: Path) -> Path:
    """Make a store's files of timers."""
    root = tmp_path / "timers"
    write_timers(root, [Timer(due=1_700_000_100 + at, write=1_700_000_000) for at in range(5)], 1_700_000_000)
    return root


def refusal_of(path: object) -> str:
    with pytest.raises(UnsupportedStoreError) as raised:
        Log.of(str(path))
    return str(raised.value)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "5.3.3/bcq", "4.9.7/lmq", "4.3.0/tx"])
def test_every_file_beside_the_log_is_named_by_what_it_is(name: str, golden: Golden) -> None:
    root = golden(name).root
    for path in others(root):
        (kind, *_) = path.relative_to(root).parts

        assert KINDS[kind] in refusal_of(path)


def test_files_of_timers_are_named(timers: Path, tmp_path: Path) -> None:
    log = next((timers / "timerlog").iterdir())

    assert KINDS["timerlog"] in refusal_of(log)
    assert KINDS["timerwheel"] in refusal_of(timers / "timerwheel")
    assert "is the checkpoint of the timers" in refusal_of(timers / "config" / "timercheck")
    assert "is a file of the log of timers, by the units" in refusal_of(shutil.copy(log, tmp_path / log.name))


@pytest.mark.golden
def test_a_queue_is_named_by_url_too(golden: Golden) -> None:
    root = golden("5.3.3/propcrc").root
    queue = next(path for path in others(root) if "consumequeue" in path.parts)
    url = in_memory(root, "propcrc")

    topic = queue.parent.parent.name
    for place in (queue.parent, queue):
        with pytest.raises(UnsupportedStoreError, match=f"it is a consume queue of topic '{topic}', queue"):
            Log.of(f"{url}/{place.relative_to(root)}")
    with pytest.raises(UnsupportedStoreError, match="is a file of the key index"):
        read_messages(f"{url}/{next((root / 'index').iterdir()).relative_to(root)}").read_all()


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "5.3.3/bcq"])
def test_a_file_that_was_moved_is_told_by_its_content(name: str, golden: Golden, tmp_path: Path) -> None:
    told = {
        "consumequeue": "is a consume queue, by",
        "batchconsumequeue": "is a batch consume queue, by",
        "index": KINDS["index"],
    }
    root = golden(name).root
    for path in others(root):
        (kind, *_) = path.relative_to(root).parts
        if kind in told and any(path.read_bytes()):
            place = Path(shutil.copy(path, tmp_path / path.name))

            assert told[kind] in refusal_of(place)


@pytest.mark.golden
def test_a_directory_of_a_queue_is_no_log(golden: Golden) -> None:
    queue = next(path for path in others(golden("5.3.3/propcrc").root) if "consumequeue" in path.parts)

    assert f"queue {queue.parent.name} (" in refusal_of(queue.parent)


@pytest.mark.golden
@pytest.mark.parametrize("kind", ["5.3.3/propcrc", "4.3.0/tx", "5.3.3/v2topic"])
@pytest.mark.parametrize("place", ["consumequeue/orders/0", "index", "elsewhere"])
def test_a_segment_is_one_wherever_it_lies(kind: str, place: str, golden: Golden, tmp_path: Path) -> None:
    directory = tmp_path / place
    directory.mkdir(parents=True)
    for segment in (golden(kind).root / "commitlog").iterdir():
        shutil.copy(segment, directory)

    assert len(list((golden(kind).root / "commitlog").iterdir())) == len(Log.of(directory).segments)


@given(
    data=st.binary(max_size=300), name=st.sampled_from(["0" * 20, "20261121093228184", "lock", "x", "1" * 20 + ".gz"])
)
def test_any_bytes_are_taken_or_refused(data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(data)
    try:
        refuse_other_file(path)
    except StoreError as error:
        assert isinstance(error, UnsupportedStoreError)  # noqa: PT017 -- most bytes are taken


def test_zeros_are_an_empty_log_unless_they_lie_among_queues(tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "orders" / "3"
    queue.mkdir(parents=True)
    for place in (tmp_path, queue):
        (place / f"{0:020}").write_bytes(bytes(4000))

    assert 1 == len(Log.of(tmp_path / f"{0:020}").segments)
    assert "consume queue of topic 'orders', queue 3" in refusal_of(queue / f"{0:020}")


def test_units_that_do_not_follow_each_other_are_no_queue(tmp_path: Path) -> None:
    units = np.zeros(200, unit_dtype(CONSUME_QUEUE_UNIT))
    units["physical_offset"][:3], units["store_size"][:3] = (900, 100, 500), 100
    path = tmp_path / f"{0:020}"
    path.write_bytes(units.tobytes())

    assert 1 == len(Log.of(path).segments)
