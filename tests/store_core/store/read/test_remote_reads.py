# SPDX-License-Identifier: Apache-2.0
"""A remote read has the rows, batches and errors of the same files on a disk, whatever is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest

from store_core import StoreError, read_messages
from store_core.files import remote_bytes
from store_core.format.columnar import chain
from tests.benchmarks.segments import make_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tests.golden_stores import UnpackedStore

MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
STORES = ("4.3.0/tx", "5.3.3/compressed", "5.3.3/v2topic", "5.5.0/bcq")
NARROW = ["topic", "store_size", "physical_offset", "queue_offset", "tags", "properties", "msg_id", "_corrupt_record"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small blocks and windows, so that small stores have many, and what is read unloaded is zeros."""
    monkeypatch.setattr(remote_bytes, "_BLOCK", 1 << 12)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 1 << 14)
    monkeypatch.setattr(chain, "_LEAST", 1 << 13)
    monkeypatch.setattr(chain, "_LARGEST", 1 << 13)


def in_memory(root: Path, name: str) -> str:
    """Copy a log into the memory of this process, as fsspec's file system of that name, and return its URL."""
    memory = fsspec.filesystem("memory")
    for path in (root / "commitlog").iterdir():
        memory.pipe(f"/copied/{name}/commitlog/{path.name}", path.read_bytes())
    return f"memory://copied/{name}"


def outcome(path: object, **options: Any) -> list[pa.RecordBatch | str]:  # noqa: ANN401 -- any option
    """Read all batches, and the text of the error after them."""
    found: list[pa.RecordBatch | str] = []
    try:
        for batch in read_messages(path, **options):  # type: ignore[arg-type]  # a path or a URL
            found.append(batch)  # noqa: PERF402 -- what precedes an error counts
    except StoreError as error:
        found.append(f"{type(error).__name__}: {str(error).replace(str(path), '')}")
    return found


def check_equal(root: Path, name: str, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that rows, batches and errors are those of the files on a disk."""
    url = in_memory(root, name)
    whole = {"columns": None, "verify_crc": True}
    for more in (whole, {}, {"max_records_per_batch": 17}, {"topic": "TopicTest"}, {"max_partition_bytes": 50_000}):
        given = {"columns": NARROW, **options, **more}
        expected = outcome(root, **given)
        assert expected == outcome(url, **given)


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


@pytest.mark.parametrize("name", STORES)
def test_golden_store_has_the_rows_of_a_scan(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    check_equal(store.root, name, release=store.golden.release)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_store_has_the_rows_and_errors_of_a_scan(
    seed: int, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    root = damaged(golden("5.3.3/tx").root, tmp_path, seed)
    check_equal(root, f"damaged-{seed}", mode=MODES[seed % 3])


def test_bodies_that_hold_records_lead_nowhere(tmp_path: Path) -> None:
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
    check_equal(root, "nested")
