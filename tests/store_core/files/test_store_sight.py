# SPDX-License-Identifier: Apache-2.0
"""A worker that does not see the driver's store says so at once, and what a broker does meanwhile is no difference."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.errors import StoreAccessError, StoreNotFoundError
from store_core.files.store_sight import StoreSight
from tests.benchmarks.segments import make_log

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Provide a store of five small segments."""
    return make_log(tmp_path, 5 << 12, 1 << 12, 100)


def test_same_store_is_the_same_for_a_worker(store: Path) -> None:
    pickle.loads(pickle.dumps(StoreSight.of(store))).check_here()  # noqa: S301 -- as tasks get it
    StoreSight.of(store / "commitlog").check_here()
    StoreSight.of(f"file://{store}", [store / "commitlog"]).check_here()


def test_worker_without_the_directory_names_it(store: Path) -> None:
    sight = StoreSight.of(store)
    store.rename(store.with_name("elsewhere"))
    with pytest.raises(StoreAccessError, match=f"{store} is a directory on the driver's machine, .* does not exist"):
        sight.check_here()


def test_worker_with_an_empty_directory_names_what_is_missing(store: Path) -> None:
    sight = StoreSight.of(store)
    shutil.rmtree(store)
    store.mkdir()
    with pytest.raises(StoreAccessError, match=r"do not see the same store: .*/commitlog/0+8192 is missing"):
        sight.check_here()


def test_worker_with_another_store_names_what_differs(store: Path) -> None:
    sight = StoreSight.of(store)
    for segment in (store / "commitlog").iterdir():
        data = bytearray(segment.read_bytes())
        data[30] ^= 1
        segment.write_bytes(data)
    with pytest.raises(StoreAccessError, match=r"do not see the same store: .* begins with .*, expected "):
        sight.check_here()


def test_what_a_broker_does_meanwhile_is_no_difference(store: Path) -> None:
    segments = sorted((store / "commitlog").iterdir())
    written = segments[-1].read_bytes()
    segments[-1].write_bytes(bytes(len(written)))
    sight = StoreSight.of(store)
    segments[-1].write_bytes(written)
    segments[0].unlink()
    (store / "commitlog" / f"{5 << 12:020d}").write_bytes(bytes(1 << 12))
    sight.check_here()


def test_stores_that_are_elsewhere_or_missing_have_no_sight(tmp_path: Path) -> None:
    sight = StoreSight.of("s3://bucket/store", tmp_path / "missing")
    assert ((), ()) == (sight.roots, sight.segments)


def test_task_that_does_not_see_the_directory_does_not_call_that_retention(store: Path) -> None:
    reader = read_messages(store, fail_on_data_loss=False, use_consume_queues="never")
    reader.read_next_batch()
    shutil.rmtree(store)
    with pytest.raises(StoreNotFoundError, match="Every worker has to see the store under the path that was given"):
        reader.read_all()
