# SPDX-License-Identifier: Apache-2.0
"""A store in an object store or another file system is read as on a local disk, whatever the storage does."""

from __future__ import annotations

import logging
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from store_core import StoreError, explain, read_messages
from store_core.errors import InvalidOptionError, SegmentVanishedError, StoreAccessError, StoreNotFoundError
from store_core.files import remote_bytes, storage
from store_core.snapshot import log_end
from store_core.store.read.read_options import ReadOptions
from tests.object_store import BUCKET, SECRET, Faults, ObjectStore
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tests.golden_stores import UnpackedStore

MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
pytestmark = pytest.mark.usefixtures("no_pauses", "no_chance")

STORES = ("4.3.0/tx", "4.9.7/tx", "5.3.3/compressed", "5.3.3/propcrc", "5.3.3/v2topic", "5.5.0/bcq")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load a page at a time, so that small stores have many blocks, and what is read unloaded is zeros."""
    monkeypatch.setattr(remote_bytes, "_BLOCK", 1 << 12)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 1 << 14)
    monkeypatch.setattr(log_end, "_WINDOWS", (1 << 10, 1 << 13))
    monkeypatch.setattr(log_end, "_LEAST", 1 << 14)
    monkeypatch.setattr(log_end, "_PROBE", 1 << 8)


def rows(path: object, **options: Any) -> pa.Table | str:  # noqa: ANN401 -- any option
    """Read everything, or return the kind of error."""
    try:
        return read_messages(path, **options).read_all()  # type: ignore[arg-type]  # a path or a URL
    except StoreError as error:
        return type(error).__name__


def damaged(root: Path, target: Path, seed: int) -> Path:
    """Copy a store's log as that of a closed store, with a few bytes overwritten, or its last segment cut."""
    shutil.copytree(root / "commitlog", target / "commitlog")
    target.joinpath("lock").touch()
    random = np.random.default_rng(seed)
    for path in sorted((target / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        for at in random.integers(0, len(data), random.integers(0, 4)).tolist():
            data[at : at + 8] = random.bytes(8)[: len(data) - at]
        path.write_bytes(data)
    if seed % 3 == 0:
        with path.open("r+b") as last:
            last.truncate(path.stat().st_size // 2)
    return target


def check_equal(root: Path, url: str, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that both have the same rows, or fail with the same error."""
    for more in ({"max_records_per_batch": 100}, {"max_partition_bytes": 60_000, "max_records_per_batch": 37}):
        expected = rows(root, **options, **more)
        found = rows(url, **options, **more)
        assert expected == found


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", STORES)
def test_golden_store_reads_as_on_disk(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    url = in_memory(store.root, name)
    for mode in MODES:
        check_equal(store.root, url, mode=mode, release=store.golden.release)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(8))
def test_damaged_store_reads_as_on_disk(seed: int, golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    root = damaged(golden("5.3.3/tx").root, tmp_path, seed)
    url = in_memory(root, f"damaged-{seed}")
    for mode in MODES:
        check_equal(root, url, mode=mode)


@pytest.mark.usefixtures("small_blocks")
def test_faults_in_every_tenth_request_change_nothing(
    server: ObjectStore, golden: Callable[[str], UnpackedStore], caplog: pytest.LogCaptureFixture
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "faulty")
    expected = rows(root)
    server.faults = Faults(every=10)
    with caplog.at_level(logging.INFO):
        assert expected == rows(url, storage=server.settings)
    assert server.faults.failed >= 4
    assert SECRET not in caplog.text


def test_planning_asks_for_little(server: ObjectStore, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "planned")
    server.forget()
    plan = explain(url, storage=server.settings)
    assert plan.why == "no option names topics, queues or a position"
    last = store.segments[-1].stat().st_size
    assert server.faults.lists <= 3
    assert server.faults.gets <= 3
    assert server.faults.bytes_sent <= last + (64 << 10)


def test_segment_that_is_replaced_after_planning_is_an_error(
    server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "replaced")
    first = store.segments[0]
    reader = read_messages(url, storage=server.settings)
    changed = bytearray(first.read_bytes())
    changed[200] ^= 1
    server.put(f"replaced/commitlog/{first.name}", bytes(changed) + b"longer")
    with pytest.raises(SegmentVanishedError, match="was replaced since the read was planned"):
        reader.read_all()


def test_segment_that_is_replaced_while_it_is_read_is_an_error(
    server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "swapped")
    first = store.segments[0]
    changed = bytearray(first.read_bytes())
    changed[-1] ^= 1
    reader = read_messages(url, storage=server.settings, max_records_per_batch=10)
    reader.read_next_batch()
    server.put(f"swapped/commitlog/{first.name}", bytes(changed))
    with pytest.raises(SegmentVanishedError, match="replaced"):
        reader.read_all()


def test_what_is_not_a_segment_is_left_out(server: ObjectStore, golden: Callable[[str], UnpackedStore]) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root / "commitlog", "odd/commitlog").removesuffix("/commitlog")
    server.put("odd/commitlog/00000000000000000000.tmp", b"x")
    server.put("odd/commitlog/99999999999999999999999", b"x")
    server.file_system.create_dir(f"{BUCKET}/odd/commitlog/empty")
    assert rows(root) == rows(url, storage=server.settings)
    assert rows(root) == rows(f"{url}/commitlog", storage=server.settings)


def test_store_is_read_as_of_a_time(server: ObjectStore, golden: Callable[[str], UnpackedStore]) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root / "commitlog", "as-of/commitlog").removesuffix("/commitlog")
    times = read_messages(root, columns=["store_timestamp"]).read_all().column(0).cast("int64").to_pylist()
    middle = times[len(times) // 2]
    assert rows(root, as_of=middle) == rows(url, as_of=middle, storage=server.settings)


def test_one_segment_is_read_by_its_name(server: ObjectStore, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden("5.3.3/tx")
    server.upload(store.root / "commitlog", "single/commitlog")
    url = f"s3://{BUCKET}/single/commitlog/{store.segments[0].name}"
    assert rows(store.segments[0]) == rows(url, storage=server.settings)


def test_missing_store_is_named(server: ObjectStore) -> None:
    with pytest.raises(StoreNotFoundError, match=f"s3://{BUCKET}/nowhere"):
        read_messages(f"s3://{BUCKET}/nowhere", storage=server.settings)


def test_storage_that_does_not_answer_is_an_error_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MOST", 1)
    settings = {
        "endpoint_override": "127.0.0.1:9",
        "scheme": "http",
        "region": "x",
        "access_key": "k",
        "secret_key": SECRET,
    }
    with pytest.raises(StoreAccessError) as caught:
        read_messages("s3://bucket/store", storage=settings)
    assert SECRET not in str(caught.value)


def test_secrets_are_in_no_text_about_options() -> None:
    options = ReadOptions.parse(storage={"secret_key": SECRET, "region": "here"})
    assert SECRET not in repr(options)
    assert options == pickle.loads(pickle.dumps(options))  # noqa: S301 -- as tasks get them


@pytest.mark.parametrize("url", [f"s3://user:{SECRET}@bucket/store", f"s3://bucket/store?secret_key={SECRET}"])
def test_secret_in_url_is_rejected(url: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        read_messages(url)
    assert SECRET not in str(caught.value)


def test_unknown_setting_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(InvalidOptionError, match=r"storage\.regoin; did you mean 'region'"):
        read_messages("s3://bucket/store", storage={"regoin": "x"})


def test_unknown_scheme_says_what_to_install() -> None:
    with pytest.raises(StoreError, match="nosuch"):
        read_messages("nosuch://bucket/store")
