# SPDX-License-Identifier: Apache-2.0
"""What every command does: where nothing is, what it writes and leaves alone, and with a log on other disks."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from store_core.answers.report import Verdict
from store_core.command.exit_code import ExitCode
from store_core.command.program import _BY_NAME
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.views.view_columns import VIEWS
from store_core.views.view_names import VIEW_PLANS
from tests.store_core.answers.test_golden_json import DISK, NOW, life_store
from tests.store_core.command.calls import Called, call
from tests.store_core.files.store_kinds import every_file, spread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


WORDS: Final[dict[str, Sequence[object]]] = {
    "cat": ("STORE",),
    "head": ("STORE",),
    "tail": ("STORE",),
    "get": ("STORE", "o1"),
    "trace": ("STORE", "o1"),
    "transactions": ("STORE", "--now", NOW),
    "delays": ("STORE", "--now", NOW),
    "deadletters": ("STORE",),
    "replay": ("STORE", "--id", "T-1", "--topic", "orders", "--dry-run"),
    "append": ("OUT", "--from-store", "STORE", "--topic", "orders"),
    "count": ("STORE",),
    "explain": ("STORE",),
    "sql": ("STORE", "SELECT topic FROM messages"),
    "schema": (),
    "info": ("STORE",),
    "ls": ("STORE",),
    "topics": ("STORE",),
    "view": ("STORE", "index"),
    "bill": ("STORE",),
    "check": ("STORE",),
    "diff": ("STORE", "STORE"),
    "export": ("STORE", "--into", "OUT"),
    "producers": ("STORE",),
    "rebuild": ("both", "STORE", "--output", "OUT"),
    "redact": ("STORE", "--into", "OUT", "--pattern", "bod[x-z]"),
    "repair": ("STORE",),
    "salvage": ("STORE",),
    "lag": ("STORE", "--now", NOW),
    "retention": ("STORE", "--now", NOW, *DISK),
    "recover": ("STORE", "--dry-run"),
}
"""Command -> the least that has to be typed after it; words in capitals are replaced."""

REPORTS: Final = sorted(name for name, entry in _BY_NAME.items() if ":" in entry.module or name == "repair")
OF_STORES: Final = sorted(WORDS.keys() - {"schema"})
OF_TOPICS: Final = [
    "append",
    "cat",
    "check",
    "count",
    "explain",
    "export",
    "get",
    "head",
    "lag",
    "rebuild",
    "replay",
    "tail",
    "topics",
]
NEED_THE_LOCK: Final = {"rebuild", "redact", "repair", "replay"}
"""Commands that a store which a broker holds is refused to."""

WITHOUT_PARTS: Final = {"info", "recover", "replay"}
"""Reports that do not show how far they are."""

INTO: Final = dict.fromkeys(("salvage", "replay"), ("--into", "OUT"))
"""Commands that need no place to write to -> what names one."""

PLACES: Final = [
    (name, word) for name in OF_STORES for word in ("STORE", "OUT") if word in (*WORDS[name], *INTO.get(name, ()))
]
"""Each command with each of its paths."""

HOSTILE: Final = "a\x1b[2J b"


def typed(name: str, store: Path, out: Path) -> list[object]:
    places = {"STORE": store, "OUT": out}
    return [name, *(places.get(str(word), word) for word in WORDS[name])]


def test_every_command_is_in_the_matrix() -> None:
    assert _BY_NAME.keys() == WORDS.keys()


@pytest.mark.parametrize("name", OF_STORES)
def test_a_store_that_is_not_there_is_wrong_usage(name: str, tmp_path: Path) -> None:
    called = call(*typed(name, tmp_path / HOSTILE, tmp_path / "out"))

    assert ExitCode.USAGE == called.code
    assert called.errors.startswith("commitlog: ")
    assert str(tmp_path) in called.errors
    assert "\x1b" not in called.errors
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", OF_STORES)
def test_the_directory_above_a_store_leads_to_it(name: str, life: Path, tmp_path: Path) -> None:
    store = shutil.copytree(life, tmp_path / "above" / "store")
    called = call(*typed(name, store.parent, store.parent if name == "append" else tmp_path / "out"))

    assert ExitCode.USAGE == called.code
    assert f"A store may be at {store}" in called.errors
    assert [store] == list(store.parent.iterdir())
    assert [store.parent] == list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "word"), PLACES)
def test_an_empty_path_is_not_the_working_directory(
    name: str, word: str, life: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(life, tmp_path / "here")
    before = every_file(tmp_path)
    monkeypatch.chdir(tmp_path / "here")
    words = [*WORDS[name], *INTO.get(name, ())]
    places = {"STORE": life, "OUT": tmp_path / "out", word: ""}
    called = call(name, *(places.get(str(each), each) for each in words))

    assert ExitCode.USAGE == called.code, called
    assert "path" in called.errors
    assert before == every_file(tmp_path)


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_a_view_of_the_directory_above_a_store_leads_to_it(view: str, life: Path, tmp_path: Path) -> None:
    store = shutil.copytree(life, tmp_path / "store")
    called = call("view", tmp_path, view)

    assert ExitCode.USAGE == called.code
    assert f"A store may be at {store}" in called.errors
    assert "from the log" not in called.errors


@pytest.mark.parametrize("name", WORDS)
def test_an_option_that_there_is_not_is_wrong_usage(name: str, tmp_path: Path) -> None:
    called = call(*typed(name, tmp_path, tmp_path / "out"), "--no-such-option")

    assert ExitCode.USAGE == called.code
    assert "No such option '--no-such-option'" in called.errors.replace("\n", " ")


@pytest.mark.parametrize(("name", "flag"), [("export", "--into"), ("redact", "--into"), ("replay", "--id")])
def test_an_option_that_has_to_be_given_is_asked_for(name: str, flag: str, life: Path) -> None:
    called = call(name, life)

    assert ExitCode.USAGE == called.code
    assert f"Missing option '{flag}'" in called.errors


@pytest.mark.parametrize("name", OF_TOPICS)
def test_a_topic_that_is_nowhere_in_the_store_is_wrong_usage(name: str, life: Path, tmp_path: Path) -> None:
    called = call(*typed(name, life, tmp_path / "out"), "--topic", "Nope")

    assert ExitCode.USAGE == called.code
    assert "Nope" in called.errors
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", OF_STORES)
def test_a_store_that_is_read_stays_as_it_is(name: str, life: Path, tmp_path: Path) -> None:
    before = every_file(life)
    called = call(*typed(name, life, tmp_path / "out"))

    assert called.code in (ExitCode.DONE, ExitCode.FINDINGS, ExitCode.DAMAGED)
    assert called.text
    assert before == every_file(life)


@pytest.mark.parametrize("name", OF_STORES)
def test_the_url_of_a_local_store_is_its_path(name: str, life: Path, tmp_path: Path) -> None:
    by_path = call(*(str(word) for word in typed(name, life, tmp_path / "a")))
    by_url = call(*(f"file://{word}" if word == life else str(word) for word in typed(name, life, tmp_path / "b")))

    assert (by_path.code, "") == (by_url.code, by_url.errors)


@pytest.mark.parametrize("name", OF_STORES)
def test_a_store_that_a_broker_holds_is_read_and_not_changed(name: str, life: Path, tmp_path: Path) -> None:
    held = shutil.copytree(life, tmp_path / "store")
    with StoreLock(held, OsFileSystem()):
        before = every_file(held)
        called = call(*typed(name, held, tmp_path / "out"))

    assert (name in NEED_THE_LOCK) == (called.code == ExitCode.REFUSED)
    assert before == every_file(held)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_one_line_of_json_whose_verdict_is_the_exit_code(name: str, life: Path, tmp_path: Path) -> None:
    called = call(*typed(name, life, tmp_path / "out"), "--json")

    (report,) = called.rows
    assert report["schema"].startswith(f"commitlog-{name}")
    assert ExitCode.of(Verdict(report["verdict"])) == called.code


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_a_page_in_a_new_file_and_never_over_another(name: str, life: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = [call(*typed(name, life, tmp_path / f"out-{number}"), "--html", page) for number in range(2)]

    assert page.read_text().startswith("<!DOCTYPE html>")
    assert ExitCode.USAGE == ended[1].code
    assert str(page) in ended[1].errors
    assert [page] == list(tmp_path.glob("page*"))
    assert not (tmp_path / "out-1").exists(), "found before anything is done"


# ---- a log on other disks

SIZES: Final = "mappedFileSizeCommitLog=2048\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=10\nmaxIndexNum=40\n"
ELSEWHERE: Final = {"append", "schema", "view"}
"""Commands that are asked in tests/connector, of no store, and for each view."""

CALLS: Final = sorted(WORDS.keys() - ELSEWHERE) + [f"view {name}" for name in VIEW_PLANS]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with its log, and a copy of it with its log on two other disks, beside its configuration."""
    base = tmp_path_factory.mktemp("places")
    whole = shutil.copytree(life_store(base, 2048), base / "whole" / "store")
    apart = shutil.copytree(whole, base / "spread" / "store")
    disks = [base / "disks" / name / "commitlog" for name in "ab"]
    spread(apart, disks)
    (base / "broker.conf").write_text(f"{SIZES}storePathCommitLog={disks[0]},{disks[1]}\nstorePathRootDir={apart}\n")
    (base / "whole.conf").write_text(f"{SIZES}storePathRootDir={whole}\n")
    return base


def called_at(name: str, store: Path, out: Path, *more: object) -> Called:
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
    whole = called_at(name, places / "whole" / "store", tmp_path / "one", "--config", places / "whole.conf")
    spread = called_at(name, places / "spread" / "store", tmp_path / "two", "--config", places / "broker.conf")

    assert whole.code == spread.code
    assert plain(whole.text, places) == plain(spread.text, places)


@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("view ")])
def test_a_log_of_the_stores_own_is_what_is_meant_and_a_command_says_so(
    name: str, places: Path, tmp_path: Path
) -> None:
    whole = called_at(name, places / "whole" / "store", tmp_path / "one")
    other = called_at(name, places / "whole" / "store", tmp_path / "two", "--config", places / "broker.conf")

    assert (ExitCode.USAGE if name == "replay" else whole.code) == other.code
    assert "has a commit log of its own, and the configuration names another" in other.text + other.errors


@pytest.mark.parametrize("name", ["cat", "check", "delays", "retention", "transactions", "bill", "trace", "salvage"])
def test_without_the_configuration_the_error_says_what_to_give(name: str, places: Path, tmp_path: Path) -> None:
    refused = called_at(name, places / "spread" / "store", tmp_path / "one")

    assert (ExitCode.USAGE, "") == (refused.code, refused.text)
    assert "If it is on another disk, give the broker's configuration as option config" in refused.errors
