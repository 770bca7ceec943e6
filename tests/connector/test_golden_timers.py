# SPDX-License-Identifier: Apache-2.0
"""The views of timers have the same rows through Spark, which `tests/store_core/views/test_timers.py` judges."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

from store_core import read_view
from tests.golden_stores import GoldenStore, stores_of_kind, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connector.stores import Reader

pytestmark = [pytest.mark.spark, pytest.mark.golden]


@pytest.mark.parametrize("golden", stores_of_kind("timer"), ids=attrgetter("name"))
def test_timers_are_those_of_the_files(read: Reader, golden: GoldenStore, golden_directory: Path) -> None:
    root = unpack(golden, golden_directory).root

    for view in ("timerlog", "timerwheel"):
        assert read_view(root, view).read_all().equals(read(root, view=view).toArrow())
