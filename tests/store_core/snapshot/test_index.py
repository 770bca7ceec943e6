# SPDX-License-Identifier: Apache-2.0
"""Files of a key index are read as the store that writes them finds them, also without their sizes."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.errors import SegmentVanishedError
from store_core.files.file_system import OsOpenFile
from store_core.format.java import hash_code, positive_hash
from store_core.queue.index_format import INDEX_HEADER_SIZE, SLOT_SIZE
from store_core.snapshot import index as module
from store_core.snapshot.index import BrokenChainError, Index, KeyFile
from tests.builders import patch
from tests.store_core.queue.index_builders import ALWAYS, index_service, request, rules

SIZES = rules(4, 20)
KEYS = ("a", "b", "k1")


def indexed(root: Path, *keys: str) -> KeyFile:
    """Put a key of each of some records, 100 bytes apart; return the first file."""
    index = index_service(root / "index", SIZES)
    for number, key in enumerate(keys):
        index.build_index(request(number * 100, key))
    index.close()
    return next(iter(Index(root).loaded(SIZES).files))


def link(file: KeyFile, number: int, previous: int) -> None:
    """Let an entry lead to another one."""
    patch(file.path, file.position(number + 1) - 4, previous.to_bytes(4, "big", signed=True))


@given(st.lists(st.sampled_from(KEYS), max_size=45))
def test_a_chain_leads_to_what_a_query_of_the_store_finds(keys: list[str]) -> None:
    with TemporaryDirectory() as name:
        index = index_service(Path(name) / "index", SIZES)
        for number, key in enumerate(keys):
            index.build_index(request(number * 100, key))
        index.close()
        files = Index(Path(name)).loaded(SIZES).files
        for key in KEYS:
            hashed = positive_hash(hash_code(f"T#{key}"))
            found = [offset for file in reversed(files) for offset in file.chain(hashed)]

            assert index.query_offset("T", key, 64, *ALWAYS).physical_offsets == found


@given(st.integers(1, 7), st.lists(st.integers(1, 19), max_size=8))
def test_entries_are_the_same_however_they_are_read(window: int, numbers: list[int]) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        file = indexed(Path(name), *"abcabcabcabcabcabc")
        every = file.entries(0, 20)
        patched.setattr(module, "_WINDOW", window)
        pieces = dict(file.windows())

        assert every[1 : file.stop].tobytes() == b"".join(piece.tobytes() for piece in pieces.values())
        assert all(np.array_equal(every[at : at + len(piece)], piece) for at, piece in pieces.items())
        assert np.array_equal(every[np.array(numbers, np.int64)], file.entries_at(np.array(numbers, np.int64)))
        assert every.tobytes() == pickle.loads(pickle.dumps(file)).entries(0, 20).tobytes()  # noqa: S301 -- our own


def test_a_file_reaches_from_its_first_record_to_its_last(tmp_path: Path) -> None:
    assert indexed(tmp_path, *"abc").reach == (0, 200)


@pytest.mark.parametrize(
    ("previous", "found"),
    [(3, "not before it"), (19, "not before it"), (2, "another slot")],
    ids=["circle", "backwards", "other slot"],
)
def test_a_chain_that_does_not_lead_to_earlier_entries_of_its_slot_is_broken(
    previous: int, found: str, tmp_path: Path
) -> None:
    file = indexed(tmp_path, "a", "b", "a")
    hashed = positive_hash(hash_code("T#a"))
    assert [200, 0] == list(file.chain(hashed))
    link(file, 3, previous)

    with pytest.raises(BrokenChainError, match=found):
        list(KeyFile(file.path).sized(file.slots, file.most_entries).chain(hashed))


def test_a_slot_that_leads_nowhere_is_broken(tmp_path: Path) -> None:
    file = indexed(tmp_path, "a")
    hashed = positive_hash(hash_code("T#a"))
    patch(file.path, INDEX_HEADER_SIZE + SLOT_SIZE * (hashed % file.slots), (10**6).to_bytes(4, "big"))

    with pytest.raises(BrokenChainError, match="1000000"):
        list(file.chain(hashed))


def test_a_file_that_was_cut_or_deleted_since_it_was_listed_is_gone(tmp_path: Path) -> None:
    cut, gone = indexed(tmp_path / "cut", "a"), indexed(tmp_path / "gone", "a")
    cut.path.write_bytes(cut.path.read_bytes()[:-1])
    gone.path.unlink()

    with pytest.raises(SegmentVanishedError, match=f"{cut.size - 1} bytes now"):
        list(cut.windows(1, cut.most_entries))
    with pytest.raises(SegmentVanishedError, match="it is gone"):
        gone.table()


def test_a_release_loads_files_of_its_sizes_up_to_a_directory(tmp_path: Path) -> None:
    path = indexed(tmp_path, "a").path
    path.with_name("20300101000000000").write_bytes(path.read_bytes() + b"more")
    path.with_name("20310101000000000").mkdir()
    later = path.rename(path.with_name("20320101000000000"))
    path.with_name("20290101000000000").write_bytes(later.read_bytes())
    found = Index(tmp_path).loaded(SIZES)

    assert ["20290101000000000"] == [file.path.name for file in found.files]
    assert ["20300101000000000", "20320101000000000"] == [each.name for each in found.unloaded]
    assert [True, False] == found.may_have(np.array([50, -1])).tolist()


@given(
    st.integers(1, 300), st.integers(2, 400), st.lists(st.text(st.sampled_from("abc0"), min_size=1), min_size=1),
)  # fmt: skip
@example(100, 1000, ["k"])
def test_one_geometry_is_found_whatever_the_sizes_and_keys(slots: int, entries: int, keys: list[str]) -> None:
    with TemporaryDirectory() as name:
        index = index_service(Path(name) / "index", rules(slots, entries))
        for number, key in enumerate(keys[: entries - 1]):
            index.build_index(request(number * 100, key))
        index.close()
        found = Index(Path(name)).first_sized()

    assert found is not None
    assert (slots, entries) == (found.slots, found.most_entries)


def test_a_file_is_read_and_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_service(tmp_path / "index", rules(7, 9))
    for number in range(5):
        index.build_index(request(number * 100, f"key{number}"))
    index.close()

    def refuse(*_: object) -> memoryview:
        raise AssertionError("mapped")

    monkeypatch.setattr(OsOpenFile, "mapping", refuse)
    found = Index(tmp_path).first_sized()

    assert found is not None
    assert (7, 9) == (found.slots, found.most_entries)
