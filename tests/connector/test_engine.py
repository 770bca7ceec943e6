# SPDX-License-Identifier: Apache-2.0
"""Jobs in parts have the same result on Spark as without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.engine import SparkEngine
from store_core.answers import Salvage
from store_core.snapshot.store import Store
from store_core.store.parts import InProcess
from store_core.store.rebuild import segment_part
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.queue_compare import LogBounds
from tests.builders import BODY_AT, LogBuilder
from tests.store_core.files.store_kinds import every_file
from tests.store_core.rebuilt import golden_rules, index_files, queue_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.golden_stores import Golden

pytestmark = pytest.mark.spark


def test_parts_and_groups_are_merged_in_their_order(spark: SparkSession) -> None:
    @dataclass(frozen=True)
    class Squares:  # here, because Spark's workers can't import this module
        count: int

        def plan(self) -> Sequence[int]:
            return range(self.count)

        def run(self, part: int) -> int:
            return part**2

        def merge(self, partials: Iterable[int]) -> list[int]:
            return list(partials)

    @dataclass(frozen=True)
    class Remainders:
        count: int
        groups: int

        def plan(self) -> Sequence[int]:
            return range(self.count)[::-1]

        def run(self, part: int) -> Iterator[tuple[tuple[int, int], str]]:
            yield (part % self.groups, part), f"{part}"

        def gather(self, pieces: Iterable[tuple[tuple[int, int], str]]) -> Iterator[str]:
            found = [piece for _, piece in pieces]
            if found:
                yield " ".join(found)

        def merge(self, partials: Iterable[str]) -> list[str]:
            return list(partials)

    engine = SparkEngine(spark)

    for count in (9, 0):
        assert InProcess().run(Squares(count)) == engine.run(Squares(count))
        assert InProcess().run_grouped(Remainders(count, 4)) == engine.run_grouped(Remainders(count, 4))


@pytest.mark.golden
@pytest.mark.parametrize("name", ["4.3.0/tx", "4.9.7/lmq", "5.3.3/bcq", "5.3.3/delay", "5.3.3/propcrc"])
def test_spark_rebuilds_and_compares_as_this_process_does_and_rocketmq_did(
    name: str,
    spark: SparkSession,
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = golden(name)
    monkeypatch.setattr(segment_part, "_SMALLEST_PART", 5000)
    rules = golden_rules(store)
    here, there = InProcess(), SparkEngine(spark)
    rebuilt = rebuild_by(here, store.root, tmp_path / "here", rules)
    bounds = LogBounds(int(store.segments[0].name))

    assert rebuilt == rebuild_by(there, store.root, tmp_path / "there", rules)
    for made in ("here", "there"):
        assert queue_files(store.root) == queue_files(tmp_path / made)
        assert index_files(store.root) == index_files(tmp_path / made)
    assert rebuild_by(here, store.root, tmp_path / "none", rules, compared=bounds) == rebuild_by(
        there, store.root, tmp_path / "none", rules, compared=bounds
    )


def test_spark_salvages_a_log_as_this_process_does(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(60)))
    for record in log.records[5::20]:
        log.flip(record.physical_offset + BODY_AT, 3)
    store = log.write(tmp_path / "store")
    here = Salvage(tmp_path / "new").on(InProcess(), Store(store))
    made = every_file((tmp_path / "new").rename(tmp_path / "here"))
    there = Salvage(tmp_path / "new").on(SparkEngine(spark), Store(store))

    assert 57 == here.found.records
    assert here.to_json() == there.to_json()
    assert [*made.values()] == [*every_file(tmp_path / "new").values()]
