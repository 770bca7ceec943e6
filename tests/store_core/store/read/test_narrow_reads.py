# SPDX-License-Identifier: Apache-2.0
"""A remote read that needs no bodies leaves them out where that pays, and has the rows of a scan, whatever is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest

from store_core import StoreError, read_messages
from store_core.errors import InvalidOptionError
from store_core.files.remote import narrow_bytes, record_lanes, remote_bytes
from tests.benchmarks.segments import make_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tests.golden_stores import UnpackedStore
    from tests.object_store import ObjectStore

MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
STORES = ("4.3.0/tx", "5.3.3/compressed", "5.3.3/v2topic", "5.5.0/bcq")
NARROW = ["topic", "store_size", "physical_offset", "queue_offset", "tags", "properties", "msg_id", "_corrupt_record"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take short lanes and small blocks, so that small stores have many, and what is read unloaded is zeros."""
    monkeypatch.setattr(record_lanes, "FIRST", 3)
    monkeypatch.setattr(record_lanes, "_LANE_RECORDS", 3)
    monkeypatch.setattr(record_lanes, "PROBE", 64)
    monkeypatch.setattr(narrow_bytes, "_STEP", 1 << 14)
    monkeypatch.setattr(narrow_bytes, "_PIECE", 1 << 13)
    monkeypatch.setattr(remote_bytes, "_BLOCK", 1 << 12)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 1 << 14)
    monkeypatch.setattr(remote_bytes, "_STEP", 1 << 13)


def in_memory(root: Path, name: str) -> str:
    """Copy a log into the memory of this process, as fsspec's file system of that name, and return its URL."""
    memory = fsspec.filesystem("memory")
    for path in (root / "commitlog").iterdir():
        memory.pipe(f"/narrow/{name}/commitlog/{path.name}", path.read_bytes())
    return f"memory://narrow/{name}"


def outcome(path: object, **options: Any) -> list[pa.RecordBatch | str]:  # noqa: ANN401 -- any option
    """Read all batches, and the text of the error after them."""
    found: list[pa.RecordBatch | str] = []
    try:
        for batch in read_messages(path, **options):  # type: ignore[arg-type]  # a path or a URL
            found.append(batch)  # noqa: PERF402 -- what precedes an error counts
    except StoreError as error:
        found.append(f"{type(error).__name__}: {str(error).replace(str(path), '')}")
    return found


def check_equal(root: Path, name: str, least: int, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that rows, batches and errors are those of the files on a disk."""
    url = in_memory(root, name)
    whole = {"columns": None, "verify_crc": True}  # only planning leaves bodies out then
    for more in (whole, {}, {"max_records_per_batch": 17}, {"topic": "TopicTest"}, {"max_partition_bytes": 50_000}):
        given = {"columns": NARROW, **options, **more}
        expected = outcome(root, **given)
        assert expected == outcome(url, skip_bodies=least, **given)


def damaged(root: Path, target: Path, seed: int) -> Path:
    """Copy a store's log as that of a closed store, with some bytes overwritten, many of them in heads."""
    random = np.random.default_rng(seed)
    (target / "commitlog").mkdir(parents=True)
    target.joinpath("lock").touch()
    offsets = read_messages(root, columns=["physical_offset"]).read_all().column(0).to_pylist()
    for path in sorted((root / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        first = int(path.name)
        mine = [offset - first for offset in offsets if first <= offset < first + len(data)]
        for at in random.choice(mine, min(len(mine), int(random.integers(0, 3)))).tolist():
            where = at + int(random.choice([0, 2, 4, 20, 28, 36, 84, 86, 88, 150]))
            data[where : where + 2] = random.bytes(2)
        (target / "commitlog" / path.name).write_bytes(data)
    return target


@pytest.mark.parametrize("least", [1, 100, 1 << 20])
@pytest.mark.parametrize("name", STORES)
def test_golden_store_has_the_rows_of_a_scan(name: str, least: int, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    check_equal(store.root, name, least, release=store.golden.release)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_store_has_the_rows_and_errors_of_a_scan(
    seed: int, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    root = damaged(golden("5.3.3/tx").root, tmp_path, seed)
    check_equal(root, f"damaged-{seed}", 1, mode=MODES[seed % 3])


def test_bodies_that_hold_records_lead_no_lane_astray(tmp_path: Path) -> None:
    """Each body is a log of its own whose records claim the offsets at which they lie."""
    root = make_log(tmp_path, 96 << 10, 96 << 10, 3000)
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    starts = read_messages(root, columns=["physical_offset"]).read_all().column(0).to_pylist()
    for start in starts[::2]:
        for at in range(start + 200, start + 2600, 400):
            data[at : at + 128] = data[start : start + 128]
            data[at : at + 4] = (400).to_bytes(4, "big")
            data[at + 28 : at + 36] = at.to_bytes(8, "big")
    path.write_bytes(data)
    check_equal(root, "nested", 1)


def test_narrow_columns_of_4_kib_bodies_move_a_quarter_of_the_bytes_at_most(
    tmp_path: Path, server: ObjectStore
) -> None:
    root = make_log(tmp_path, 1 << 20, 1 << 19, 4096)
    url = server.upload(root, "large-bodies")
    server.forget()
    columns = ["topic", "store_size"]
    found = read_messages(url, columns=columns, skip_bodies="4k", storage=server.settings).read_all()
    moved = server.faults.bytes_sent
    assert read_messages(root, columns=columns).read_all() == found
    assert 0.25 * (1 << 20) >= moved


class _Clock:
    """A clock by which a small request, the sample and a burst take given times; it is asked for no more."""

    def __init__(self, *times: float) -> None:
        self._times = iter(times)

    def monotonic(self) -> float:
        return next(self._times)


@pytest.mark.parametrize(
    ("times", "is_narrow"),
    [((0, 0.01, 1, 2, 3, 3.02), True), ((0, 0.01, 1, 2, 3, 13), False), ((0, 0.01, 1, 1.001), False)],
    ids=["slow", "slow to answer many", "fast"],
)
def test_what_was_measured_decides(
    times: tuple[float, ...], is_narrow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrow_bytes, "_LEAST_SAMPLE", 1 << 14)
    monkeypatch.setattr(narrow_bytes, "_LEAST_MEASURED", 0)
    monkeypatch.setattr(narrow_bytes, "_STEP", 1 << 20)
    monkeypatch.setattr(narrow_bytes, "SystemClock", lambda: _Clock(*times))
    root = make_log(tmp_path, 1 << 20, 1 << 20, 4096)
    url = in_memory(root, f"measured-{len(times)}-{is_narrow}")
    read: list[int] = []
    fetch = remote_bytes.RemoteBytes._fetch

    def counted(self: remote_bytes.RemoteBytes, begin: int, end: int) -> None:
        read.append(end - begin)
        fetch(self, begin, end)

    monkeypatch.setattr(remote_bytes.RemoteBytes, "_fetch", counted)
    columns = ["topic", "store_size"]
    assert read_messages(root, columns=columns).read_all() == read_messages(url, columns=columns).read_all()
    assert is_narrow == (sum(read) < 1 << 20)


def test_reads_of_bodies_download_all_and_check_them(tmp_path: Path) -> None:
    root = make_log(tmp_path, 1 << 18, 1 << 18, 4096)
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    url = in_memory(root, "crc")
    wrong = outcome(url, columns=["body"], skip_bodies=1)
    assert "CorruptRecordError" in str(wrong[-1])
    assert outcome(root, columns=["body"]) == wrong
    assert outcome(root, columns=["topic"]) == outcome(url, columns=["topic"], skip_bodies=1)


@pytest.mark.parametrize("value", ["sometimes", "0", "-1", 0])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidOptionError, match="option skipBodies"):
        read_messages("memory://narrow/none", skip_bodies=value)  # type: ignore[arg-type]  # what is tested
