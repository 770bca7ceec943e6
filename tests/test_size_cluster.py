# SPDX-License-Identifier: Apache-2.0
"""The guide to clusters has the figures of the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.size_cluster import Cluster, estimate

GUIDE = Path(__file__).parents[1] / "docs" / "api" / "spark.md"
SCENARIOS = {
    "machines with 12.5 Gbit/s": Cluster(),
    "machines with 100 Gbit/s": Cluster(network_mib=11920),
    "the same, and a store that gives 50 GB/s to all": Cluster(network_mib=11920, store_mib=50e9 / (1 << 20)),
    "machines with 12.5 Gbit/s, 5 MiB/s a connection": Cluster(connection_mib=5),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_figures_of_the_guide_are_those_of_the_simulation(name: str) -> None:
    found = estimate(SCENARIOS[name])
    assert f"| {name} | {found.seconds / 60:.0f} | {found.core_mib:.0f} | {found.limit} |" in GUIDE.read_text()
    assert f"{found.segments} tasks and {found.requests / 1e6:.0f} million requests" in GUIDE.read_text()
    assert f"{found.machine_memory_gib:.1f} GiB for a machine of 16" in GUIDE.read_text()


def test_more_cores_are_faster_until_the_store_gives_no_more() -> None:
    seconds = [estimate(Cluster(cores=cores, store_mib=50_000)).seconds for cores in (100, 500, 1000)]
    assert sorted(seconds, reverse=True)[:2] == seconds[:2]
    assert estimate(Cluster(store_mib=50_000)).limit == "the object store"


def test_few_segments_take_as_long_as_the_slowest() -> None:
    one = estimate(Cluster(terabytes=0.001, straggler_share=0))
    assert one.segments == 1
    assert one.seconds == pytest.approx(0.3 + 0.03 + 1024 / one.core_mib)
