# SPDX-License-Identifier: Apache-2.0
"""Slots and entries of an index file are inferred from its chains, however few entries it has."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from store_core.files.file_system import OsOpenFile
from store_core.snapshot.index import Index
from tests.store_core.queue.index_builders import index_service, request, rules

if TYPE_CHECKING:
    import pytest


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
