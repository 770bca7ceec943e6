# SPDX-License-Identifier: Apache-2.0
"""A store that is elsewhere is read as on a local disk, listed by few requests, and no failure goes unsaid."""

from __future__ import annotations

import logging
import os
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from store_core import StoreError, read_messages
from store_core.errors import InvalidOptionError, SegmentVanishedError, StoreAccessError, StoreNotFoundError
from store_core.files import remote_bytes, storage
from store_core.files.store_path import path_of
from store_core.format.columnar import chain
from store_core.snapshot import log_end
from store_core.snapshot.queues import Queues
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from tests.benchmarks.segments import make_log
from tests.golden_stores import GoldenStore, find_golden_store, golden_stores, stores_of_kind, unpack
from tests.object_store import BUCKET, SECRET, Faults, ObjectStore
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.usefixtures("no_pauses", "no_chance")

MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")

STORES = ("4.3.0/tx", "4.9.7/tx", "5.3.3/compressed", "5.3.3/propcrc", "5.3.3/v2topic", "5.5.0/bcq")
NARROW = ["topic", "store_size", "physical_offset", "queue_offset", "tags", "properties", "msg_id", "_corrupt_record"]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load a page at a time, so that small stores have many blocks, and what is read unloaded is zeros."""
    monkeypatch.setattr(remote_bytes, "_BLOCK", 1 << 12)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 1 << 14)
    monkeypatch.setattr(chain, "_LEAST", 1 << 13)
    monkeypatch.setattr(chain, "_LARGEST", 1 << 13)
    monkeypatch.setattr(log_end, "_WINDOWS", (1 << 10, 1 << 13))
    monkeypatch.setattr(log_end, "_LEAST", 1 << 14)
    monkeypatch.setattr(log_end, "_PROBE", 1 << 8)


def rows(path: object, **options: Any) -> pa.Table | str:  # noqa: ANN401 -- any option
    """Read all rows, or return the error without the store's place."""
    try:
        return read_messages(path, **options).read_all()  # type: ignore[arg-type]  # a path or a URL
    except StoreError as error:
        return f"{type(error).__name__}: {str(error).replace(str(path), 'STORE')}"


def outcome(path: object, **options: Any) -> list[pa.RecordBatch | str]:  # noqa: ANN401 -- any option
    """Read all batches, and the text of the error after them."""
    found: list[pa.RecordBatch | str] = []
    try:
        for batch in read_messages(path, **options):  # type: ignore[arg-type]  # a path or a URL
            found.append(batch)  # noqa: PERF402 -- what precedes an error counts
    except StoreError as error:
        found.append(f"{type(error).__name__}: {str(error).replace(str(path), '')}")
    return found


def damaged(root: Path, target: Path, seed: int) -> Path:
    """Copy a store's log as that of a closed store: bytes are overwritten, most in heads, or its end is cut off."""
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
        for at in random.integers(0, len(data), random.integers(0, 2)).tolist():
            data[at : at + 8] = random.bytes(8)[: len(data) - at]
        (target / "commitlog" / path.name).write_bytes(data)
    if seed % 4 == 0:
        last = max((target / "commitlog").iterdir())
        os.truncate(last, last.stat().st_size // 2)
    return target


def check_equal(root: Path, url: str, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that both have the same rows in the same batches, and fail with the same error."""
    whole = {"columns": None, "verify_crc": True}
    for more in (whole, {}, {"max_records_per_batch": 17}, {"topic": "TopicTest"}, {"max_partition_bytes": 50_000}):
        given = {"columns": NARROW, **options, **more}
        assert outcome(root, **given) == outcome(url, **given)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", STORES)
def test_golden_store_reads_as_on_disk(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    store = golden(name)
    url = in_memory(store.root, name)
    for mode in MODES:
        check_equal(store.root, url, mode=mode, release=store.golden.release)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(12))
def test_damaged_store_reads_as_on_disk(seed: int, golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    root = damaged(golden("5.3.3/tx").root, tmp_path, seed)
    url = in_memory(root, f"damaged-{seed}")
    for mode in MODES:
        check_equal(root, url, mode=mode)


@pytest.mark.usefixtures("small_blocks")
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
    check_equal(root, in_memory(root, "nested"))


@pytest.mark.parametrize(
    ("is_begun", "more", "says"),
    [(False, b"longer", "was replaced since the read was planned"), (True, b"", "replaced")],
)
def test_segment_that_is_replaced_after_planning_or_while_it_is_read_is_an_error(
    is_begun: bool, more: bytes, says: str, server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, f"replaced-{is_begun}")
    first = store.segments[0]
    changed = bytearray(first.read_bytes())
    changed[-1] ^= 1
    reader = read_messages(url, storage=server.settings, max_records_per_batch=10)
    if is_begun:
        reader.read_next_batch()
    server.put(f"replaced-{is_begun}/commitlog/{first.name}", bytes(changed) + more)
    with pytest.raises(SegmentVanishedError, match=says):
        reader.read_all()


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


def test_a_file_in_the_place_of_queues_is_named_by_its_url(server: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "consumequeue").write_text("not a directory")
    root = path_of(server.upload(tmp_path, "blocked"), ReadOptions.parse(storage=server.settings).storage)
    says = f"^s3://{BUCKET}/blocked/consumequeue: expected a directory, found a file. Move what is there elsewhere"
    with Queues(root) as queues, pytest.raises(StoreAccessError, match=says):
        queues.topics()


@pytest.mark.parametrize("name", ["nowhere", "void"])
def test_missing_store_and_an_empty_directory_are_named(name: str, server: ObjectStore) -> None:
    server.place("void/commitlog/", b"")
    with pytest.raises(StoreNotFoundError, match=f"s3://{BUCKET}/{name}"):
        read_messages(f"s3://{BUCKET}/{name}", storage=server.settings)


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


_SEGMENT = 1 << 12
_SEGMENTS = 1000
_TIMED = 40
_KEY = 300
"""More bytes than a key takes in a listing."""


@pytest.fixture(scope="module")
def wide(running_server: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Provide a store of 1,000 segments, on a disk and in the bucket."""
    root = make_log(tmp_path_factory.mktemp("wide"), _SEGMENTS * _SEGMENT, _SEGMENT, 300)
    return root, running_server.place_all(root, "wide")


def plan(server: ObjectStore, url: str, **options: object) -> Faults:
    """Plan a read, and return what was asked of the server."""
    server.faults = counted = Faults()
    plan_ranges(url, ReadOptions.parse(storage=server.settings, **options))
    return counted


def test_planning_1000_segments_lists_them_and_reads_the_last(server: ObjectStore, wide: tuple[Path, str]) -> None:
    asked = plan(server, wide[1])
    assert 3 >= asked.lists  # the root, and two pages of at most 1,000 keys
    assert 2 >= asked.gets
    assert 2 * _SEGMENT + _KEY * _SEGMENTS >= asked.bytes_sent
    assert 8 >= asked.heads


def test_time_filters_read_the_head_of_each_segment_once(server: ObjectStore, tmp_path: Path) -> None:
    root = make_log(tmp_path, _TIMED * _SEGMENT, _SEGMENT, 300)
    asked = plan(server, server.place_all(root, "timed"), starting_timestamp=0)
    assert _TIMED <= asked.gets <= _TIMED + 2
    assert 2 * _TIMED + 8 >= asked.heads


def test_1000_segments_have_the_rows_of_the_disk(server: ObjectStore, wide: tuple[Path, str]) -> None:
    root, url = wide
    bounds = {"starting_offsets": 990 * _SEGMENT, "columns": ["topic", "physical_offset"]}
    server.faults = asked = Faults()
    found = read_messages(url, storage=server.settings, **bounds).read_all()  # type: ignore[arg-type]  # of two types
    assert read_messages(root, **bounds).read_all() == found  # type: ignore[arg-type]  # as above
    assert 24 >= asked.gets


@pytest.mark.parametrize("count", [2_500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_keys_that_are_no_segments_are_left_out_however_many(count: int, server: ObjectStore, tmp_path: Path) -> None:
    root = make_log(tmp_path, 2 * _SEGMENT, _SEGMENT, 300)
    url = server.place_all(root, "crowd")
    for number in range(count):
        server.place(f"crowd/commitlog/{number:019d}", b"x")
    server.faults = asked = Faults()
    assert read_messages(root).read_all() == read_messages(url, storage=server.settings).read_all()
    assert 3 + count // 1000 >= asked.lists


def test_keys_that_look_like_segments_or_directories_are_left_out(server: ObjectStore, tmp_path: Path) -> None:
    root = make_log(tmp_path, 2 * _SEGMENT, _SEGMENT, 300)
    like = server.place_all(root, "like")
    beside = [
        f"like/commitlog/{2 * _SEGMENT:020d}/inner",  # a directory with a segment's name
        f"like/commitlog/{3 * _SEGMENT:020d}/",  # an empty "directory"
        f"like/commitlog/ {4 * _SEGMENT:020d}",
        f"like/commitlog/{5 * _SEGMENT:020d}.bak",
        f"like/commitlog/{0:020d}.tmp",
        f"like/commitlog/-{_SEGMENT:019d}",
        "like/commitlog/\uff10" + f"{6 * _SEGMENT:019d}",  # a digit of another script
        "like/commitlog/99999999999999999999",
        f"like/{7 * _SEGMENT:020d}",  # beside the log
        f"like/commitlog-old/{8 * _SEGMENT:020d}",
    ]
    for key in beside:
        server.place(key, b"" if key.endswith("/") else b"x")
    server.file_system.create_dir(f"{BUCKET}/like/commitlog/empty")
    for url in (like, f"{like}/commitlog"):
        assert rows(root) == rows(url, storage=server.settings)


SLICE = ("4.3.0/tx", "5.3.3/torn-garble", "5.5.0/bcq")
OTHER_KINDS = ("cancelled-timers", "cqdouble", "dledger", "rocksdb", "rockskv", "timer")


def load_little(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Request few bytes at a time, so that small stores take many requests."""
    monkeypatch.setattr(remote_bytes, "_BLOCK", size)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 8 * size)


def everything() -> list[GoldenStore]:
    """Return all golden stores there are, whose messages can be read by URL."""
    return [*golden_stores(), *(store for kind in OTHER_KINDS for store in stores_of_kind(kind))]


def check_through_faults(
    store: GoldenStore, server: ObjectStore, directory: Path, caplog: pytest.LogCaptureFixture
) -> Faults:
    """Read a store with faults of all kinds, and compare rows, and failures with what the log says of them."""
    root = unpack(store, directory).root
    parts = [path for path in root.iterdir() if path.name == "commitlog" or path.name.startswith("dledger-")]
    url = f"s3://{server.bucket}/{store.name}"
    for part in parts:
        server.place_all(part, f"{store.name}/{part.name}")
    server.faults = faults = Faults(every=10)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for options in ({"mode": "PERMISSIVE"}, {"mode": "FAILFAST"}, {"columns": NARROW}):
            given = {"release": store.release, **options}
            assert rows(root, **given) == rows(url, storage=server.settings, **given), options
    told = sum(" of 8 follows" in line for line in caplog.messages)
    # A short answer is noticed by one more request, which may fail, too: one attempt then, and one warning.
    assert faults.failed - faults.injected["short"] <= told <= faults.failed
    assert SECRET not in caplog.text
    return faults


@pytest.mark.golden
@pytest.mark.parametrize("name", SLICE)
def test_faults_of_all_kinds_change_nothing_and_are_reported(
    name: str,
    server: ObjectStore,
    golden_directory: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_little(monkeypatch, 1 << 13)
    faults = check_through_faults(find_golden_store(name), server, golden_directory, caplog)
    assert set(faults.kinds) == set(faults.injected)


@pytest.mark.golden
@pytest.mark.soak
@pytest.mark.parametrize("store", everything(), ids=lambda store: store.name)
def test_every_golden_store_reads_through_faults_as_on_a_disk(
    store: GoldenStore,
    server: ObjectStore,
    golden_directory: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    load_little(monkeypatch, 1 << 15)
    faults = check_through_faults(store, server, golden_directory, caplog)
    record_property("requests", faults.asked)
    for kind, times in faults.injected.items():
        record_property(kind, times)
    assert faults.failed
