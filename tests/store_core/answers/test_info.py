# SPDX-License-Identifier: Apache-2.0
"""What a store is, told without a scan: right where it is told, and told of stores of every kind and state."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages, store_at
from store_core.answers import Info
from store_core.command.exit_code import ExitCode
from store_core.errors import StoreNotFoundError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.format.log_end import find_log_end
from store_core.format.times import iso_time
from tests.builders import LogBuilder
from tests.store_core.command.calls import call
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden, UnpackedStore
    from tests.object_store import ObjectStore


def told(store: object) -> dict[str, Any]:
    return Info().ask(store).to_json()  # type: ignore[arg-type]


@pytest.mark.golden
def test_offsets_times_and_counts_are_those_of_a_scan(golden_store: UnpackedStore) -> None:
    found = told(golden_store.root)
    rows = golden_store.expected()
    queued = [row for row in rows if row["transaction_type"] not in ("PREPARED_TYPE", "ROLLBACK_TYPE")]
    last = rows[-1]

    assert rows[0]["physical_offset"] >= found["log_begin"]
    assert iso_time(rows[0]["store_timestamp"]) == found["first_time"]
    is_torn = golden_store.golden.is_torn
    assert found["state"] == ("crashed" if is_torn or "crash" in golden_store.golden.scenario else "closed")
    if is_torn:
        return  # the rows are those after the recovery, which ends the log earlier
    assert last["physical_offset"] + last["store_size"] == found["log_end"]
    assert found["last_time"] in {iso_time(row["store_timestamp"]) for row in rows[-30:]}
    assert found["messages"] is not None
    assert found["messages"] <= sum(int(row["properties"].get("INNER_NUM") or 1) for row in queued)


def test_of_very_many_queues_only_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_viewed_store(tmp_path / "store")
    monkeypatch.setattr("store_core.answers.info._MOST_QUEUES", 2)
    found = told(store)

    assert (3, 2, 60, 3) == tuple(found[name] for name in ("queues", "counted_queues", "messages", "topics"))
    assert "messages: 60, in the first 2 of 3 queues of 3 topics" in call("info", store).text


def test_nothing_is_scanned(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def counted(segment: Any, *, after: Any, **more: Any) -> Any:  # noqa: ANN401 -- of `find_log_end`
        found = find_log_end(segment, after=after, **more)
        walked.append(found.position - after.position)
        return found

    monkeypatch.setattr("store_core.snapshot.log_end.find_log_end", counted)
    told(golden("5.3.3/propcrc").root)

    assert 1 == len(walked)
    assert walked[0] < 1000


def test_open_crashed_and_closed_stores_are_told_apart(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with DefaultMessageStore.open(root, MessageStoreConfig(mapped_file_size_commit_log=4096)) as store:
        store.put_message(Message("orders", b"x"))
        assert "open" == told(root)["state"]
    assert "closed" == told(root)["state"]
    (root / "abort").touch()
    crashed = told(root)
    assert "crashed" == crashed["state"]
    assert [f"commitlog recover {root} --dry-run", f"commitlog check {root}"] == [
        row["command"] for row in crashed["tables"]["next"][:2]
    ]
    with StoreLock(root, OsFileSystem()):
        assert "open" == told(root)["state"]


@pytest.mark.parametrize("place", ["here", "elsewhere"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_log_that_goes_on_elsewhere_is_told_by_the_queues_of_a_closed_store(
    is_closed: bool, place: str, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    with DefaultMessageStore.open(root, MessageStoreConfig(mapped_file_size_commit_log=4096)) as store:
        for _ in range(60):
            store.put_message(Message("orders", b"x" * 100))
    if place == "elsewhere":
        max((root / "commitlog").iterdir()).rename(tmp_path / "segment")
    if not is_closed:
        (root / "abort").touch()

    is_told = is_closed and place == "elsewhere"
    assert [is_told] == [any("after the log's end" in note for note in told(root)["notes"])]


def test_what_is_missing_is_told_with_how_to_make_it(tmp_path: Path) -> None:
    log = LogBuilder(4096)
    log.append_all(b"one", b"two", b"three")
    root = log.write(tmp_path / "store", preallocated=1)
    found = told(root)

    assert "copy of a part" in found["kinds"]
    assert {"consume queues", "the key index", "checkpoint"} <= set(found["missing"])
    assert (log.end, None) == (found["log_end"], found["messages"])
    assert f"commitlog rebuild both {root} --dry-run" in {row["command"] for row in found["tables"]["next"]}


@pytest.mark.parametrize(("name", "part"), [("consumequeue", "consume queues"), ("index", "the key index")])
def test_what_may_not_be_read_is_told_and_not_called_missing(
    name: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, names = make_viewed_store(tmp_path / "store"), OsFileSystem.names

    def denied(self: OsFileSystem, directory: Path) -> list[str]:
        if directory.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
        return names(self, directory)

    monkeypatch.setattr(OsFileSystem, "names", denied)
    found = told(store)

    assert any("has no permission" in note and str(store / name) in note for note in found["notes"])
    assert part not in found["missing"]
    assert not any("rebuild" in row["command"] for row in found["tables"]["next"])


def test_parts_and_damage_are_notes_and_no_errors(golden: Golden, tmp_path: Path) -> None:
    root = shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "store")
    first, second, _ = sorted((root / "commitlog").iterdir())
    second.unlink()
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text("{")
    found = told(root)

    assert f"bytes from {131072} to {262144} of the log are missing" in found["notes"]
    assert any("config/topics.json can't be read" in note for note in found["notes"])
    shutil.rmtree(root / "commitlog")
    without = told(root)
    assert ("the log", 0) == (without["missing"][0], without["segments"])
    assert first.name == "0" * 20


def test_an_archive_is_described_as_far_as_its_messages_go(golden: Golden, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "copy.tar", "w") as archive:
        archive.add(golden("5.3.3/tx").root, "store")
    found = told(tmp_path / "copy.tar")

    assert (["archive"], 2, None) == tuple(found[name] for name in ("kinds", "segments", "log_end"))
    assert any("Unpack it" in note for note in found["notes"])


@pytest.mark.usefixtures("no_pauses")
def test_a_store_by_url_is_described_without_a_download(golden: Golden, server: ObjectStore) -> None:
    root = golden("5.3.3/propcrc").root
    here, there = told(root), told(store_at(server.upload(root, "described"), server.settings))
    same = ("log_begin", "log_end", "first_time", "last_time", "messages", "queues", "segments", "index_files")

    assert [here[name] for name in same] == [there[name] for name in same]


def test_the_command_ends_with_what_to_ask_next_and_is_one_screen(golden: Golden) -> None:
    root = golden("5.3.3/tx").root
    called = call("info", root)

    assert ExitCode.DONE == called.code
    assert len(called.lines) <= 30
    assert f"  commitlog check {root}  # whether log, queues and index agree" == called.lines[-1]
    (report,) = call("info", root, "--json").rows
    assert "commitlog-info/1" == report["schema"]
    rows = read_messages(root, columns=["physical_offset"]).read_all().num_rows
    assert 0 < report["messages"] <= rows


def test_a_place_without_a_store_is_wrong_usage(tmp_path: Path) -> None:
    assert ExitCode.USAGE == call("info", tmp_path / "nowhere").code
    assert ExitCode.USAGE == call("info", tmp_path).code, "a directory with nothing of a store"
    with pytest.raises(StoreNotFoundError):
        Info().ask(tmp_path / "nowhere")
