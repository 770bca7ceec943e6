# SPDX-License-Identifier: Apache-2.0
"""A rebuild of a golden store makes the files that RocketMQ wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.store.rebuild.queue_compare import LogBounds
from tests.connector.rebuilding import differing, rebuild_here
from tests.store_core.rebuilt import golden_rules, index_files, queue_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.golden

WITH_A_TORN_UNIT = ("torn-header", "torn-zero")
"""RocketMQ was killed after it had indexed the record that was damaged afterwards."""

WITH_BIT_MAPS = "ext"
"""Its extension contains bit maps of consumers that are not in the log, so addresses differ."""

AGED = "aged"
"""Its first segments are deleted; queues and index still have files from that time."""

LIVE = "live"
"""Its broker was killed, and put the two keys of a record into the index once more."""


def test_a_rebuild_gives_the_files_that_rocketmq_wrote(golden_store: UnpackedStore, tmp_path: Path) -> None:
    report = rebuild_here(golden_store.root, tmp_path, golden_rules(golden_store))
    scenario = golden_store.golden.scenario
    expected, found = queue_files(golden_store.root), queue_files(tmp_path)
    differing = {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)}

    assert report.gap_count == 0 or scenario in (AGED, "aged-rebuilt")
    assert not report.refused_count
    if scenario in WITH_A_TORN_UNIT:
        assert len(differing) == 1
    elif scenario == AGED:
        assert {name for name in differing if name not in expected} == set()
    elif scenario != WITH_BIT_MAPS:
        assert set() == differing
    if scenario not in (*WITH_A_TORN_UNIT, AGED, "aged-rebuilt", LIVE):
        assert index_files(golden_store.root) == index_files(tmp_path)


def test_a_golden_store_differs_from_its_log_in_nothing_but_the_torn_unit(
    golden_store: UnpackedStore, tmp_path: Path
) -> None:
    rules = golden_rules(golden_store)
    min_offset = int(golden_store.segments[0].name)
    report = rebuild_here(golden_store.root, tmp_path / "none", rules, compared=LogBounds(min_offset))
    found = list(differing(report).values())

    assert ([{"unit_extra": 1}] if golden_store.golden.scenario in WITH_A_TORN_UNIT else []) == found
    assert (0, 2 if golden_store.golden.scenario == LIVE else 0) == report.index_differences[:2]
    assert not (tmp_path / "none").exists()
