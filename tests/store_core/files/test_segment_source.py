# SPDX-License-Identifier: Apache-2.0
"""Bytes of a segment, local or remote, are those of its file; what goes wrong has a name and an end."""

from __future__ import annotations

import errno
import os
import pickle
from typing import TYPE_CHECKING

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import SegmentVanishedError, StoreAccessError, StoreError, StoreNotFoundError
from store_core.files import remote_bytes
from store_core.files.remote_bytes import RemoteBytes, RemoteFile, RemoteReader
from store_core.files.segment_source import LocalBytes, Segment, open_segment
from store_core.files.storage import NO_SETTINGS, Attempts, StorageSettings, parse_url
from tests.budgets import budget
from tests.object_store import BUCKET, Faults, ObjectStore
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt


def bytes_of(segment: Segment) -> bytes:
    with open_segment(segment) as opened:
        return opened.chunk(0, segment.size).tobytes()


def segment_of(path: Path, data: bytes) -> Segment:
    path.write_bytes(data)
    return Segment(str(path), 4096, len(data))


@pytest.mark.parametrize("change", ["delete", "truncate"])
def test_a_segment_that_is_gone_or_shorter_is_named_with_the_way_on(tmp_path: Path, change: str) -> None:
    segment = segment_of(tmp_path / "s", b"some bytes")
    if change == "delete":
        (tmp_path / "s").unlink()
    else:
        (tmp_path / "s").write_bytes(b"some")

    with pytest.raises(SegmentVanishedError, match="failOnDataLoss=false") as caught:
        bytes_of(segment)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, StoreError)
    assert str(tmp_path / "s") in str(caught.value)
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 -- our own


def test_a_worker_that_does_not_see_the_directory_does_not_call_that_retention(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="Every worker has to see the store under the path that was given"):
        bytes_of(Segment(str(tmp_path / "unmounted" / "s"), 0, 1))


def test_holes_of_a_sparse_file_are_skipped_or_at_least_not_overrun(tmp_path: Path) -> None:
    with (tmp_path / "s").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"data")
        file.truncate(4 << 20)

    with open_segment(Segment(str(tmp_path / "s"), 0, 4 << 20)) as opened:
        assert 0 <= opened.next_data(0) <= 1 << 20
        assert opened.next_data((1 << 20) + 2) == (1 << 20) + 2
        assert 2 << 20 <= opened.next_data(2 << 20) <= 4 << 20


_SIZE = 5000
_DATA = np.random.default_rng(7).integers(0, 256, _SIZE, np.uint8).tobytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("packed") / "file"
    made.write_bytes(_DATA)
    return made


@pytest.fixture(scope="module")
def packed_file(path: Path) -> Iterator[LocalBytes]:
    with path.open("rb") as opened:
        yield LocalBytes(str(path), opened, _SIZE)


def packed(packed_file: LocalBytes, ranges: list[tuple[int, int]]) -> bytes:
    """Read ranges that are given as begin and size."""
    begins, sizes = np.array(ranges, np.int64).T
    return packed_file.packed(begins, sizes).tobytes()


@budget(0.5)
@given(
    gaps=st.lists(st.tuples(st.sampled_from([0, 0, 1, 7, 300]), st.integers(0, 80)), min_size=1, max_size=12),
    most=st.sampled_from([1, 13, _SIZE]),
)
def test_bytes_are_those_of_the_ranges(packed_file: LocalBytes, gaps: list[tuple[int, int]], most: int) -> None:
    at, ranges = 0, []
    for gap, size in gaps:
        ranges.append((at + gap, size))
        at += gap + size
    whole = os.pread
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", lambda descriptor, size, begin: whole(descriptor, min(size, most), begin))
        found = packed(packed_file, ranges)

    assert found == b"".join(_DATA[begin : begin + size] for begin, size in ranges)


def test_neighbours_are_read_by_one_call(packed_file: LocalBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, whole = [], os.pread

    def counted(descriptor: int, size: int, begin: int) -> bytes:
        calls.append((begin, size))
        return whole(descriptor, size, begin)

    monkeypatch.setattr(os, "pread", counted)
    packed(packed_file, [(10, 5), (15, 20), (35, 1), (40, 2)])

    assert calls == [(10, 26), (40, 2)]


def test_shorter_file_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(_DATA)
    with path.open("rb") as opened:
        os.truncate(path, 40)
        with pytest.raises(SegmentVanishedError, match=f"had {_SIZE} bytes when it was opened, and has 40 now"):
            packed(LocalBytes(str(path), opened, _SIZE), [(0, 10), (30, 20)])


@pytest.mark.parametrize("sound", [0, 5])
def test_failing_disk_is_a_named_error(packed_file: LocalBytes, sound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int, size: int, begin: int) -> bytes:
        if begin == 100 + sound:
            raise OSError(errno.EIO, "Input/output error")
        return _DATA[begin : begin + min(size, 5)]

    def fails_again(descriptor: int, buffers: list[memoryview], begin: int) -> bytes:
        return fails(descriptor, len(buffers[0]), begin)

    monkeypatch.setattr(os, "pread", fails)
    monkeypatch.setattr(os, "preadv", fails_again)
    with pytest.raises(StoreAccessError, match=f"expected to read byte {100 + sound}, found: Input"):
        packed(packed_file, [(100, 20)])


_PAGE = 1 << 12


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    """Provide a server for all tests of this module."""
    with ObjectStore() as running:
        yield running


def put(server: ObjectStore, key: str, data: bytes) -> RemoteFile:
    """Put a file into the server, and return it as it is listed."""
    server.put(key, data)
    path = parse_url(f"s3://{BUCKET}/{key}", StorageSettings.of(server.settings))
    assert path is not None
    return RemoteFile(path, len(data), 0)


def test_blocks_arrive_in_their_places_and_are_requested_ahead(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_bytes, "_BLOCK", _PAGE)
    monkeypatch.setattr(remote_bytes, "_AHEAD", 8 * _PAGE)
    data = np.random.default_rng(21).integers(0, 256, 80 * _PAGE + 100, np.uint8)
    data[20 * _PAGE : 30 * _PAGE] = 0
    with RemoteBytes(put(server, "blocks", data.tobytes()), ahead_to=data.size) as opened:
        for begin in range(0, data.size, 3 * _PAGE):
            end = min(begin + 3 * _PAGE + 10, data.size)
            assert np.array_equal(data[begin:end], opened.chunk(begin, end))
        assert np.array_equal(data[: 2 * _PAGE], opened.chunk(0, 2 * _PAGE))


def test_ranges_are_packed_and_the_last_ones_need_no_request_again(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_bytes, "_BLOCK", _PAGE)
    monkeypatch.setattr(remote_bytes, "NEAR", 100)
    monkeypatch.setattr(remote_bytes, "_MOST_KEPT", 4 * _PAGE)
    data = np.random.default_rng(22).integers(0, 256, 40 * _PAGE, np.uint8)
    begins, sizes = np.array([10, 100, 5 * _PAGE, 20 * _PAGE]), np.array([20, 30, 3 * _PAGE, 50])
    expected = np.concatenate([data[at : at + size] for at, size in zip(begins, sizes, strict=True)])
    with RemoteBytes(put(server, "packed", data.tobytes())) as opened:
        assert np.array_equal(expected, opened.packed(begins, sizes))
        before = server.faults.gets
        assert np.array_equal(expected, opened.packed(begins, sizes))
        assert np.array_equal(data[5 * _PAGE : 6 * _PAGE], opened.chunk(5 * _PAGE, 6 * _PAGE))
        assert server.faults.gets == before
        opened.packed(np.array([30 * _PAGE]), np.array([4 * _PAGE]))
        assert np.array_equal(expected, opened.packed(begins, sizes))
        assert server.faults.gets > before


@pytest.mark.parametrize(("data", "says"), [(b"x" * _PAGE, "ETag"), (bytes(_PAGE + 1), "it has 4097 bytes, not 4096")])
def test_further_stream_of_a_file_that_was_replaced_or_grew_is_refused(
    server: ObjectStore, data: bytes, says: str
) -> None:
    reader = RemoteReader(put(server, "replaced", bytes(_PAGE)))
    server.put("replaced", data)
    reader._idle.clear()
    with pytest.raises(SegmentVanishedError, match=says):
        reader.read_into(0, np.empty(10, np.uint8))


class Stream:
    """A file whose reads fail a few times, or are short."""

    def __init__(self, data: bytes, failures: int, *, is_short: bool) -> None:
        self.data, self.failures, self.is_short = data, failures, is_short

    def read_at(self, count: int, position: int) -> bytes:
        if not self.failures:
            return self.data[position : position + count]
        self.failures -= 1
        if self.is_short:
            return self.data[position : position + count - 1]
        raise OSError("connection reset")


def file(data: bytes, size: int | None = None) -> RemoteFile:
    """Put a file into memory, and return it as it is listed."""
    fsspec.filesystem("memory").pipe("/files/segment", data)
    path = parse_url("memory://files/segment", NO_SETTINGS)
    assert path is not None
    return RemoteFile(path, len(data) if size is None else size, 0)


@pytest.mark.parametrize("is_short", [False, True])
def test_range_is_read_again_after_failures(is_short: bool) -> None:
    clock = FakeClock()
    reader = RemoteReader(file(b"0123456789"), clock)
    reader._open = Stream(b"0123456789", 3, is_short=is_short)
    assert reader.read(2, 6) == b"2345"
    assert clock.slept == [0.2, 0.4, 0.8]


def test_storage_that_keeps_failing_is_an_error_after_five_attempts() -> None:
    clock = FakeClock()
    reader = RemoteReader(file(b"0123456789"), clock)
    reader._open = Stream(b"0123456789", 99, is_short=True)
    with pytest.raises(StoreAccessError, match=r"could not read 4 bytes at position 2, after 8 attempts: expected 4"):
        reader.read(2, 6)
    assert clock.slept == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


@pytest.mark.parametrize(
    ("text", "way_on"),
    [
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject: No response body.", "by the setting region"),
        ("curlCode: 35, SSL connect error: wrong version number", "scheme=http"),
    ],
)
def test_what_a_setting_mends_is_an_error_at_once_and_says_so(text: str, way_on: str) -> None:
    clock = FakeClock()
    attempts = Attempts("s3://bucket/store", NO_SETTINGS, clock)

    def fail() -> None:
        raise OSError(text)

    with pytest.raises(StoreAccessError, match=rf"{text[-15:-1]}.*{way_on}.*Check the URL") as caught:
        attempts.make("read it", fail)
    assert not clock.slept
    assert ".." not in str(caught.value)


@pytest.mark.parametrize("kind", ["limit", "short"])
def test_the_attempts_of_a_client_pass_over_this_failure(kind: str, server: ObjectStore) -> None:
    """It makes three of its own. Where it learns this, ours can go."""
    server.place("passed/over", b"x" * 1000)
    target = np.zeros(1000, np.uint8)
    with server.file_system.open_input_file(f"{server.bucket}/passed/over") as stream:
        server.faults = Faults(every=2, kinds=(kind,))
        server.faults.gets = 1
        if kind == "limit":
            with pytest.raises(OSError, match="429"):
                stream.readinto(target)
        else:
            assert target.size == stream.readinto(target)
            assert not target.all()


def test_file_of_another_size_is_not_read() -> None:
    with pytest.raises(SegmentVanishedError, match="it has 10 bytes, not 9"):
        RemoteReader(file(b"0123456789", 9))


def test_file_that_is_gone_is_named_at_once() -> None:
    listed = file(b"0123456789")
    fsspec.filesystem("memory").rm("/files/segment")
    clock = FakeClock()
    with pytest.raises(SegmentVanishedError, match="memory://files/segment"):
        RemoteReader(listed, clock)
    assert not clock.slept


@pytest.mark.parametrize("missing", [1, 3, 16, 17, 40])
@pytest.mark.parametrize("filler", [0, 255])
def test_array_that_an_answer_does_not_fill_is_a_short_read(missing: int, filler: int) -> None:
    class Short:
        """A stream that says that it filled an array whose end it did not touch."""

        def seek(self, position: int) -> None:
            assert position >= 0

        def readinto(self, target: npt.NDArray[np.uint8]) -> int:
            target[: max(target.size - missing, 0)] = filler
            return target.size

    with pytest.raises(OSError, match="expected 100 bytes"):
        remote_bytes._fill(Short(), 0, np.empty(100, np.uint8))


@pytest.mark.parametrize("size", [0, 1, 2, 16, 100])
def test_array_that_happens_to_end_with_the_mark_is_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_bytes, "token_bytes", bytes)  # zeros, as the file has
    target = np.ones(size, np.uint8)
    requests = remote_bytes._fill(pa.BufferReader(bytes(1000)), 10, target)
    assert not target.any()
    assert requests == (2 if size else 1)
