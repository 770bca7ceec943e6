# SPDX-License-Identifier: Apache-2.0
"""Look-ups in damaged stores return sound records, and lack none without a finding of `check`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import StoreError, read_messages
from tests.store_core.store.damaged_stores import damaged_archives, unpack_damaged
from tests.store_core.store.read.lookup_stores import keeps_the_promise

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVES: Final = damaged_archives()
_STEP: Final = 16


def _questions(root: Path, random: random.Random) -> list[dict[str, Any]]:
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "keys", "unique_key"]
    try:
        rows = read_messages(root, columns=columns, mode="DROPMALFORMED").read_all().to_pylist()
    except StoreError:
        return [{"topic": "TopicA"}, {"key": "k1"}]
    found: list[dict[str, Any]] = []
    for row in random.sample(rows, min(2, len(rows))):
        topic, queue_id, offset = row["topic"], row["queue_id"], row["queue_offset"]
        found += [
            {"topic": [topic]},
            {"queue_id": queue_id, "starting_offsets": {topic: {queue_id: offset}}},
            {"physical_offset": row["physical_offset"]},
        ]
        found += [{"key": key} for key in (row["keys"] or [])[-1:]]
        found += [{"unique_key": row["unique_key"], "topic": [topic]}] if row["unique_key"] else []
    return found


def _look_up(archive: Path, directory: Path) -> set[str]:
    root = unpack_damaged(archive, directory) / "store"
    drawn = random.Random(archive.name)  # noqa: S311 -- reproducible
    return {keeps_the_promise(root, **options) for options in _questions(root, drawn)}


@pytest.mark.golden
@pytest.mark.parametrize("archive", ARCHIVES[::_STEP], ids=lambda archive: archive.name.split(".")[0])
def test_a_look_up_in_a_damaged_store_keeps_the_promise(archive: Path, tmp_path: Path) -> None:
    _look_up(archive, tmp_path)


@pytest.mark.soak
def test_a_look_up_in_any_damaged_store_keeps_the_promise(tmp_path: Path) -> None:
    plans = {plan for archive in ARCHIVES for plan in _look_up(archive, tmp_path)}

    assert {"scan", "queues", "index", "position"} <= plans
