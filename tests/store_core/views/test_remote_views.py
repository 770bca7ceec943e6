# SPDX-License-Identifier: Apache-2.0
"""The views of a store in an object store or another file system are those of a local copy."""

from __future__ import annotations

import logging
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from store_core import StoreError, read_messages, read_view
from store_core.errors import StoreNotFoundError, UnsupportedStoreError
from store_core.snapshot.store import Store
from store_core.views.view import ViewOptions, plan_view
from store_core.views.view_columns import VIEWS
from tests.builders import patch
from tests.golden_stores import UnpackedStore, stores_of_kind, unpack
from tests.object_store import SECRET, Faults, ObjectStore
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from tests.golden_stores import Golden


pytestmark = pytest.mark.usefixtures("no_pauses", "no_chance")

STORES = ("4.3.0/tx", "4.9.7/tx", "5.3.3/tx", "5.3.3/compressed", "5.5.0/bcq", "5.5.0/lmq", "5.5.0/ext")
IN_FILES = tuple(name for name in VIEWS if name != "rocksdbstore")


def rows(path: object, view: str, **options: Any) -> pa.Table | str:  # noqa: ANN401 -- any option
    """Read a view, without the paths in it, or return the kind of error."""
    try:
        found = read_view(path, view, **options).read_all()  # type: ignore[arg-type]  # a path or a URL
    except StoreError as error:
        return type(error).__name__
    return found.drop_columns([name for name in found.column_names if name == "path"])


def check_equal(root: Path, url: str, release: str, **options: Any) -> None:  # noqa: ANN401 -- any option
    """Check that all views of both have the same rows, or fail with the same error."""
    for view in IN_FILES:
        assert rows(root, view, release=release) == rows(url, view, release=release, **options), view


@pytest.mark.parametrize("name", STORES)
def test_views_of_a_golden_store_are_those_on_disk(name: str, golden: Golden) -> None:
    store = golden(name)
    check_equal(store.root, in_memory(store.root, name), store.golden.release)


def test_views_of_a_store_that_crashed_are_those_on_disk(golden: Golden, tmp_path: Path) -> None:
    """The last record is torn: queues end before it, wherever the store is."""
    root = tmp_path / "store"
    shutil.copytree(golden("5.3.3/tx").root, root)
    last = read_messages(root, columns=["physical_offset", "store_size"]).read_all().to_pylist()[-1]
    torn = last["physical_offset"] + last["store_size"] // 2
    segment = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= torn)
    patch(segment, torn - int(segment.name), b"\xff" * 8)
    check_equal(root, in_memory(root, "torn"), "5.3")


def test_views_of_timers_are_those_on_disk(golden_directory: Path) -> None:
    for each in stores_of_kind("timer"):
        root = unpack(each, golden_directory).root
        check_equal(root, in_memory(root, each.name), each.release)


@pytest.mark.soak
def test_views_of_every_golden_store_are_those_on_disk(golden_store: UnpackedStore) -> None:
    check_equal(golden_store.root, in_memory(golden_store.root, golden_store.golden.name), golden_store.golden.release)


def test_faults_in_every_tenth_request_change_no_view(
    server: ObjectStore, golden: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "faulty")
    server.faults = Faults(every=10)
    with caplog.at_level(logging.DEBUG):
        check_equal(store.root, url, store.golden.release, storage=server.settings)
    assert server.faults.failed >= 4
    assert SECRET not in caplog.text


def test_a_view_lists_the_parts_that_it_needs_and_queues_together(server: ObjectStore, golden: Golden) -> None:
    url = server.upload(golden("5.3.3/tx").root, "listed")
    server.forget()
    read_view(url, "consumer_offsets", columns=["topic", "committed_offset"], storage=server.settings).read_all()
    assert (server.faults.lists, server.faults.gets) == (2, 1)
    server.forget()
    plan_view(Store(url, storage=server.settings), ViewOptions.parse("consumequeue"))
    assert (server.faults.lists, server.faults.gets) == (4, 0)  # the root, and three parts of it


def test_parts_are_read_in_another_process_and_show_no_setting(server: ObjectStore, golden: Golden) -> None:
    root = golden("5.3.3/tx").root
    options = ViewOptions.parse("topics", storage=server.settings)
    parts = plan_view(options.read.store_of(server.upload(root, "parts")), options)
    assert SECRET not in repr(parts)
    assert SECRET not in repr(options)
    sent = pickle.loads(pickle.dumps(parts))  # noqa: S301 -- as tasks get them
    assert rows(root, "topics").num_rows == sum(batch.num_rows for part in sent for batch in part.batches(options))  # type: ignore[union-attr]


def test_a_store_without_a_file_is_named_by_its_url(server: ObjectStore, golden: Golden) -> None:
    url = server.upload(golden("5.3.3/tx").root / "commitlog", "bare/commitlog").removesuffix("/commitlog")
    with pytest.raises(StoreNotFoundError, match=f"{url}/checkpoint is missing"):
        read_view(url, "checkpoint", storage=server.settings)


def test_a_rocksdb_is_refused_by_name(golden_directory: Path) -> None:
    store = unpack(next(each for each in stores_of_kind("rocksdb")), golden_directory)
    with pytest.raises(UnsupportedStoreError, match=r"consumequeue is a RocksDB, which is read from a local disk"):
        read_view(in_memory(store.root, "rocks"), "consumequeue")
