# SPDX-License-Identifier: Apache-2.0
"""Segments that were compressed as a whole are read like plain ones, beside these, and never expand without bound."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from store_core import read_messages, read_view
from store_core.errors import SegmentLayoutError, StoreNotFoundError, UnsupportedStoreError
from store_core.files import segment_source
from store_core.files.names import CODECS
from store_core.snapshot.log import Log
from store_core.views.view_columns import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import UnpackedStore
    from tests.object_store import ObjectStore

MODES: Final = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")


@pytest.fixture
def root(golden: Callable[[str], UnpackedStore], tmp_path: Path) -> Path:
    """Provide a copy of a log with several segments, as that of a closed store."""
    shutil.copytree(golden("4.3.0/tx").root / "commitlog", tmp_path / "store" / "commitlog")
    (tmp_path / "store" / "lock").touch()
    return tmp_path / "store"


def compress(path: Path, end: str) -> Path:
    """Put a compressed file in the place of a plain one."""
    target = path.with_name(path.name + end)
    with pa.CompressedOutputStream(pa.OSFile(str(target), "wb"), CODECS[end]) as stream:
        stream.write(path.read_bytes())
    path.unlink()
    return target


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def rows(path: Path | str, **options: object) -> pa.Table:
    return read_messages(path, **options).read_all()  # type: ignore[arg-type]  # options of several types


@pytest.mark.parametrize("end", [".gz", ".zst", ".lz4"])
@pytest.mark.parametrize("which", [slice(None), slice(0, 1), slice(-1, None), slice(0, None, 2)])
def test_compressed_segments_read_as_plain_ones(root: Path, end: str, which: slice) -> None:
    expected = {mode: rows(root, mode=mode) for mode in MODES}
    for path in segments(root)[which]:
        compress(path, end)
    for mode in MODES:
        options = {"mode": mode, "max_records_per_batch": 50, "min_partitions": 5}
        assert expected[mode] == rows(root, **options)


def test_compressed_segment_in_an_object_store(root: Path, server: ObjectStore) -> None:
    expected = rows(root)
    for path in segments(root):
        compress(path, ".zst")
    url = server.upload(root, "compressed")
    assert expected == rows(url, storage=server.settings)


def test_the_view_of_segments_has_compressed_ones_like_others(root: Path) -> None:
    shown = [column.name for column in VIEWS["segments"].columns if column.name not in ("segment", "path")]
    expected = read_view(root, "segments", columns=shown).read_all()
    names = [compress(path, ".zst").name for path in segments(root)]
    assert expected == read_view(root, "segments", columns=shown).read_all()
    assert names == read_view(root, "segments").read_all()["segment"].to_pylist()


def test_one_compressed_segment_by_its_name(root: Path) -> None:
    expected = rows(segments(root)[0])
    assert expected == rows(compress(segments(root)[0], ".gz"))


def test_plain_and_compressed_copy_of_one_segment_are_refused(root: Path) -> None:
    first = segments(root)[0]
    data = first.read_bytes()
    compress(first, ".gz")
    first.write_bytes(data)
    with pytest.raises(SegmentLayoutError, match="two files claim offset 0"):
        rows(root)


@pytest.mark.parametrize("end", [".gz", ".zst", ".lz4"])
@pytest.mark.parametrize("which", [0, -1])
def test_file_that_is_cut_off_is_named(root: Path, end: str, which: int) -> None:
    target = compress(segments(root)[which], end)
    target.write_bytes(target.read_bytes()[:-20])
    with pytest.raises(SegmentLayoutError, match=str(target)):
        rows(root)


def test_segment_that_expands_to_another_size_is_named(root: Path) -> None:
    first = segments(root)[0]
    first.write_bytes(first.read_bytes() + b"more")
    target = compress(first, ".zst")
    with pytest.raises(SegmentLayoutError, match=f"{target} expands to more bytes: expected"):
        rows(root)


def test_bomb_is_refused_before_it_takes_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_source, "LARGEST_SEGMENT", 1 << 20)
    last = segments(root)[-1]
    last.write_bytes(bytes(2 << 20))
    target = compress(last, ".gz")
    with pytest.raises(SegmentLayoutError, match=f"{target} expands to more than 1048576 bytes"):
        rows(root)


def test_callers_that_map_files_leave_compressed_ones_out(root: Path) -> None:
    target = compress(segments(root)[0], ".gz")
    assert any(str(target) in note for note in Log.of(root).notes)
    for path in segments(root)[1:]:
        path.unlink()
    with pytest.raises(StoreNotFoundError):
        Log.of(root)


@pytest.mark.parametrize("which", [slice(0, 1), slice(1, 2), slice(-1, None)])
def test_callers_that_answer_for_the_whole_log_refuse_compressed_ones(root: Path, which: slice) -> None:
    (target,) = (compress(path, ".zst") for path in segments(root)[which])
    with pytest.raises(UnsupportedStoreError, match=f"{target} is compressed: expected"):
        Log.of(root, packed="refused")


def test_the_error_of_a_compressed_segment_counts_the_others(root: Path) -> None:
    first, _ = (compress(path, ".gz") for path in segments(root))
    with pytest.raises(UnsupportedStoreError, match=f"{first} is compressed, and so is 1 more segment:"):
        Log.of(root, packed="refused")


def test_a_compressed_segment_that_is_given_by_its_name_is_refused(root: Path) -> None:
    target = compress(segments(root)[0], ".gz")
    for compressed in ("refused", "left out"):
        with pytest.raises(UnsupportedStoreError, match=f"{target} is compressed"):
            Log.of(target, packed=compressed)
