# SPDX-License-Identifier: Apache-2.0
"""What a store is, told without a scan: its parts, its state, and the release that served it last."""

from __future__ import annotations

import os
import re
import shutil
import struct
import tarfile
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages, read_view, store_at
from store_core.answers import Info, check, retention
from store_core.command.exit_code import ExitCode
from store_core.errors import StoreAccessError, StoreNotFoundError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.files.store_path import path_of
from store_core.format.columns import iso_time
from store_core.format.release import RELEASES, Release
from store_core.format.salvage import find_log_end
from store_core.snapshot.likely_release import LikelyRelease, evidence_of_old_parser
from store_core.snapshot.log import Log
from tests.builders import LogBuilder, blank_record
from tests.golden_stores import GoldenStore, find_golden_store, stores_of_kind, unpack
from tests.store_core.command.calls import call
from tests.store_core.fakes import forbid_listing
from tests.store_core.queue.index_builders import index_service, request, rules
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from collections.abc import Callable
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
    assert last["physical_offset"] + last["store_size"] == found["log_end"]
    if is_torn:
        return  # the rows are those after the recovery, which the queues do not know
    assert iso_time(last["store_timestamp"]) == found["last_time"]
    assert found["messages"] is not None
    assert found["messages"] <= sum(int(row["properties"].get("INNER_NUM") or 1) for row in queued)


@pytest.mark.parametrize("made", [*map(find_golden_store, ("5.3.3/tx", "5.3.3/delay")), *stores_of_kind("dledger")])
@pytest.mark.parametrize("is_torn", [False, True])
def test_where_a_log_begins_and_ends_is_what_retention_says(
    *, made: GoldenStore, is_torn: bool, tmp_path: Path
) -> None:
    root = unpack(made, tmp_path).root
    last = read_messages(root, columns=["physical_offset", "store_size", "body"]).read_all().to_pylist()[-1]
    assert last["body"]
    if is_torn:  # a byte of the last body, to which a queue leads
        place = Log.of(root, reads_entries=True).segment_at(last["physical_offset"])
        assert place is not None
        path, begin = path_of(place.path), last["physical_offset"] - place.start_offset
        data = bytearray(path.read_bytes())
        data[data.index(last["body"], begin)] ^= 1
        path.write_bytes(data)
    found, foreseen = told(root), retention(root).to_json()

    assert (last["physical_offset"] + last["store_size"] == found["log_end"]) is not is_torn
    assert [foreseen[each] for each in ("log_begin", "log_end", "first_store_timestamp")] == [
        found[each] for each in ("log_begin", "log_end", "first_time")
    ]


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


@pytest.mark.parametrize(("view", "part"), [("consumequeue", "consume queues"), ("index", "the key index")])
def test_a_file_in_the_place_of_a_directory_is_told_in_the_words_of_a_check(
    tmp_path: Path, view: str, part: str
) -> None:
    log = LogBuilder(4096)
    log.append(b"one")
    root = log.write(tmp_path / "store", preallocated=1)
    (root / view).write_text("a file")
    found = told(root)

    with pytest.raises(StoreAccessError, match=r"expected a directory with .*, found a file of 6 bytes") as raised:
        read_view(root, view)
    assert 0 == read_view(root, view, fail_on_data_loss=False).read_all().num_rows
    assert str(raised.value) in found["notes"]
    assert part not in found["missing"]
    with pytest.raises(StoreAccessError, match=re.escape(str(raised.value))):
        check(root)


@pytest.mark.parametrize(("name", "part"), [("consumequeue", "consume queues"), ("index", "the key index")])
def test_what_may_not_be_read_is_told_and_not_called_missing(
    name: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_viewed_store(tmp_path / "store")
    forbid_listing(monkeypatch, name)
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
    assert "copy of a part" in without["kinds"]
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


CONFIG: Final = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=10, max_index_num=1000)


def served_by(root: Path, *releases: Release, tags: bool = True) -> Path:
    for release in releases:
        with DefaultMessageStore.open(root, replace(CONFIG, release=release)) as store:
            for number in range(20):
                message = Message("orders", b"body", tags=f"T{number % 3}" if tags else None, keys=[f"k{number}"])
                assert store.put_message(message).is_ok
    return root


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("earlier", [(), ("4.9",), ("5.5",)])
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_leaves_is_no_finding_whoever_served_the_store_before(
    release: Release, earlier: tuple[Release, ...], tags: bool, tmp_path: Path
) -> None:
    root = served_by(tmp_path / "store", *earlier, release, tags=tags)

    report = check(root)

    assert {} == report.counts
    assert report.found.release in LikelyRelease.of(root).releases
    assert report.found.release_why in report.to_text().replace("\n  ", " ")


@pytest.mark.golden
@pytest.mark.parametrize("name", ["4.3.0/tx", "4.9.7/lmq", "5.3.3/tx", "5.5.0/tx"])
def test_a_copy_without_the_files_of_its_root_has_no_findings(name: str, golden: Golden, tmp_path: Path) -> None:
    store = golden(name)
    for part in ("commitlog", "consumequeue", "index"):
        shutil.copytree(store.root / part, tmp_path / "store" / part)

    assert {} == check(tmp_path / "store").counts
    assert store.golden.release in LikelyRelease.of(tmp_path / "store").releases


def test_rules_that_explain_more_are_followed_if_no_file_tells_the_release(tmp_path: Path) -> None:
    root = served_by(tmp_path / "store", "5.5", "5.3")
    for path in [*root.iterdir()]:
        if path.name not in ("commitlog", "consumequeue", "index"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    report = check(root)

    assert {"index_missing": 20} == check(root, release="5.5").counts
    assert {} == report.counts


def test_a_directory_that_is_no_store_tells_nothing(tmp_path: Path) -> None:
    assert sorted(RELEASES) == sorted(LikelyRelease.of(tmp_path / "none").releases)


SIZE = 1024
USUAL = 40 + 4 * 5_000_000 + 20 * 20_000_000


def note(path: Path) -> str | None:
    return evidence_of_old_parser(path, Log.of(path).segments)


# ------------------------------------------------------------------------------------------------------- golden stores


@pytest.mark.golden
def test_a_store_tells_the_parser_of_its_release(golden_store: UnpackedStore) -> None:
    assert (golden_store.golden.release == "4.3") is (note(golden_store.root) is not None)


@pytest.mark.golden
def test_no_part_of_a_store_says_another_release(golden_store: UnpackedStore) -> None:
    """The log alone shows less, but correctly."""
    is_old = golden_store.golden.release == "4.3"
    for part in [golden_store.root / "commitlog", *golden_store.segments]:
        assert note(part) is None or is_old


# ----------------------------------------------------------------------------------------------------------- the index


def indexed(root: Path, release: str, keys: int = 40, *, entries: int = 100, slots: int = 10) -> Path:
    """Write a store with a log of one record, and an index by the rules of a release; return its newest file."""
    log = LogBuilder(SIZE)
    log.append(b"x")
    log.write(root)
    service = index_service(root / "index", rules(slots, entries, release=release), OsFileSystem())
    for number in range(keys):
        service.build_index(request(100 * number, f"k{number}"))
    service.flush()
    service.close()
    return max((root / "index").iterdir())


@pytest.mark.parametrize("keys", [1, 2])
def test_entries_that_share_no_slot_tell_nothing(tmp_path: Path, keys: int) -> None:
    indexed(tmp_path, "4.3", keys, slots=1000)

    assert note(tmp_path) is None


def test_an_empty_newest_index_file_leaves_the_word_to_the_one_before(tmp_path: Path) -> None:
    path = indexed(tmp_path, "4.3", 24, entries=25)
    path.with_name("99991231235959999").write_bytes(bytes(path.stat().st_size))

    assert f"{path} counts 24 slots" in str(note(tmp_path))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return an index file for each release, each in a store of its own."""
    return {release: indexed(tmp_path_factory.mktemp("index"), release) for release in ("4.3", "5.3")}


@given(data=st.data(), release=st.sampled_from(["4.3", "5.3"]))
def test_a_damaged_index_raises_nothing_and_says_nothing_of_a_later_store(
    written: dict[str, Path], data: st.DataObject, release: str
) -> None:
    path = written[release]
    original = path.read_bytes()
    stored = bytearray(original)
    numbers = st.one_of(st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]), st.integers(-(2**31), 2**31 - 1))
    for at in data.draw(st.lists(st.one_of(st.integers(0, 9), st.integers(0, len(stored) // 4 - 1)), max_size=8)):
        struct.pack_into(">i", stored, 4 * at, data.draw(numbers))
    path.write_bytes(stored[: data.draw(st.integers(0, len(stored)))])
    found = note(path.parent.parent)
    path.write_bytes(original)

    assert found is None or release == "4.3"


@pytest.mark.parametrize("size", [0, 39, 40, 8440, 1 << 15, USUAL, 1 << 40])
@pytest.mark.parametrize("word", [0, 1, -1, 2**31 - 1])
def test_a_file_that_only_claims_to_have_entries_tells_nothing(tmp_path: Path, size: int, word: int) -> None:
    path = indexed(tmp_path, "4.3")
    for count in (-1, 2, 1000, 2**31 - 1):
        with path.open("wb") as file:
            file.write(struct.pack(">4q2i", 1, 1, 0, 900, count - 1, count) + struct.pack(">i", word) * 10_000)
            file.truncate(size)
        assert note(tmp_path) is None


def test_what_is_no_index_file_says_nothing(tmp_path: Path) -> None:
    path = indexed(tmp_path, "4.3")
    path.unlink()
    makers: list[Callable[[], None]] = [partial(os.mkfifo, path), path.mkdir, partial(path.symlink_to, path)]
    for make, remove in zip(makers, (path.unlink, path.rmdir, path.unlink), strict=True):
        make()
        assert note(tmp_path) is None
        remove()
    path.parent.rmdir()
    path.parent.write_bytes(b"")
    assert note(tmp_path) is None


# -------------------------------------------------------------------------------------------------------- blank records


def closed(tmp_path: Path, filler: Callable[[bytes], bytes]) -> Path:
    """Write a store with a closed segment; its filler is made from the record before the blank one."""
    log = LogBuilder(SIZE, start_offset=SIZE)
    last = [log.append(b"x" * 200) for _ in range(3)][-1]
    room = 2 * SIZE - log.end
    path = log.write(tmp_path) / "commitlog" / f"{SIZE:020d}"
    data = path.read_bytes()
    record = data[last.physical_offset - SIZE : last.end - SIZE]
    rest = filler(record)[8:room]
    blank = blank_record(room)
    path.write_bytes(data[: SIZE - room] + blank[:8] + rest.ljust(room - 8, b"\0"))
    return path


def test_a_blank_record_that_repeats_the_record_before_it_tells(tmp_path: Path) -> None:
    path = closed(tmp_path, bytes)

    assert f"in {path} the bytes after the blank record" in str(note(tmp_path))


def shifted(record: bytes) -> bytes:
    """Return the record with another physical offset, as truncating the log may leave it."""
    return record[:28] + struct.pack(">q", SIZE + 3 * len(record)) + record[36:]


@pytest.mark.parametrize(
    "filler",
    [
        lambda _: b"",
        lambda record: record[:28] + bytes(8) + record[36:],
        lambda record: record[:28] + b"\xff" * 8 + record[36:],
        lambda record: record[:28] + b"\x7f" * 8 + record[36:],
        lambda record: record[:60] + b"other",
        shifted,
    ],
)
def test_other_bytes_after_a_blank_record_tell_nothing(tmp_path: Path, filler: Callable[[bytes], bytes]) -> None:
    closed(tmp_path, filler)

    assert note(tmp_path) is None


@pytest.mark.parametrize("tail", [b"\xcb\xd4\x31\x94", b"\0\0\0\x08\xcb\xd4\x31\x94", b"\0" * 7])
def test_bytes_that_look_like_blank_records_tell_nothing(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(tail * 20_000)

    assert note(path) is None
