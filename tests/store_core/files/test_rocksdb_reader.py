# SPDX-License-Identifier: Apache-2.0
"""A RocksDB is read without being touched, and no file in it ends the reader."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import CorruptDatabaseError, StoreError, StoreNotFoundError, UnsupportedStoreError
from store_core.files import rocksdb_process, rocksdb_reader
from store_core.files.rocksdb_reader import RocksdbReader
from tests.budgets import budget
from tests.store_core.files.rocksdbs import make_rocksdb

ENTRIES = {b"key %02d" % number: b"value" * number for number in range(30)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_rocksdb(tmp_path_factory.mktemp("rocksdb") / "db", {"default": ENTRIES, "offset": {b"a": b"b"}})


@pytest.fixture
def database(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "db")


def read(database: Path) -> dict[bytes, bytes]:
    with RocksdbReader.open(database) as reader:
        return {key: value for piece in reader.entries("default") for key, value in piece.items()}


def state(directory: Path) -> list[tuple[object, ...]]:
    """Return all that a directory listing shows, times of the directory included."""
    found = [(path, path.stat()) for path in (directory, *sorted(directory.iterdir()))]
    return [(path.name, each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_nlink) for path, each in found]


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_all_entries_are_read_and_nothing_in_the_directory_changes(database: Path) -> None:
    before = state(database), content(database)

    assert ENTRIES == read(database)
    assert before == (state(database), content(database))


def test_a_directory_that_may_not_be_written_is_read(database: Path) -> None:
    for path in (*database.iterdir(), database):
        path.chmod(0o555 if path.is_dir() else 0o444)

    assert ENTRIES == read(database)


def test_what_is_only_in_the_database_s_own_log_is_read(tmp_path: Path) -> None:
    database = make_rocksdb(tmp_path / "db", {"default": ENTRIES}, is_flushed=False)
    for table in database.glob("*.sst"):
        pytest.fail(f"{table} is there: the entries were flushed")

    assert ENTRIES == read(database)


def test_ranges_limits_and_single_values(database: Path) -> None:
    with RocksdbReader.open(database) as reader:
        some = [key for piece in reader.entries("default", b"key 05", b"key 09") for key, _ in piece.items()]
        few = [piece.count for piece in reader.entries("default", limit=7)]

        assert [b"key 05", b"key 06", b"key 07", b"key 08"] == some
        assert [7] == few
        assert b"b" == reader.get("offset", b"a")
        assert reader.get("offset", b"") is None


def test_answers_come_in_pieces(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, Any]] = []
    with RocksdbReader.open(database) as reader:
        scan = reader._scan

        def in_threes(family: str, lower: bytes, upper: bytes, limit: int) -> rocksdb_reader.Entries:
            answers.append({})
            return scan(family, lower, upper, min(limit, 3))

        monkeypatch.setattr(reader, "_scan", in_threes)
        found = {key: value for piece in reader.entries("default") for key, value in piece.items()}

    assert ENTRIES == found
    assert 11 == len(answers)


def test_tables_that_a_broker_deletes_meanwhile_stay_readable(database: Path) -> None:
    with RocksdbReader.open(database) as reader:
        for path in database.iterdir():
            path.unlink()

        assert 30 == sum(piece.count for piece in reader.entries("default"))


# ---- what is not whole


@pytest.mark.parametrize(("missing", "told"), [("CURRENT", "CURRENT"), ("MANIFEST", "MANIFEST-"), ("sst", ".sst")])
def test_a_copy_that_lacks_a_file_is_named(database: Path, missing: str, told: str) -> None:
    next(path for path in database.iterdir() if missing in path.name).unlink()

    with pytest.raises(CorruptDatabaseError, match="not all of it was copied") as error:
        read(database)
    assert told in str(error.value)
    assert str(database) in str(error.value)
    assert "commitlog-rocksdb-" not in str(error.value)
    assert str(error.value) == str(pickle.loads(pickle.dumps(error.value)))  # noqa: S301


def test_a_manifest_that_was_cut_is_named_or_names_what_it_lost(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = next(database.glob("MANIFEST-*"))
    whole = manifest.read_bytes()
    for size in range(0, len(whole), len(whole) // 6):
        manifest.write_bytes(whole[:size])
        caplog.clear()

        try:
            found = read(database)
        except CorruptDatabaseError as error:
            assert "is damaged, or not all of it was copied" in str(error)  # noqa: PT017 -- either outcome is right
        else:
            assert ENTRIES == found or "does not name" in caplog.text


def test_a_directory_without_a_database_is_not_found(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(StoreNotFoundError, match="there is no RocksDB"):
            read(directory)


def test_without_the_library_the_error_says_what_to_install(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_reader, "find_spec", lambda _: None)

    with pytest.raises(UnsupportedStoreError, match="pip install 'rocksdict>="):
        read(database)


# ---- hostile files


def test_an_abort_of_the_library_is_an_error(database: Path) -> None:
    with RocksdbReader.open(database) as reader:
        os.kill(reader._process.pid, signal.SIGABRT)

        with pytest.raises(CorruptDatabaseError, match="ended by signal 6"):
            list(reader.entries("default"))


def test_a_process_that_hangs_is_an_error(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RocksdbReader.open(database) as reader:
        monkeypatch.setattr(rocksdb_reader, "_SILENCE", 0.05)
        os.kill(reader._process.pid, signal.SIGSTOP)

        with pytest.raises(CorruptDatabaseError, match=r"silent for 0\.05 seconds"):
            list(reader.entries("default"))
        with pytest.raises(CorruptDatabaseError, match="ended by signal 9"):
            list(reader.entries("default"))


def test_the_process_may_take_no_more_memory_than_a_sound_database_needs(database: Path) -> None:
    linked = (path for path in database.iterdir() if rocksdb_reader._LINKED.fullmatch(path.name))
    files = sum(path.stat().st_size for path in (*linked, database / "CURRENT"))
    with RocksdbReader.open(database) as reader:
        limits = Path(f"/proc/{reader._process.pid}/limits").read_text()

    most = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max address space"))
    assert int(most) == rocksdb_process._MOST_MEMORY + 2 * files


def test_a_named_pipe_among_the_files_is_not_waited_for(database: Path) -> None:
    os.mkfifo(database / "000099.log")

    assert ENTRIES == read(database)


def test_a_value_larger_than_any_of_rocketmq_is_refused(tmp_path: Path) -> None:
    size = rocksdb_process._LARGEST_ENTRY
    database = make_rocksdb(tmp_path / "db", {"default": {b"k": bytes(size)}})

    with pytest.raises(CorruptDatabaseError, match=f"expected less than {size}"):
        read(database)


@given(st.data())
@budget(0.1)
def test_damaged_files_are_errors_or_entries(made: Path, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:  # noqa: ANN401
    database = shutil.copytree(made, tmp_path_factory.mktemp("damaged") / "db")
    path = database / data.draw(st.sampled_from(sorted(path.name for path in made.iterdir() if path.stat().st_size)))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)

    try:
        found = read(database)
    except StoreError as error:
        assert str(database) in str(error)  # noqa: PT017 -- either outcome is right
    else:
        assert found.items() <= ENTRIES.items()
    shutil.rmtree(database.parent)
