# SPDX-License-Identifier: Apache-2.0
"""A store with a little of everything, and helpers to read it through Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.builders import LogBuilder, Record

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """A store on disk, and the builder that knows what is in it."""

    root: Path
    log: LogBuilder

    @property
    def records(self) -> list[Record]:
        return self.log.records

    @property
    def offsets(self) -> list[int]:
        """Physical offsets of all records, in the log's order."""
        return [record.physical_offset for record in self.records]


class Reader:
    """A short form of ``spark.read.format("commitlog")``; no option is kept from one read to the next."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def __call__(self, path: Path | str | list[str], schema: str | None = None, **options: str) -> DataFrame:
        """Load `path`, with option names as users write them."""
        reader = self.session.read.format("commitlog").options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(path if isinstance(path, list) else str(path))

    def offsets(self, path: Path | str | list[str], **options: str) -> list[int]:
        """Return the physical offsets of the rows, in the order of the result."""
        rows = self(path, columns="physical_offset", **options).collect()
        return [row.physical_offset for row in rows]


def mixed_log() -> LogBuilder:
    """Build three segments with two topics, three queues, tags, keys, IPv6 hosts, and bodies that look like records."""
    log = LogBuilder(segment_size=4096)
    for number in range(40):
        hostile = Record(f"record in a body {number}".encode(), physical_offset=log.end + 200).encode()
        log.append(
            Record(
                body=hostile if number % 5 == 0 else f"body {number}".encode() * (number % 4),
                topic="orders" if number % 3 else "Zahlungen-ü",
                queue_id=number % 2,
                properties={
                    "TAGS": "ABC"[number % 3],
                    "KEYS": f"k{number} all",
                    "UNIQ_KEY": f"uid{number}",
                    "WAIT": "true",
                }
                if number % 4
                else {},
                flag=number,
                reconsume_times=number % 3,
                born_host=("2001:db8::1", 1000) if number % 7 == 0 else ("10.1.2.3", 5555),
            )
        )
    while len(log.segments()) < 3:
        log.append(b"filler " * 10, topic="orders")
    return log
