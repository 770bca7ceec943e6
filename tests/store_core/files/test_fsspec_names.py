# SPDX-License-Identifier: Apache-2.0
"""File systems by the names that fsspec has for them: each is read, or refused by its name."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.errors import StoreError
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import UnpackedStore


@pytest.mark.parametrize("scheme", ["file://", "FILE://", "file:", "file://localhost", "local://"])
def test_names_of_the_local_disk_are_the_path(scheme: str, golden: Callable[[str], UnpackedStore]) -> None:
    root = golden("5.3.3/tx").root
    assert read_messages(root).read_all() == read_messages(f"{scheme}{root}").read_all()


def test_memory_is_read(golden: Callable[[str], UnpackedStore]) -> None:
    root = golden("5.3.3/tx").root
    assert read_messages(root).read_all() == read_messages(in_memory(root, "named")).read_all()


@pytest.mark.parametrize(
    "form", ["zip://{0}", "zip://store::file://{0}", "tar://{0}", "simplecache::file://{0}", "http://127.0.0.1:9/{0}"]
)
def test_other_names_are_refused_with_the_name(
    form: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    path = shutil.make_archive(str(tmp_path / "copy"), "zip", golden("5.3.3/tx").path, "store")
    url = form.format(path)
    with pytest.raises(StoreError) as caught:
        read_messages(url)
    assert form.split(":", maxsplit=1)[0] in str(caught.value)
