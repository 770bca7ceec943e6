# SPDX-License-Identifier: Apache-2.0
"""Look-ups in stores that are elsewhere return the rows of a scan on this machine, and move little."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.files import remote_bytes, url_path
from store_core.snapshot import queues as stored_queues
from tests.budgets import budget
from tests.store_core.store.damaged_stores import damaged_archives, unpack_damaged
from tests.store_core.store.read.lookup_stores import (
    OPTIONS,
    keeps_the_promise,
    keyed_store,
    lie_in_index,
    lie_in_queues,
    lying_copy,
    questions,
    questions_about,
    same_as_scan,
    small_dledger_store,
    small_store,
)
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.builders import LogBuilder
    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.usefixtures("no_pauses")

ARCHIVES: Final = damaged_archives()
_STEP: Final = 24
_MIB: Final = 1 << 20


@pytest.fixture(scope="module")
def _few_bytes() -> Iterator[None]:
    """Load just what is asked for, so that what is read without being loaded is zeros."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_bytes, "NEAR", 0)
        patch.setattr(url_path, "_READ_WHOLE", 0)
        patch.setattr(stored_queues, "_BLOCK", 64)
        patch.setattr(remote_bytes, "_BLOCK", 1 << 8)
        patch.setattr(remote_bytes, "_AHEAD", 1 << 9)
        yield


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, LogBuilder, Path]:
    """Return a store with queues, one with keys and its log, and one with other keys in the same places."""
    root = tmp_path_factory.mktemp("remote-look-ups")
    small_store(root / "queues")
    keyed_store(root / "other", version=1)
    return root / "queues", root / "keys", keyed_store(root / "keys"), root / "other"


def _questions(stores: tuple[Path, Path, LogBuilder, Path]) -> list[tuple[Path, str, dict[str, Any]]]:
    queues, keys, log, _ = stores
    positions = [{"physical_offset": record.physical_offset + at} for record in log.records[::9] for at in (0, 1)]
    asked = [(queues, "queues", each) for each in OPTIONS]
    return [
        *asked,
        *((keys, "index", each) for each in questions(log)),
        *((keys, "position", each) for each in positions),
    ]


@pytest.mark.usefixtures("_few_bytes")
def test_sound_stores_are_looked_up(stores: tuple[Path, Path, LogBuilder, Path]) -> None:
    urls = {root: in_memory(root, root.name) for root in stores[:2]}
    for root, name, options in _questions(stores):
        assert same_as_scan(root, urls[root], **options).explanation.plan == name


@pytest.mark.usefixtures("_few_bytes")
@budget(0.15)
@given(seed=st.integers(0, 2**32), lies=st.integers(1, 4))
def test_lying_queues_give_sound_rows(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, Path, LogBuilder, Path], seed: int, lies: int
) -> None:
    root = tmp_path_factory.getbasetemp() / "lying-elsewhere"
    drawn = lying_copy(stores[0], root, seed, lies, lie_in_queues)
    url = in_memory(root, "lying")

    for options in drawn.sample(OPTIONS, 2):
        keeps_the_promise(root, url, **options)


@pytest.mark.usefixtures("_few_bytes")
@budget(0.15)
@given(seed=st.integers(0, 2**32), lies=st.integers(1, 4))
def test_lying_index_files_give_sound_rows(
    tmp_path_factory: pytest.TempPathFactory, stores: tuple[Path, Path, LogBuilder, Path], seed: int, lies: int
) -> None:
    _, sound, log, other = stores
    root = tmp_path_factory.getbasetemp() / "lying-index-elsewhere"
    drawn = lying_copy(sound, root, seed, lies, lambda copy, drawn: lie_in_index(copy, other, drawn))
    url = in_memory(root, "lying-index")

    for options in drawn.sample(questions(log), 2):
        keeps_the_promise(root, url, **options)


@pytest.mark.usefixtures("_few_bytes")
@pytest.mark.parametrize("old_segments", [0, 2])
def test_dledger_logs_are_looked_up(tmp_path: Path, old_segments: int) -> None:
    small_dledger_store(tmp_path, old_segments=old_segments)
    url = in_memory(tmp_path, f"dledger-{old_segments}")
    for options in OPTIONS:
        assert same_as_scan(tmp_path, url, **options).explanation.plan == "queues"


def _look_up(archive: Path, directory: Path) -> set[str]:
    root = unpack_damaged(archive, directory) / "store"
    drawn = random.Random(archive.name)  # noqa: S311 -- reproducible
    url = in_memory(root, archive.name)
    return {keeps_the_promise(root, url, **options) for options in questions_about(root, drawn, 1)}


@pytest.mark.golden
@pytest.mark.usefixtures("_few_bytes")
@pytest.mark.parametrize("archive", ARCHIVES[::_STEP], ids=lambda archive: archive.name.split(".")[0])
def test_a_look_up_in_a_damaged_store_keeps_the_promise(archive: Path, tmp_path: Path) -> None:
    _look_up(archive, tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("_few_bytes")
def test_a_look_up_in_any_damaged_store_keeps_the_promise(tmp_path: Path) -> None:
    plans = {plan for archive in ARCHIVES for plan in _look_up(archive, tmp_path)}

    assert {"scan", "queues", "index", "position"} <= plans


@pytest.mark.golden
@pytest.mark.usefixtures("_few_bytes")
@pytest.mark.parametrize("name", ["4.9.7/tx", "5.3.3/bcq", "5.3.3/propcrc"])
def test_a_golden_store_is_looked_up(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    _check_golden(golden(name), 2)


@pytest.mark.soak
@pytest.mark.usefixtures("_few_bytes")
def test_every_golden_store_is_looked_up(golden_store: UnpackedStore) -> None:
    _check_golden(golden_store, 6)


def _check_golden(store: UnpackedStore, most: int) -> None:
    url, drawn = in_memory(store.root, "golden"), random.Random(store.golden.name)  # noqa: S311 -- reproducible
    for options in questions_about(store.root, drawn, most):
        keeps_the_promise(store.root, url, release=store.golden.release, **options)
