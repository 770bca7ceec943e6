# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore
from store_core.errors import (
    InvalidOptionError,
    SegmentLayoutError,
    StoreAccessError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from store_core.files.segment_source import Segment
from store_core.files.store_path import path_of
from store_core.snapshot.log import Log
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@pytest.fixture
def log() -> LogBuilder:
    """Three segments of 1,024 bytes."""
    log = LogBuilder(segment_size=1024)
    log.fill(2)
    log.append(b"last")
    return log


@pytest.fixture
def root(log: LogBuilder, tmp_path: Path) -> Path:
    return log.write(tmp_path / "store")


def names(*starts: int) -> list[str]:
    return [f"{start:020d}" for start in starts]


def listed(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    return [segment.name for segment in Log.of(path).segments]


# ------------------------------------------------------------------------------------------------ what a path can be


@pytest.mark.parametrize("form", ["{}", "{}/commitlog", "file://{}", "file://localhost{}", "file:{}", "FILE://{}"])
def test_a_root_and_its_commit_log_stand_for_the_segments_and_a_file_for_itself(root: Path, form: str) -> None:
    assert names(0, 1024, 2048) == listed(form.format(root))
    assert names(0, 1024, 2048) == listed(root)
    assert names(1024) == listed(root / "commitlog" / names(1024)[0])


def test_paths_may_be_relative(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)

    assert str(root / "commitlog" / names(0)[0]) == Log.of("store").segments[0].path


@pytest.mark.parametrize("name", ["with space", "日本 ü", "a,b", "100%20", "#?&"])
def test_paths_may_have_any_characters(log: LogBuilder, tmp_path: Path, name: str) -> None:
    assert names(0, 1024, 2048) == listed(str(log.write(tmp_path / name)))


@pytest.mark.parametrize(
    ("name", "written"),
    [("with space", "with%20space"), ("with space", "with space"), ("100%20", "100%20")],
)
def test_a_file_url_may_be_encoded_or_not(log: LogBuilder, tmp_path: Path, name: str, written: str) -> None:
    log.write(tmp_path / name)

    assert names(0, 1024, 2048) == listed(f"file://{tmp_path}/{written}")


def test_a_file_url_of_another_host_is_refused() -> None:
    with pytest.raises(StoreNotFoundError, match="another host"):
        Log.of("file://other/store")


# ------------------------------------------------------------------------------------- several commit log directories


@pytest.fixture
def spread(log: LogBuilder, tmp_path: Path) -> tuple[Path, Path]:
    """Put the log into two directories, as a store with two commit log paths has it."""
    first, second = tmp_path / "disk 1", tmp_path / "disk2"
    for directory in (first, second):
        directory.mkdir()
    for at, (name, data) in enumerate(log.segments().items()):
        ((first, second)[at % 2] / name).write_bytes(data)
    return first, second


def test_segments_of_several_paths_are_one_log_also_if_they_are_given_as_rocketmq_has_them(
    spread: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    texts = f"{spread[0]},{spread[1]}", f"{spread[0]} , {spread[1]}"
    for given in (spread, spread[::-1], [*spread, tmp_path / "empty"], *texts):
        assert names(0, 1024, 2048) == listed(given)


def test_a_path_of_several_that_is_not_there_is_named(spread: tuple[Path, Path]) -> None:
    with pytest.raises(StoreNotFoundError, match=r"no such path: '/nowhere'.*one of"):
        Log.of(f"{spread[0]},/nowhere")


def test_two_files_that_claim_the_same_offset_are_an_error_that_names_both(spread: tuple[Path, Path]) -> None:
    twin = spread[1] / names(0)[0]
    twin.write_bytes((spread[0] / twin.name).read_bytes())

    with pytest.raises(SegmentLayoutError, match="two files claim offset 0") as caught:
        Log.of(spread)
    assert str(twin) in str(caught.value)
    assert str(spread[0] / twin.name) in str(caught.value)


def test_a_file_that_is_given_twice_is_read_once(root: Path) -> None:
    listing = Log.of([root, root / "commitlog" / names(0)[0]])

    assert names(0, 1024, 2048) == [segment.name for segment in listing.segments]
    assert "given twice" in listing.notes[0]


# ------------------------------------------------------------------------------------------------- nothing to be found


@pytest.mark.parametrize("path", ["/no/such/store", "no/such/store", "x" * 5000, "nul\0byte", "a,b"])
def test_a_path_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(StoreNotFoundError, match="no such path"):
        Log.of(path)


@pytest.mark.parametrize("scheme", ["nowhere:", "x" * 300 + ":"])
def test_what_is_left_of_a_url_is_not_looked_up(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(UnsupportedStoreError, match="looks like a URL"):
        Log.of(tmp_path / scheme / "bucket" / "store")


@pytest.mark.parametrize(
    ("given", "told"), [("", "expected the path of a store, .* found ''"), ([], "no path is given")]
)
def test_no_path_at_all_is_refused(given: str | list[str], told: str) -> None:
    with pytest.raises(InvalidOptionError, match=told):
        Log.of(given)


@pytest.mark.parametrize("inside", ["", "commitlog"])
def test_a_directory_without_segments_has_nothing_to_read(tmp_path: Path, inside: str) -> None:
    (tmp_path / inside).mkdir(exist_ok=True)

    with pytest.raises(StoreNotFoundError, match="nothing to read: no segment file in"):
        Log.of(tmp_path)


# --------------------------------------------------------------------------------------------------------- wrong names


@pytest.mark.parametrize(
    "name", ["notes.txt", "0", "0" * 19, "0" * 20 + ".bak", "\N{ARABIC-INDIC DIGIT ZERO}" * 20, "9" * 20]
)
def test_a_stray_file_is_reported_and_ignored(root: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (root / "commitlog" / name).write_bytes(b"stray")

    listing = Log.of(root)

    assert names(0, 1024, 2048) == [segment.name for segment in listing.segments]
    assert f"ignored the file {root / 'commitlog' / name}" in listing.notes[0]
    assert ("larger than that of any segment" in listing.notes[0]) == (name == "9" * 20)
    assert [("store_core", logging.WARNING, listing.notes[0])] == caplog.record_tuples


def test_a_store_without_its_log_is_told_from_a_directory_of_something_else(root: Path) -> None:
    (root / "consumequeue").mkdir()
    shutil.rmtree(root / "commitlog")

    with pytest.raises(StoreNotFoundError, match=f"{root / 'commitlog'} is missing, while other parts"):
        Log.of(root)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Path.mkdir, "ignored the directory {}: a segment is a file."),
        (os.mkfifo, "ignored the entry {}: a segment is a file."),
        (
            lambda path: path.symlink_to("gone"),
            "ignored the link {}: what it points to is not there: mount that, or copy it here, and run this again.",
        ),
    ],
    ids=["directory", "pipe", "link to nowhere"],
)
def test_what_is_named_like_a_segment_and_is_no_file_is_reported_and_ignored(
    root: Path, make: Callable[[Path], None], told: str
) -> None:
    path = root / "commitlog" / names(3072)[0]
    make(path)

    listing = Log.of(root)

    assert names(0, 1024, 2048) == [segment.name for segment in listing.segments]
    assert listing.notes == (told.format(path),)


def test_a_short_number_that_rocketmq_would_load_is_told_the_name_it_should_have(root: Path) -> None:
    (root / "commitlog" / "3072").write_bytes(bytes(1024))

    assert f"rename it to {names(3072)[0]}" in Log.of(root).notes[0]


def test_a_single_file_with_a_wrong_name_is_told_the_name_it_should_have(root: Path) -> None:
    wrong = (root / "commitlog" / names(1024)[0]).rename(root / "segment.copy")

    with pytest.raises(SegmentLayoutError, match=r"20 digits or more.*written at offset 1024: rename it to 0{16}1024"):
        Log.of(wrong)


@pytest.mark.parametrize("data", [b"", b"x", bytes(200), b"no record at all " * 20])
def test_a_single_file_that_is_no_segment_is_refused_by_its_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(data)

    with pytest.raises(SegmentLayoutError, match=r"20 digits or more.*not a sound record"):
        Log.of(path)


# -------------------------------------------------------------------------------------------------------------- layout


def problems(*segments: tuple[int, int]) -> list[str]:
    found = Log(tuple(Segment(f"/log/{start:020d}", start, size) for start, size in segments)).problems
    return [str(problem) for problem in found]


@pytest.mark.parametrize(
    "segments",
    [
        [(0, 64)],
        [(0, 64), (64, 64), (128, 64)],
        [(640, 64), (704, 64)],  # aged: the first ones were deleted
        [(0, 64), (64, 30)],  # the last one was cut
    ],
)
def test_segments_that_follow_each_other_are_no_problem(segments: list[tuple[int, int]]) -> None:
    assert problems(*segments) == []


@pytest.mark.parametrize(
    ("segments", "told"),
    [
        (
            [(0, 64), (64, 64), (192, 64)],
            [
                "segment 00000000000000000128 is missing",
                "/log/00000000000000000064 (offset 64, 64 bytes)",
                "/log/00000000000000000192 (offset 192, 64 bytes)",
                "failOnDataLoss=false",
                "DROPMALFORMED",
            ],
        ),
        ([(0, 64), (128, 64)], ["00000000000000000064 is missing"]),
        ([(0, 40), (64, 64)], ["is too short: expected 64 bytes, found 40"]),
        ([(0, 64), (64, 40), (128, 64)], ["/log/00000000000000000064 is too short: expected 64 bytes, found 40"]),
        ([(0, 64), (64, 0), (128, 64)], ["is too short: expected 64 bytes, found 0"]),
        ([(0, 64), (64, 70), (128, 64)], ["begins inside it: expected 64 bytes, found 70"]),
        ([(0, 64), (64, 64), (128, 65)], ["too long: expected 64 bytes"]),
    ],
)
def test_a_segment_that_is_missing_short_or_long_is_named(segments: list[tuple[int, int]], told: list[str]) -> None:
    (problem,) = problems(*segments)

    assert [text for text in told if text not in problem] == []


def test_the_usual_size_is_told_by_sizes_and_by_names() -> None:
    assert Log((Segment("a", 0, 40), Segment("b", 64, 64))).usual_size == 64
    assert Log(()).usual_size == 0


def test_empty_files_at_the_end_are_noted_and_left_out(root: Path) -> None:
    for name in names(3072, 4096):
        (root / "commitlog" / name).touch()

    listing = Log.of(root)

    assert names(0, 1024, 2048) == [segment.name for segment in listing.segments]
    assert [f"ignored the empty file {root / 'commitlog' / name}." for name in names(4096, 3072)] == [*listing.notes]


def test_a_path_near_a_store_is_told_where_it_is(tmp_path: Path) -> None:
    for place in ("backup/one/commitlog", "backup/one/consumequeue"):
        (tmp_path / place).mkdir(parents=True)

    for place in ("backup/one/consumequeue", "backup/on", "backup", "."):
        with pytest.raises(StoreNotFoundError, match=f"A store may be at {tmp_path}/backup/one$"):
            Log.of(tmp_path / place)
    for place in ("backup/one", "backup/one/commitlog"):
        with pytest.raises(StoreNotFoundError, match=r"in commitlog/\)\.$"):
            Log.of(tmp_path / place)


def test_of_many_strange_files_the_first_are_told(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").touch()

    with pytest.raises(
        StoreNotFoundError, match=r"ignored the file .*0\.txt: .*1\.txt: .*2\.txt: .*\. \.\.\. and 2 more$"
    ):
        Log.of(tmp_path)


def test_a_missing_path_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StoreNotFoundError, match=f"no such path: '{tmp_path}/gone'$"):
        Log.of(tmp_path / "gone")
    with pytest.raises(StoreNotFoundError, match=f"no such path: 'gone'; tried '{tmp_path}/gone'$"):
        Log.of("gone")


class _OfBytes:
    """A path in bytes, as of `os.scandir(b".")`."""

    def __fspath__(self) -> bytes:
        return b"/data"


_OF_BYTES = _OfBytes()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, None),
        (5, 5),
        (b"/data", b"/data"),
        ([b"/data"], b"/data"),
        (["/data", None], None),
        (_OF_BYTES, _OF_BYTES),
    ],
)
def test_what_is_no_path_is_named_with_what_is_expected(given: Any, found: object) -> None:  # noqa: ANN401 -- no path
    with pytest.raises(InvalidOptionError) as refused:
        listed(given)
    with pytest.raises(InvalidOptionError, match=r"path: expected the path of a store, .*PathLike, found "):
        path_of(given)

    expected = "the path of a store, as text or os.PathLike, or several of them that form one log"
    assert f"path: expected {expected}, found {found!r}" == str(refused.value)


def test_a_path_below_a_directory_that_may_not_be_searched_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, stat = tmp_path / "closed" / "store", os.stat

    def denied(path: object, *more: object, **options: object) -> os.stat_result:
        if str(path) == str(hidden):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *more, **options)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(StoreAccessError, match=f"{hidden}: user .* has no permission"):
        Log.of(hidden)


def test_a_store_without_messages_is_named_as_one(tmp_path: Path) -> None:
    DefaultMessageStore.open(tmp_path / "store").close()
    with pytest.raises(
        StoreNotFoundError, match=r"store is a store without messages: no segment file in .*/commitlog$"
    ):
        Log.of(tmp_path / "store")
