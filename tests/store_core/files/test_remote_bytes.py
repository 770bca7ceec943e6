# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file arrive in their places, in memory that is used again, and are never those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core.errors import SegmentVanishedError
from store_core.files import remote_bytes
from store_core.files.remote_bytes import RemoteBytes, RemoteFile, RemoteReader
from store_core.files.storage import StorageSettings, parse_url
from tests.object_store import BUCKET, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_further_stream_of_a_file_that_was_replaced_is_refused(server: ObjectStore) -> None:
    reader = RemoteReader(put(server, "replaced", bytes(_PAGE)))
    server.put("replaced", b"x" * _PAGE)
    reader._idle.clear()
    with pytest.raises(SegmentVanishedError, match="ETag"):
        reader.read_into(0, np.empty(10, np.uint8))


def test_further_stream_of_a_file_that_grew_is_refused(server: ObjectStore) -> None:
    reader = RemoteReader(put(server, "grown", bytes(_PAGE)))
    server.put("grown", bytes(_PAGE + 1))
    reader._idle.clear()
    with pytest.raises(SegmentVanishedError, match="it has 4097 bytes, not 4096"):
        reader.read_into(0, np.empty(10, np.uint8))
