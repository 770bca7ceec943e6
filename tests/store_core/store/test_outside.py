# SPDX-License-Identifier: Apache-2.0
"""Targets: what is written never lies among files of others, whichever entrance writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig
from store_core.answers import export, replay, salvage
from store_core.errors import InvalidOptionError
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.store.sink.commit import SinkCommit
from tests.store_core.files.store_kinds import every_file, ordinary_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=100, max_index_num=400)


def store_of(path: Path) -> None:
    DefaultMessageStore.open(path, CONFIG).close()


def commit(path: Path) -> None:
    SinkCommit(path, f"job-{0:032x}", CONFIG, SystemClock(), OsFileSystem()).run([])


def replayed(path: Path) -> None:
    replay(path.parent / "source", "again", path, into_config=CONFIG)


STORES: dict[str, Callable[[Path], object]] = {"open": store_of, "append": commit, "replay": replayed}
ENTRANCES: dict[str, Callable[[Path], object]] = STORES | {
    "export": lambda path: export(path.parent / "source", path),
    "salvage": lambda path: salvage(path.parent / "source", path, "parquet"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    ordinary_store(tmp_path / "source")
    return tmp_path / "place"


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("names", [[".bashrc"], ["notes.txt", "config/app.yaml"], ["index/page.html", "src/main.py"]])
def test_a_directory_with_other_files_is_refused_and_stays_as_it_is(
    place: Path, entrance: str, names: list[str]
) -> None:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")
    before = every_file(place.parent)

    with pytest.raises(InvalidOptionError, match=f"{place}"):
        ENTRANCES[entrance](place)

    assert before == every_file(place.parent)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("below", ["b", "a/b"])
def test_above_a_store_its_root_is_suggested(place: Path, entrance: str, below: str) -> None:
    ordinary_store(place / below)

    with pytest.raises(InvalidOptionError, match=f"A store may be at {place / below}$"):
        ENTRANCES[entrance](place)


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_empty_directory_is_free_and_keeps_its_mode(place: Path, entrance: str) -> None:
    place.mkdir()
    place.chmod(0o700)

    ENTRANCES[entrance](place)

    assert any(place.iterdir())
    assert 0o700 == place.stat().st_mode & 0o777


@pytest.mark.parametrize("entrance", STORES)
@pytest.mark.parametrize(
    "name", ["config/topics.json", "lock", "commitlog-sink/refused/list", "abort", "index/1", "lost+found/#1"]
)
def test_what_a_store_begins_with_is_no_file_of_others(place: Path, entrance: str, name: str) -> None:
    (place / name).parent.mkdir(parents=True)
    (place / name).write_text("{}" if name.endswith("json") else "")

    STORES[entrance](place)

    assert (place / "checkpoint").is_file()


def test_a_root_among_whose_files_the_log_is_configured_to_be_is_one(place: Path) -> None:
    (place / "segments").mkdir(parents=True)
    (place / "notes.txt").touch()
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, store_path_commit_log=str(place / "segments"))
    DefaultMessageStore.open(place, config).close()

    assert (place / "checkpoint").is_file()
