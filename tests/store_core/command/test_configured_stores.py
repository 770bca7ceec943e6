# SPDX-License-Identifier: Apache-2.0
"""Every command finds a log on other disks by ``--config``, and says of it what it says of one below the root."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

import click
import pytest

from store_core import read_messages
from store_core.command.exit_code import ExitCode
from store_core.command.program import program
from store_core.views.view_names import VIEW_PLANS
from tests.golden_stores import find_golden_store, unpack
from tests.store_core.command.calls import Called, call

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN: Final = "5.3.3/tx"
SIZES: Final = "mappedFileSizeCommitLog=131072\nmappedFileSizeConsumeQueue=800\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
CALLS: Final[dict[str, list[str]]] = {
    "cat": ["STORE"],
    "head": ["STORE"],
    "tail": ["STORE"],
    "get": ["STORE", "ID"],
    "trace": ["STORE", "ID", "--json"],
    "transactions": ["STORE", "--all", "--json", "--now", "2026-12-01T00:00:00Z"],
    "delays": ["STORE", "--all", "--json", "--now", "2026-12-01T00:00:00Z"],
    "deadletters": ["STORE", "--json"],
    "replay": ["STORE", "--id", "T-1", "--topic", "TOPIC", "--dry-run", "--json"],
    "count": ["STORE", "--by", "topic"],
    "explain": ["STORE", "--topic", "TOPIC"],
    "sql": ["STORE", "SELECT topic, count(*) AS messages FROM messages GROUP BY ALL ORDER BY ALL"],
    "info": ["STORE", "--json"],
    "ls": ["STORE"],
    "topics": ["STORE"],
    "bill": ["STORE", "--json"],
    "check": ["STORE", "--json"],
    "diff": ["STORE", "STORE", "--json"],
    "export": ["STORE", "--into", "OUT/lake", "--json"],
    "producers": ["STORE", "--json"],
    "rebuild": ["both", "STORE", "--verify", "--json"],
    "redact": ["STORE", "--into", "OUT/clean", "--topic", "TOPIC", "--json"],
    "repair": ["STORE", "--json"],
    "salvage": ["STORE", "--into", "OUT/saved", "--json"],
    "lag": ["STORE", "--json", "--now", "2026-12-01T00:00:00Z"],
    "retention": [
        "STORE", "--json", "--now", "2026-12-01T00:00:00Z", "--time-zone", "UTC",
        "--disk-size", "1000000000", "--disk-used", "100000000", "--daily-growth", "1000000",
    ],
    "recover": ["STORE", "--dry-run", "--json"],
    **{f"view {name}": ["STORE", name] for name in VIEW_PLANS},
}  # fmt: skip
"""Command -> its arguments, for STORE, OUT, TOPIC and ID."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with its log, and a copy of it with its log on two other disks, beside its configuration."""
    base = tmp_path_factory.mktemp("places")
    unpacked = unpack(find_golden_store(GOLDEN), base / "unpacked")
    whole = shutil.copytree(unpacked.root, base / "whole" / "store")
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
    (first,) = (
        read_messages(store.parents[1] / "whole" / "store", columns=["topic", "unique_key"])
        .read_all()
        .slice(0, 1)
        .to_pylist()
    )
    names = {"STORE": str(store), "TOPIC": first["topic"], "ID": first["unique_key"]}
    out.mkdir()
    words = [names.get(word, word.replace("OUT", str(out))) for word in CALLS[name]]
    return call(name.split(maxsplit=1)[0], *words, *more)


def plain(text: str, base: Path) -> str:
    """Return an output without what says where the store is, and what is not the same twice."""
    text = re.sub(r"\b(one|two)/(lake|clean|saved)", "OUT", text)
    text = re.sub(rf"{re.escape(str(base))}/(whole|spread|disks)/(store/commitlog|store|[ab]/commitlog)", "STORE", text)
    text = text.replace('"kinds": ["log in several directories, or outside of the root"]', '"kinds": ["ordinary"]')
    return re.sub(r"(?m)^.*(seconds|digest|lag: reading|ms\b).*$", "", text)


def test_every_command_about_a_store_is_asked() -> None:
    context = click.Context(program)
    commands = {name: program.get_command(context, name) for name in program.list_commands(context)}
    stores = {"store", "stores", "a"}
    with_store = {name for name, each in commands.items() if each and stores & {param.name for param in each.params}}
    assert with_store - {"append"} == {name.split()[0] for name in CALLS}  # tests/connector has that


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
