# SPDX-License-Identifier: Apache-2.0
"""A store that no release is named for is checked by the rules of the one that served it last, as files tell."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.answers import check
from store_core.files.file_system import OsFileSystem
from store_core.format.release import RELEASES, Release
from store_core.snapshot.likely_release import LikelyRelease, evidence_of_old_parser
from store_core.snapshot.log import Log
from tests.builders import LogBuilder, blank_record
from tests.store_core.queue.index_builders import index_service, request, rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden, UnpackedStore

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


def test_a_closed_segment_tells_without_a_store(golden: Golden, tmp_path: Path) -> None:
    first = golden("4.3.0/tx").segments[0]
    copy = tmp_path / first.name
    shutil.copy(first, copy)

    assert f"in {copy} the bytes after the blank record at offset" in str(note(copy))


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


@pytest.mark.parametrize(("release", "is_noted"), [("4.3", True), ("4.9", False), ("5.3", False)])
@pytest.mark.parametrize("entries", [100, 25])
def test_an_index_tells_by_its_counts(tmp_path: Path, release: str, entries: int, is_noted: bool) -> None:
    indexed(tmp_path, release, entries=entries)

    assert is_noted is (note(tmp_path) is not None)


@pytest.mark.parametrize("keys", [1, 2])
def test_entries_that_share_no_slot_tell_nothing(tmp_path: Path, keys: int) -> None:
    indexed(tmp_path, "4.3", keys, slots=1000)

    assert note(tmp_path) is None


def test_an_index_of_the_usual_sizes_tells(tmp_path: Path) -> None:
    """The file is sparse, as brokers make it, and written by hand."""
    path = indexed(tmp_path, "4.3")
    chained = b"".join(struct.pack(">iqii", 7, 100 * number, 0, number - 1) for number in range(1, 10))
    with path.open("wb") as file:
        file.truncate(USUAL)
        file.write(struct.pack(">4q2i", 1, 1, 0, 900, 9, 10))
        file.seek(40 + 4 * 5_000_000 + 20)
        file.write(chained)

    assert f"{path} counts 9 slots" in str(note(tmp_path))


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
