# SPDX-License-Identifier: Apache-2.0
"""A store in a tar archive, or with compressed segments, is read as a plain one; what may not be there is refused."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from store_core import read_messages, read_view, store_at
from store_core.answers import bill, check
from store_core.errors import SegmentLayoutError, SegmentVanishedError, StoreNotFoundError, UnsupportedStoreError
from store_core.files import archive_listing, segment_source
from store_core.files.names import CODECS
from store_core.snapshot.log import Log
from store_core.store.read.ranges import task_groups
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.views.view_columns import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from tests.golden_stores import UnpackedStore
    from tests.object_store import ObjectStore


MODES: Final = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
ENDS: Final = (".tar", ".tar.gz", ".tar.zst", ".tar.lz4", ".tgz")
NAME: Final = f"commitlog/{0:020d}"


@pytest.fixture
def root(golden: Callable[[str], UnpackedStore], tmp_path: Path) -> Path:
    """Provide a copy of a store with several segments, closed."""
    shutil.copytree(golden("4.3.0/tx").root, tmp_path / "store")
    (tmp_path / "store" / "lock").touch()
    return tmp_path / "store"


def rows(path: Path | str, **options: object) -> pa.Table:
    return read_messages(path, **options).read_all()  # type: ignore[arg-type]  # options of several types


def written(path: Path, data: bytes) -> Path:
    """Write an archive, compressed as its name says."""
    codec = {**CODECS, ".tgz": "gzip"}.get(path.suffix)
    if codec is None:
        path.write_bytes(data)
        return path
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), codec) as stream:
        stream.write(data)
    return path


def packed(root: Path, path: Path, name: str = "broker-a/store", form: int = tarfile.PAX_FORMAT) -> Path:
    """Pack a store as `tar` does."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as tar:
        tar.add(root, name)
    return written(path, data.getvalue())


def of_members(path: Path, *members: tarfile.TarInfo) -> Path:
    """Write an archive of some members, whose content is zeros."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)) if member.isreg() else None)
    return written(path, data.getvalue())


def member(
    name: str = NAME,
    size: int = 4096,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    headers: dict[str, str] | None = None,
) -> tarfile.TarInfo:
    """Make a header."""
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size if kind == tarfile.REGTYPE else 0, kind, link
    made.pax_headers = headers or {}
    return made


@pytest.mark.parametrize("end", ENDS)
def test_archive_reads_as_the_store(root: Path, end: str, tmp_path: Path) -> None:
    path = packed(root, tmp_path / f"copy{end}")
    for mode in MODES:
        options = {"mode": mode, "max_records_per_batch": 50, "min_partitions": 5}
        assert rows(root, **options, use_consume_queues="never") == rows(path, **options)
    assert rows(root, columns=["segment", "physical_offset"]) == rows(path, columns=["segment", "physical_offset"])


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", [".", "store", "x" * 90 + "/" + "y" * 120])
def test_names_and_formats_of_archives_do_not_matter(root: Path, form: int, name: str, tmp_path: Path) -> None:
    if form == tarfile.USTAR_FORMAT and len(name) > 100:
        name = name[:60]
    assert rows(root) == rows(packed(root, tmp_path / "copy.tar", name, form))
    assert rows(root) == rows(packed(root / "commitlog", tmp_path / "log.tar", ".", form))


@pytest.mark.parametrize("is_url", [False, True])
def test_what_lies_beside_an_archive_is_not_of_its_store(root: Path, is_url: bool, server: ObjectStore) -> None:
    path: StorePaths = packed(root, root / "backup.tar")
    if is_url:
        server.upload(root, "store")
        path = store_at(f"s3://{server.bucket}/store/backup.tar", server.settings)

    for view in ("topics", "consumer_offsets", "index", "segments"):
        with pytest.raises(UnsupportedStoreError, match=r"backup\.tar is an archive"):
            read_view(path, view)
    notes = bill(path).to_json()["notes"]
    assert any("is an archive, of which only the messages are read" in note for note in notes)


@pytest.mark.parametrize("end", [".tar", ".tar.zst"])
def test_archive_in_an_object_store(root: Path, end: str, tmp_path: Path, server: ObjectStore) -> None:
    path = packed(root, tmp_path / f"copy{end}")
    server.put(path.name, path.read_bytes())
    url = f"s3://{server.bucket}/{path.name}"
    assert rows(root) == rows(url, storage=server.settings)


def test_archive_that_is_replaced_while_it_is_read_is_an_error(root: Path, tmp_path: Path, server: ObjectStore) -> None:
    path = packed(root, tmp_path / "copy.tar")
    server.put(path.name, path.read_bytes())
    url = f"s3://{server.bucket}/{path.name}"
    reader = read_messages(url, storage=server.settings, max_records_per_batch=10)
    reader.read_next_batch()
    server.put(path.name, path.read_bytes() + bytes(512))
    with pytest.raises(SegmentVanishedError, match="replaced"):
        reader.read_all()


@pytest.mark.parametrize("change", [lambda path: os.utime(path, ns=(1, 1)), lambda path: os.truncate(path, 600)])
def test_archive_on_a_disk_that_is_replaced_or_cut_before_it_is_read_is_an_error(
    root: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = packed(root, tmp_path / "copy.tar")
    reader = read_messages(path)
    change(path)
    with pytest.raises(SegmentVanishedError, match="was there when the read was planned, and"):
        reader.read_all()


def test_plain_archive_has_a_partition_for_each_segment_and_a_compressed_one_has_one(
    root: Path, tmp_path: Path
) -> None:
    segments = len(list((root / "commitlog").iterdir()))
    plans = [plan_ranges(packed(root, tmp_path / f"copy{end}"), ReadOptions()) for end in (".tar", ".tar.gz")]
    assert [segments, 1] == [len(task_groups(plan.ranges)) for plan in plans]
    assert segments > 1


def test_segments_of_a_compressed_archive_are_expanded_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(root, tmp_path / "copy.tar.zst")
    expected = rows(root)
    reader = read_messages(path)
    opened: list[object] = []
    streams = segment_source.ExpandedStream

    def counted(segment: Segment) -> object:
        opened.append(segment)
        return streams(segment)

    monkeypatch.setattr(segment_source, "ExpandedStream", counted)
    assert expected == reader.read_all()
    assert 1 == len(opened)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kept", [0.1, 0.6, 0.9])
def test_archive_that_is_cut_off_is_named(root: Path, end: str, kept: float, tmp_path: Path) -> None:
    path = packed(root / "commitlog", tmp_path / f"copy{end}", "commitlog")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(SegmentLayoutError, match=r"copy\.t.*is not a whole"):
        rows(path)


@pytest.mark.parametrize("end", [".tar", ".tar.gz"])
def test_archive_without_its_end_is_named(root: Path, end: str, tmp_path: Path) -> None:
    plain = packed(root / "commitlog", tmp_path / "all.tar", "commitlog")
    with tarfile.open(plain) as tar:
        last = tar.getmembers()[-1]
    path = written(tmp_path / f"copy{end}", plain.read_bytes()[: last.offset_data + -(-last.size // 512) * 512])
    with pytest.raises(SegmentLayoutError, match="neither a header nor the end"):
        rows(path)


HOSTILE: Final = {
    "absolute": ([member(f"/etc/{NAME}")], "leads out of the archive"),
    "absolute segment": ([member(f"/{0:020d}")], "leads out of the archive"),
    "parent": ([member(f"a/../../{NAME}")], "leads out of the archive"),
    "symbolic link": ([member(kind=tarfile.SYMTYPE, link="/etc/passwd")], "is a link"),
    "hard link": ([member(), member(f"commitlog/{4096:020d}", kind=tarfile.LNKTYPE, link=NAME)], "is a link"),
    "device": ([member(kind=tarfile.CHRTYPE)], "is a device"),
    "pipe": ([member(kind=tarfile.FIFOTYPE)], "is a device"),
    "twice": ([member(), member()], "is there twice"),
    "holes": ([member(headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})], r"holes|not a whole"),
    "map of holes": ([member(headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "9"})], r"holes|not a whole"),
    "size of its own": ([member(headers={"size": str(3 << 30)})], r"has 3221225472 bytes|not a whole"),
    "two logs": ([member(f"a/{NAME}"), member(f"b/{NAME}")], "has several logs, such as in"),
}


@pytest.mark.parametrize("end", [".tar", ".tar.zst"])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_may_not_be_in_an_archive_is_refused(name: str, end: str, tmp_path: Path) -> None:
    members, expected = HOSTILE[name]
    with pytest.raises(SegmentLayoutError, match=expected):
        rows(of_members(tmp_path / f"hostile{end}", *members))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_header_that_wants_much_memory_is_refused(kind: bytes, tmp_path: Path) -> None:
    header = tarfile.TarInfo("name")
    header.type, header.size = kind, 1 << 32
    path = written(tmp_path / "bomb.tar.gz", header.tobuf(tarfile.GNU_FORMAT) + bytes(8 << 20))
    with pytest.raises(SegmentLayoutError, match="has a header of 4294967808 bytes"):
        rows(path)


def header(kind: bytes, size: int, *, goes_on: bool = False) -> bytes:
    """Make a header, of a map of holes that goes on or not."""
    made = tarfile.TarInfo("name")
    made.type, made.size = kind, size
    data = bytearray(made.tobuf(tarfile.GNU_FORMAT))
    data[482] = goes_on
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data)


def pax_value(key: str, size: int) -> bytes:
    """Make a pax record, of at least a size, in whole blocks."""
    rest = f" {key}=".encode() + b"v" * size
    length = next(length for length in range(len(rest), len(rest) + 20) if len(f"{length}") + len(rest) + 1 == length)
    record = f"{length}".encode() + rest + b"\n"
    return record + bytes(-len(record) % 512)


_HALF: Final = 600 << 10
_HOLES: Final = b"".join(b"%011o\0%011o\0" % (at, 1) for at in range(21)) + b"\1" + bytes(7)
BOMBS: Final = {
    "names": header(tarfile.GNUTYPE_LONGNAME, _HALF) + b"n" * _HALF,
    "links": header(tarfile.GNUTYPE_LONGLINK, _HALF) + b"n" * _HALF,
    "pax": header(tarfile.XHDTYPE, len(pax_value("key", _HALF))) + pax_value("key", _HALF),
    "map of holes": header(tarfile.GNUTYPE_SPARSE, 0, goes_on=True) + _HOLES * 4096,
}


@pytest.mark.parametrize("name", BOMBS)
def test_headers_that_extend_one_another_are_refused_before_they_are_held(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "bomb.tar.gz", BOMBS[name] * 2 + bytes(1024))
    with pytest.raises(
        SegmentLayoutError, match=r"has a header of \d{7} bytes, at position \d+: expected at most 1048576"
    ):
        rows(path)


def test_headers_for_all_members_are_refused_when_they_are_many(tmp_path: Path) -> None:
    values = [pax_value(f"key{number}", 400) for number in range(70)]
    pairs = (header(tarfile.XGLTYPE, len(value)) + value + header(tarfile.REGTYPE, 0) for value in values)
    with pytest.raises(SegmentLayoutError, match="sets more than 64 values for all members"):
        rows(written(tmp_path / "bomb.tar.gz", b"".join(pairs) + bytes(1024)))


def test_very_many_segments_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_listing, "_MOST_SEGMENTS", 3)
    path = of_members(tmp_path / "many.tar", *(member(f"commitlog/{number * 4096:020d}") for number in range(5)))
    with pytest.raises(SegmentLayoutError, match="more than 3 segments"):
        rows(path)


def test_names_are_noted_as_far_as_a_person_reads(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(30):
        (root / "commitlog" / f"{number:02d}{'n' * 240}").write_text("x")
    rows(packed(root, tmp_path / "copy.tar"))
    assert 20 == caplog.text.count("ignored 'broker-a/store/commitlog/")
    assert "ignored 10 other files" in caplog.text
    assert "n" * 200 not in caplog.text


def test_headers_that_lead_backwards_end(tmp_path: Path) -> None:
    header = bytearray(member(size=0).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (2**96 - 1024).to_bytes(12, "big")  # -1024, in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(SegmentLayoutError, match=r"negative|not a whole"):
        rows(written(tmp_path / "back.tar", bytes(header) * 3 + bytes(1024)))


def test_bomb_is_refused_before_all_of_it_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_listing, "_MOST_EXPANDED", 1 << 20)
    path = of_members(tmp_path / "bomb.tar.gz", member("other", 2 << 20))
    with pytest.raises(SegmentLayoutError, match="expands to more than 1048576 bytes"):
        rows(path)


def test_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_listing, "_MOST_MEMBERS", 4)
    path = of_members(tmp_path / "many.tar", *(member(f"file-{number}", 1) for number in range(6)))
    with pytest.raises(SegmentLayoutError, match="more than 4 members"):
        rows(path)


def test_random_bytes_are_named(tmp_path: Path) -> None:
    with pytest.raises(SegmentLayoutError, match="not a whole tar archive"):
        rows(written(tmp_path / "random.tar", b"no archive" * 1000))


def test_archive_of_something_else_has_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"else\.tar"):
        rows(of_members(tmp_path / "else.tar", member("consumequeue/topic/0/00000000000000000000")))


def test_dledger_log_in_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="DLedger"):
        rows(of_members(tmp_path / "dledger.tar", member(f"store/dledger-n0/data/{0:020d}")))


def test_what_is_no_segment_is_noted(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "commitlog" / "notes.txt").write_text("x")
    (root / "commitlog" / f"{77:020d}").mkdir()
    rows(packed(root, tmp_path / "copy.tar"))
    assert 2 == caplog.text.count("ignored 'broker-a/store/commitlog/")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("store.zip", "unzip store.zip -d DIRECTORY"),
        ("a copy.tar.xz", "tar -xJf 'a copy.tar.xz' -C DIRECTORY"),
        ("store.tar.bz2", "tar -xjf store.tar.bz2 -C DIRECTORY"),
        ("store.7z", "7z x store.7z -oDIRECTORY"),
        (f"{0:020d}.xz", f"xz -dk {0:020d}.xz"),
    ],
)
@pytest.mark.parametrize("ask", [rows, check], ids=["rows", "check"])
def test_what_another_program_has_to_unpack_is_named_with_the_command(
    name: str, command: str, ask: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"PK")

    with pytest.raises(UnsupportedStoreError) as caught:
        ask(tmp_path / name)

    assert f"{name} is packed in a way that is not read" in str(caught.value)
    assert f"`{command}`" in str(caught.value)


def test_the_same_is_said_of_a_file_in_another_storage(server: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "store.zip").write_bytes(b"PK")
    server.upload(tmp_path / "up", "packed")

    with pytest.raises(UnsupportedStoreError, match=r"unzip store\.zip -d DIRECTORY"):
        rows("s3://bucket/packed/store.zip", storage=server.settings)


def compress(path: Path, end: str) -> Path:
    """Put a compressed file in the place of a plain one."""
    target = path.with_name(path.name + end)
    with pa.CompressedOutputStream(pa.OSFile(str(target), "wb"), CODECS[end]) as stream:
        stream.write(path.read_bytes())
    path.unlink()
    return target


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


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
