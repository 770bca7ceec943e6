# SPDX-License-Identifier: Apache-2.0
"""Estimates how long a cluster reads a store in an object store, what it asks for, and what limits it.

The tasks of a scan are simulated, one per segment, in the order in which Spark starts them: each waits for its first
request, and then reads at the least of what its core decodes, its connections bring and its share of the network. Each
assumption is a field of `Cluster`, and can be set: ``size_cluster.py --help``. The figures of
``docs/api/spark.md`` come from here.
"""

from __future__ import annotations

import argparse
import heapq
import random
from dataclasses import dataclass, fields
from typing import Final

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is assumed; bytes, seconds and MiB.

    Attributes
    ----------
    terabytes : float
        Size of the store, in 10^12 bytes.
    cores : int
        Tasks at a time.
    cores_per_machine : int
        Cores that share a machine's network.
    decode_mib : float
        MiB a second that one core downloads and decodes: measured, see the guide.
    connection_mib : float
        MiB a second of one connection.
    network_mib : float
        MiB a second of a machine's network.
    store_mib : float
        MiB a second that the object store gives all together; 0 for no bound.
    latency : float
        Seconds until a request is answered.
    requests : int
        Requests of one task at a time.
    request_mib : float
        Bytes of one request.
    task_seconds : float
        Seconds to start a task: schedule, open, list.
    straggler_share, straggler_factor : float
        Which part of the tasks is slower, and how much.
    segment_mib : float
        Size of a segment.
    memory_mib : float
        Memory of one task beside the JVM: measured, see the guide.
    listing_keys : int
        Keys that one listing returns.
    """

    terabytes: float = 100.0
    cores: int = 1000
    cores_per_machine: int = 16
    decode_mib: float = 195.0
    connection_mib: float = 50.0
    network_mib: float = 1490.0
    store_mib: float = 0.0
    latency: float = 0.03
    requests: int = 8
    request_mib: float = 4.0
    task_seconds: float = 0.3
    straggler_share: float = 0.01
    straggler_factor: float = 3.0
    segment_mib: float = 1024.0
    memory_mib: float = 400.0
    listing_keys: int = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """What comes out.

    Attributes
    ----------
    segments : int
    requests : int
        Of ranges; each segment's size and mark are asked for four times more.
    listings : int
    seconds : float
        Until the last task has ended.
    limit : str
        What a task waits for most.
    core_mib : float
        MiB a second of one core.
    machine_memory_gib : float
        Memory of the tasks of a machine.
    """

    segments: int
    requests: int
    listings: int
    seconds: float
    limit: str
    core_mib: float
    machine_memory_gib: float


def estimate(cluster: Cluster, seed: int = 0) -> Estimate:
    """Simulate a scan of all segments.

    Parameters
    ----------
    cluster : Cluster
    seed : int
        Chooses the slow tasks.
    """
    segments = max(1, round(cluster.terabytes * 1e12 / (cluster.segment_mib * _MIB)))
    limit, rate = min(_rates(cluster).items(), key=lambda each: each[1])
    seconds = cluster.task_seconds + cluster.latency + cluster.segment_mib / rate
    chance = random.Random(seed)  # noqa: S311 -- a simulation, the same each time
    free = [0.0] * min(cluster.cores, segments)
    for _ in range(segments):
        is_slow = chance.random() < cluster.straggler_share
        heapq.heapreplace(free, free[0] + seconds * (cluster.straggler_factor if is_slow else 1))
    return Estimate(
        segments=segments,
        requests=segments * -(-int(cluster.segment_mib * _MIB) // int(cluster.request_mib * _MIB)),
        listings=-(-segments // cluster.listing_keys) + 1,
        seconds=max(free),
        limit=limit,
        core_mib=rate,
        machine_memory_gib=cluster.cores_per_machine * cluster.memory_mib * _MIB / _GIB,
    )


def _rates(cluster: Cluster) -> dict[str, float]:
    """Return the MiB a second that each part allows one task."""
    waiting = cluster.latency + cluster.request_mib / cluster.connection_mib
    rates = {
        "the core": cluster.decode_mib,
        "its connections": cluster.requests * cluster.request_mib / waiting,
        "the machine's network": cluster.network_mib / cluster.cores_per_machine,
    }
    if cluster.store_mib:
        rates["the object store"] = cluster.store_mib / cluster.cores
    return rates


def main() -> None:
    """Print an estimate for the assumptions given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Cluster):
        kind = int if isinstance(field.default, int) else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    cluster = Cluster(**vars(parser.parse_args()))
    found = estimate(cluster)
    minutes = found.seconds / 60
    print(f"{cluster.terabytes:g} TB, {cluster.cores} cores: {minutes:.0f} minutes, limited by {found.limit}")
    print(f"{found.core_mib:.0f} MiB/s a core, {found.core_mib * cluster.cores / 1024:.0f} GiB/s in all")
    print(f"{found.segments} tasks, {found.requests} ranges, {found.listings} listings")
    print(f"{found.machine_memory_gib:.1f} GiB for the tasks of a machine of {cluster.cores_per_machine} cores")


if __name__ == "__main__":
    main()
