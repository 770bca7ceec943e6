# SPDX-License-Identifier: Apache-2.0
"""Every golden store is read through a storage that fails in every tenth request, and no failure goes unsaid."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from store_core import StoreError, read_messages
from store_core.files import remote_bytes
from tests.golden_stores import GoldenStore, find_golden_store, golden_stores, stores_of_kind, unpack
from tests.object_store import SECRET, Faults, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


pytestmark = [pytest.mark.golden, pytest.mark.usefixtures("no_pauses")]

SLICE = ("4.3.0/tx", "5.3.3/torn-garble", "5.5.0/bcq")
OTHER_KINDS = ("cancelled-timers", "cqdouble", "dledger", "rocksdb", "rockskv", "timer")
NARROW = ("topic", "queue_offset", "store_size")


def load_little(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Request few bytes at a time, so that small stores take many requests."""
    monkeypatch.setattr(remote_bytes, "_BLOCK", size)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 8 * size)


def outcome(path: object, **options: Any) -> pa.Table | str:  # noqa: ANN401 -- any option
    """Read all rows, or return the error without the store's place."""
    try:
        return read_messages(path, **options).read_all()  # type: ignore[arg-type]  # a path or a URL
    except StoreError as error:
        return f"{type(error).__name__}: {str(error).replace(str(path), 'STORE')}"


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
        for path in part.rglob("*"):
            if path.is_file():
                server.place(f"{store.name}/{path.relative_to(root)}", path.read_bytes())
    server.faults = faults = Faults(every=10)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "store_core"):
        for options in ({"mode": "PERMISSIVE"}, {"mode": "FAILFAST"}, {"columns": NARROW}):
            given = {"release": store.release, **options}
            assert outcome(root, **given) == outcome(url, storage=server.settings, **given), options
    told = sum(" of 8 follows" in line for line in caplog.messages)
    # A short answer is noticed by one more request, which may fail, too: one attempt then, and one warning.
    assert faults.failed - faults.injected["short"] <= told <= faults.failed
    assert SECRET not in caplog.text
    return faults


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
