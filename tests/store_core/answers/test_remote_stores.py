# SPDX-License-Identifier: Apache-2.0
"""Answers about a store that is elsewhere are those about a local copy, and nothing is written there."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from store_core import DefaultMessageStore, Message, MessageStoreConfig, plan_rebuild, rebuild_consume_queue, store_at
from store_core.answers import (
    check,
    export,
    plan_repair,
    prove,
    recover,
    redact,
    repair,
    retention,
    salvage,
)
from store_core.answers.store_replay import replay
from store_core.command.program import program
from store_core.errors import InvalidOptionError, StoreError, UnsupportedStoreError
from store_core.store.rebuild.plan import RebuildOptions
from tests.object_store import SECRET, Faults, ObjectStore
from tests.store_core.answers.asked import answers_at
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden, UnpackedStore

pytestmark = pytest.mark.usefixtures("no_pauses")

NOW = 1_900_000_000_000
STORES = ("4.9.7/tx", "5.3.3/tx", "5.5.0/bcq")
Store = str | os.PathLike[str]

ANSWERS = {name: asked for name, asked in answers_at(NOW, "orders/0/0").items() if name not in ("info", "retention")}
OF_THIS_MACHINE = ("notes", "offsets_written")
"""Facts about files on a disk: which release may have written them, and when a copy was made."""


def answer_of(name: str, store: Store) -> str:
    """Return an answer as text in which the store has no name, or the kind of error."""
    try:
        found = ANSWERS[name].ask(store).to_json()
    except StoreError as error:
        return type(error).__name__
    kept = {key: value for key, value in found.items() if key not in OF_THIS_MACHINE}
    return json.dumps(kept, sort_keys=True).replace(os.fspath(store), "STORE")


@pytest.mark.parametrize("name", STORES)
def test_answers_are_those_of_a_local_copy(name: str, golden: Golden) -> None:
    root = golden(name).root
    url = in_memory(root, name)
    for answer in ANSWERS:
        assert answer_of(answer, root) == answer_of(answer, url), answer


def test_a_check_by_url_reads_the_extensions_of_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, max_index_num=40, enable_consume_queue_ext=True)
    with DefaultMessageStore.open(root, config) as store:
        for _ in range(9):
            store.put_message(Message("orders", b"body", properties={"TAGS": "paid"}))
    assert [each for each in (root / "consumequeue_ext").rglob("*") if each.is_file()]
    assert answer_of("check", root) == answer_of("check", in_memory(root, "extended"))


@pytest.mark.soak
def test_a_check_of_every_golden_store_is_that_of_a_local_copy(golden_store: UnpackedStore) -> None:
    url = in_memory(golden_store.root, golden_store.golden.name)
    for answer in ANSWERS:
        assert answer_of(answer, golden_store.root) == answer_of(answer, url), answer


def test_a_check_survives_faults_and_shows_no_secret(
    server: ObjectStore, golden: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "checked")
    server.faults = Faults(every=10)
    with caplog.at_level(logging.DEBUG):
        report = check(store_at(url, server.settings))
    server.forget()
    assert check(root).to_json()["digest"] == report.to_json()["digest"]
    assert SECRET not in caplog.text
    assert SECRET not in f"{report.to_json()}{report.to_text()}{report.to_html()}"


def test_exports_read_a_url_into_a_local_directory(server: ObjectStore, golden: Golden, tmp_path: Path) -> None:
    root = golden("5.3.3/tx").root
    store = store_at(server.upload(root, "exported"), server.settings)
    exported = export(store, tmp_path / "lake")
    assert export(root, tmp_path / "local").found.messages == exported.found.messages
    assert prove(store, tmp_path / "lake").verdict.name == "CLEAN"
    written = "".join(path.read_text() for path in (tmp_path / "lake").rglob("*.json"))
    assert SECRET not in written


def test_retention_needs_the_broker_s_disk(golden: Golden) -> None:
    url = in_memory(golden("5.3.3/tx").root, "kept")
    with pytest.raises(InvalidOptionError, match=r"is not on a local disk: give the size and use of the broker"):
        retention(url, now=NOW)
    found = retention(url, now=NOW, disk_size=10**12, disk_used=10**11)
    assert any("are those of the copy" in note for note in found.to_json()["notes"])


def test_commands_take_settings_and_show_none(server: ObjectStore, golden: Golden) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "commanded")
    storage = ",".join(f"{name}={value}" for name, value in server.settings.items())
    one, others = storage.split(",", 1)
    commands = (
        ["check", url],
        ["topics", url],
        ["view", url, "checkpoint"],
        ["count", url],
        ["diff", url, url],
        ["ls", url],
    )
    for arguments in commands:
        found = CliRunner().invoke(program, [*arguments, "--storage", one, "--storage", others])
        assert (0, False) == (found.exit_code, SECRET in found.output), (arguments, found.output)
    gone = CliRunner().invoke(program, ["check", f"{url}-gone", "--storage", storage])
    assert f"{url}-gone" in gone.output
    assert SECRET not in gone.output


WRITERS: dict[str, Callable[[str, Path], object]] = {
    "repair": lambda url, _: plan_repair(url),
    "carry out a repair": lambda url, root: repair(url, root / "plan.json"),
    "recover": lambda url, _: recover(url),
    "redact": lambda url, root: redact(url, root.parent / "copy", text="x"),
    "redact into": lambda url, root: redact(root, url, text="x"),
    "salvage into": lambda url, root: salvage(root, f"{url}-new"),
    "export into": lambda url, root: export(root, f"{url}-lake"),
    "replay": lambda url, _: replay(url, "x", url, topic="orders"),
    "rebuild": lambda url, _: rebuild_consume_queue(url),
    "plan a rebuild": lambda url, _: plan_rebuild(url, RebuildOptions()),
    "rebuild into": lambda url, _: rebuild_consume_queue(url, RebuildOptions(output=f"{url}-new")),
    "open": lambda url, _: DefaultMessageStore.open(url),
}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_to_a_url(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = golden("5.3.3/tx").root
    url = in_memory(root, "unwritten")
    with pytest.raises(UnsupportedStoreError, match=f"{url}.*local disk"):
        WRITERS[name](url, root)
    assert not list(tmp_path.iterdir())
