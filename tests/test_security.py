# SPDX-License-Identifier: Apache-2.0
"""What SECURITY.md promises of hostile stores, where no other test does; docs/reliability.md lists those."""

from __future__ import annotations

import ast
import logging
import os
import stat
from pathlib import Path
from typing import Final

import pytest

from store_core import (
    DefaultMessageStore,
    Message,
    MessageStoreConfig,
    RebuildOptions,
    answers,
    read_messages,
    read_view,
    rebuild_consume_queue,
)
from store_core.errors import StoreAccessError, StoreError
from store_core.files.file_system import OsFileSystem
from store_core.store.sink.commit import AppendTransaction, CommitLedger, LedgerEntry
from store_core.store.sink.staged_append import Appended

ROOT: Final = Path(__file__).parents[1]
ESCAPES: Final = "\x1b]0;gotcha\x07"
HOSTILE: Final = (ESCAPES, "../../outside", "/etc/outside", "..", "a/b", "orders", "<script>x</script>")
CONFIG: Final = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 14, mapped_file_size_consume_queue=400, max_hash_slot_num=10, max_index_num=40
)


def make_store(root: Path) -> Path:
    """Make a store whose topics, tags, keys and bodies are all hostile."""
    with DefaultMessageStore.open(root, CONFIG) as store:
        for number, topic in enumerate(HOSTILE * 4):
            text = HOSTILE[number % len(HOSTILE)]
            store.put_message(Message(topic, text.encode(), queue_id=number % 2, tags=text, keys=[f"{text}{number}"]))
    return root


def files_below(directory: Path, *, without: Path) -> dict[str, bytes]:
    """Return what all files hold, except that a writer may lock the store."""
    return {
        str(path): b"" if path.is_dir() or path.name == "lock" else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if without not in (path, *path.parents)
    }


def test_hostile_names_lead_nowhere_outside_of_the_target(tmp_path: Path) -> None:
    store = make_store(tmp_path / "deep" / "down" / "store")
    before = files_below(tmp_path, without=tmp_path / "target")
    (tmp_path / "target").mkdir()
    rebuild_consume_queue(store, RebuildOptions(output=tmp_path / "target" / "rebuilt"))
    answers.export(store, tmp_path / "target" / "lake")
    answers.salvage(store, tmp_path / "target" / "salvaged")
    after = files_below(tmp_path, without=tmp_path / "target")

    assert before == after
    assert not Path("/etc/outside").exists()


@pytest.mark.parametrize("name", ["abort", "abort.bak", "checkpoint", "lock"])
def test_a_link_in_the_place_of_a_file_of_the_store_is_refused_and_not_followed(name: str, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    outside = tmp_path / "outside"
    outside.write_bytes(b"keep this")
    (store / name).unlink(missing_ok=True)
    (store / name).symlink_to(outside)
    with pytest.raises(StoreAccessError, match="expected a file, found a link"):
        DefaultMessageStore.open(store, CONFIG).close()

    assert b"keep this" == outside.read_bytes()


def test_a_link_that_is_put_in_the_place_of_a_ledger_is_replaced_and_not_followed(tmp_path: Path) -> None:
    ledger = CommitLedger(tmp_path / "ledger", OsFileSystem())
    outside = tmp_path / "outside"
    outside.write_bytes(b"keep this")
    (tmp_path / "ledger").mkdir()
    path = ledger.path_of("job")
    path.symlink_to(outside)
    path.with_suffix(".partial").symlink_to(outside)
    ledger.write(LedgerEntry(AppendTransaction("job", 1), Appended(0, 9, 1, 0, 0, 9, 9), is_committed=False))

    assert b"keep this" == outside.read_bytes()
    assert not path.is_symlink()


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    (store / "abort").mkdir()

    with pytest.raises(StoreAccessError, match=r"abort: expected a file, found a directory"):
        DefaultMessageStore.open(store, CONFIG).close()


def test_nobody_else_may_write_what_is_written(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = make_store(tmp_path / "store")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode for path in store.rglob("*") if path.is_file()}

    assert modes
    assert {} == {path: mode for path, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_IXUSR)}


def test_a_stricter_mask_is_kept(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = make_store(tmp_path / "store")
    finally:
        os.umask(before)

    assert not any(path.stat().st_mode & 0o077 for path in store.rglob("*"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.json", '{"topicConfigTable": {"\\u001b[2J": {"perm": "x"}}}'),
        ("consumerOffset.json", '{"offsetTable": {"\\u001b[2J@g": {"0": "x"}}}'),
    ],
)
def test_errors_show_no_control_characters_of_a_store(name: str, text: str, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / name).write_text(text)
    with pytest.raises(StoreError) as raised:
        read_view(store, "topics" if name == "topics.json" else "consumer_offsets").read_all()

    assert "\x1b" not in str(raised.value)


def test_the_log_shows_no_control_characters_of_a_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "store_core")
    store = make_store(tmp_path / "store")
    (tmp_path / "broker.conf").write_text(f"{ESCAPES}=1\n")
    MessageStoreConfig.from_properties(tmp_path / "broker.conf")
    read_messages(store, topic="nope").read_all()
    for ask in (answers.bill, answers.producers, answers.transactions, answers.delays, answers.check):
        str(ask(store))

    assert "no record of it was read" in caplog.text
    assert "\x1b" not in caplog.text
    assert "\x07" not in caplog.text


def names_used(path: Path) -> set[str]:
    """Return the names of functions and modules that a module uses: plain ones, and those with a module before them."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    names |= {
        f"{call.value.id}.{call.attr}"
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)
    }
    imported = [node for node in nodes if isinstance(node, ast.Import)]
    return names | {alias.name for node in imported for alias in node.names}


def test_nothing_unpickles_or_evaluates_what_it_reads() -> None:
    banned = {
        "pickle",
        "cloudpickle",
        "marshal",
        "shelve",
        "eval",
        "exec",
        "os.system",
        "np.load",
        "numpy.load",
        "compile",
    }
    modules = [*ROOT.glob("store_core/**/*.py"), *ROOT.glob("connector/**/*.py")]
    found = {path.name: names_used(path) & banned for path in modules}

    assert {"process_pool.py": {"pickle"}} == {name: used for name, used in found.items() if used}
