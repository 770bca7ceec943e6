# SPDX-License-Identifier: Apache-2.0
"""Every command finds a log on other disks by ``--config``, and says of it what it says of one below the root."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from store_core.command.exit_code import ExitCode
from store_core.views.view_names import VIEW_PLANS
from tests.store_core.answers.test_golden_json import life_store
from tests.store_core.command.calls import Called, call
from tests.store_core.command.test_matrix import REPORTS, WORDS, typed

if TYPE_CHECKING:
    from pathlib import Path

SIZES: Final = "mappedFileSizeCommitLog=2048\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=10\nmaxIndexNum=40\n"
ELSEWHERE: Final = {"append", "schema", "view"}
"""Commands that are asked in tests/connector, of no store, and for each view."""

CALLS: Final = sorted(WORDS.keys() - ELSEWHERE) + [f"view {name}" for name in VIEW_PLANS]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with its log, and a copy of it with its log on two other disks, beside its configuration."""
    base = tmp_path_factory.mktemp("places")
    whole = shutil.copytree(life_store(base, 2048), base / "whole" / "store")
    spread = shutil.copytree(whole, base / "spread" / "store")
    disks = [base / "disks" / name / "commitlog" for name in "ab"]
    for number, segment in enumerate(sorted((spread / "commitlog").iterdir())):
        disks[number % 2].mkdir(parents=True, exist_ok=True)
        shutil.move(segment, disks[number % 2])
    (spread / "commitlog").rmdir()
    (base / "broker.conf").write_text(f"{SIZES}storePathCommitLog={disks[0]},{disks[1]}\nstorePathRootDir={spread}\n")
    (base / "whole.conf").write_text(f"{SIZES}storePathRootDir={whole}\n")
    return base


def called(name: str, store: Path, out: Path, *more: object) -> Called:
    words = [*name.split(maxsplit=1)[:1], store, name[5:]] if name.startswith("view ") else typed(name, store, out)
    found = call(*words, *more, *["--json"] * (name in REPORTS))
    return replace(found, data=found.data.replace(bytes(out), b"OUT"))


def plain(text: str, base: Path) -> str:
    """Return an output without what says where the store is, and what is not the same twice."""
    text = re.sub(rf"{re.escape(str(base))}/(whole|spread|disks)/(store/commitlog|store|[ab]/commitlog)", "STORE", text)
    text = text.replace(f"{base}/whole.conf", "CONFIG").replace(f"{base}/broker.conf", "CONFIG")
    text = text.replace('"kinds": ["log in several directories, or outside of the root"]', '"kinds": ["ordinary"]')
    return re.sub(r"(?m)^.*(?:seconds|s, exit code).*$|\"digest\": \"\w+\"", "", text)


@pytest.mark.parametrize("name", CALLS)
def test_a_log_on_other_disks_is_that_of_the_store(name: str, places: Path, tmp_path: Path) -> None:
    whole = called(name, places / "whole" / "store", tmp_path / "one", "--config", places / "whole.conf")
    spread = called(name, places / "spread" / "store", tmp_path / "two", "--config", places / "broker.conf")

    assert whole.code == spread.code
    assert plain(whole.text, places) == plain(spread.text, places)


@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("view ")])
def test_a_log_of_the_stores_own_is_what_is_meant_and_a_command_says_so(
    name: str, places: Path, tmp_path: Path
) -> None:
    whole = called(name, places / "whole" / "store", tmp_path / "one")
    other = called(name, places / "whole" / "store", tmp_path / "two", "--config", places / "broker.conf")

    assert (ExitCode.USAGE if name == "replay" else whole.code) == other.code
    assert "has a commit log of its own, and the configuration names another" in other.text + other.errors


@pytest.mark.parametrize("name", ["cat", "check", "delays", "retention", "transactions", "bill", "trace", "salvage"])
def test_without_the_configuration_the_error_says_what_to_give(name: str, places: Path, tmp_path: Path) -> None:
    refused = called(name, places / "spread" / "store", tmp_path / "one")

    assert (ExitCode.USAGE, "") == (refused.code, refused.text)
    assert "If it is on another disk, give the broker's configuration as option config" in refused.errors
