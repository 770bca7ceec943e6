# SPDX-License-Identifier: Apache-2.0
"""The sample store, and where it can't be unpacked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.sample import orders_store
from store_core.errors import StoreAccessError

if TYPE_CHECKING:
    from pathlib import Path


def test_each_call_unpacks_a_store(tmp_path: Path) -> None:
    assert tmp_path / "new" / "orders" / "store" == orders_store(tmp_path / "new")
    assert orders_store() != orders_store()


@pytest.mark.parametrize("below", ["", "x/y"])
def test_a_file_in_place_of_the_directory_is_named_with_what_to_do(tmp_path: Path, below: str) -> None:
    target = tmp_path / "start.py" / below
    (tmp_path / "start.py").touch()

    text = rf"^{re.escape(str(target))}: expected a directory .*, found Not a directory at .*\. Give another directory"
    with pytest.raises(StoreAccessError, match=text):
        orders_store(target)
    assert (tmp_path / "start.py").is_file()


def test_a_place_where_nothing_can_be_made_is_named_with_the_reason() -> None:
    with pytest.raises(StoreAccessError, match=r"^/proc/x: .* found No such file or directory at /proc/x\."):
        orders_store("/proc/x")
