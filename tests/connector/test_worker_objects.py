# SPDX-License-Identifier: Apache-2.0
"""Workers freeze their existing objects once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.reader import keep_old_objects, with_old_objects_kept

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def objects_as_before() -> Iterator[None]:
    keep_old_objects.cache_clear()
    yield
    gc.unfreeze()


def test_the_first_task_sets_aside_what_is_there_and_further_ones_nothing() -> None:
    task = with_old_objects_kept(sorted)
    first, kept = task([2, 1], reverse=True), gc.get_freeze_count()
    made: list[list[int]] = [[] for _ in range(1000)]
    second, still = task([3, 4]), gc.get_freeze_count()

    assert [[2, 1], [3, 4]] == [first, second]
    assert kept > 0
    assert still <= kept
    assert 1000 == len(made)
