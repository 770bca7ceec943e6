# SPDX-License-Identifier: Apache-2.0
"""A stream follows the live disk of a broker; both are killed, and each message is there once and in order."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store_core import read_messages
from tests.connector.processes import descendants, kill, wait_for_end
from tests.interop.followed_store import COLUMNS
from tests.interop.live_broker import LiveBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

ROOT: Final = Path(__file__).parents[2]
MESSAGES: Final = 200_000
PER_SECOND: Final = 700.0
SEGMENT_SIZE: Final = 4 << 20
KILLS: Final = 20
BROKER_KILLS: Final = (6, 13)
LONGEST: Final = 8.0
"""Seconds after its start before which a query is killed while there is no broker."""


class Query:
    """A query that follows a store in a process of its own."""

    def __init__(self, store: Path, directory: Path) -> None:
        self.output = directory / "output"
        self.errors = directory / "errors"
        self._paths = [str(store), str(self.output), str(directory / "checkpoint")]

    def follow(self, batches: int, delay: float) -> None:
        """Follow, and be killed with all processes some seconds after a number of batches."""
        with self._started("follow") as process:
            out = cast("IO[bytes]", process.stdout)
            for _ in range(batches):
                assert out.readline().startswith(b"batch "), self.last_errors
            select.select([out], [], [], delay)
            below = descendants(process.pid)
            kill([process.pid, *below])
            wait_for_end(below)
            out.read()

    def drain(self) -> None:
        """Read what is there."""
        with self._started("drain") as process:
            assert process.communicate()[0].endswith(b"end\n"), self.last_errors

    def _started(self, way: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.interop.followed_store", *self._paths, way]
        settings = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "spark-conf")}
        with self.errors.open("a") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=settings, cwd=ROOT)  # noqa: S603 -- ours
        assert cast("IO[bytes]", process.stdout).readline() == b"begin\n", self.last_errors
        return process

    @property
    def last_errors(self) -> str:
        return self.errors.read_text()[-2000:]

    def batches(self) -> list[pa.Table]:
        return [pq.read_table(path) for path in sorted(self.output.glob("*.parquet"))]


def acknowledged(producer: subprocess.Popen[bytes]) -> Iterator[int]:
    """Yield how many messages are acknowledged, until all are."""
    return (int(line) for line in cast("IO[bytes]", producer.stdout))


@pytest.mark.timeout(3600)
def test_each_message_is_read_once_and_in_order_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(53)  # noqa: S311 -- reproducible, not secret
    with LiveBroker(tmp_path / "broker", SEGMENT_SIZE) as broker:
        producer = broker.produce(MESSAGES, PER_SECOND)
        next(acknowledged(producer))
        query = Query(broker.store, tmp_path)
        sizes: list[int] = []
        for number in range(KILLS):
            if number in BROKER_KILLS:
                broker.kill()
                query.follow(0, chance.uniform(0, LONGEST))
                broker.start()
            query.follow(chance.randrange(4), chance.uniform(0, 2))
            sizes.append(sum(batch.num_rows for batch in query.batches()))
        assert list(acknowledged(producer))[-1] == MESSAGES
        query.drain()
        read = pa.concat_tables(query.batches())
        log = read_messages(broker.store, columns=COLUMNS.split(",")).read_all()

    assert not (query.output / "differs").exists()
    assert read.num_rows >= MESSAGES
    assert len(set(sizes)) > KILLS // 2
    assert rows(read) == rows(log)[: read.num_rows]
    keys = {key for found in read["keys"].to_pylist() for key in found or ()}
    assert keys >= {f"n{number}" for number in range(MESSAGES)}
    assert len(list((broker.store / "commitlog").iterdir())) > 10


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.select(COLUMNS.split(",")).to_pylist()]
