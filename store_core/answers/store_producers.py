# SPDX-License-Identifier: Apache-2.0
"""The answer `producers`: clocks, duplicates, order and sizes of what producers sent."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow.compute as pc

from store_core.answers.limits import TOP
from store_core.answers.local_engine import local_engine
from store_core.answers.producing.key_findings import KeyFindings, order_findings, unique_findings
from store_core.answers.producing.key_pieces import KeyPieces, from_bytes, to_bytes
from store_core.answers.producing.producers_report import ProducersFacts, ProducersReport
from store_core.answers.producing.send_scan import SendScan, SendTotals
from store_core.answers.scanning.log_buckets import percentiles
from store_core.answers.scanning.message_scan import Scanned
from store_core.store.configured_store import configured_paths
from store_core.store.least_value import check_least
from store_core.store.rebuild.spill import RunReader, RunSpill, SpilledRun

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from store_core.answers.scanning.group_table import GroupTable
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.read.ranges import ReadRange

__all__ = ["ProducersJob", "producers", "producers_by"]

_GROUP_BYTES: Final = 512 << 20
"""Bytes of the log for which there is a group of keys: what is in memory at once, at most about as much again."""

_TOTALS: Final = "totals"
_FINDINGS: Final[dict[str, Callable[[Iterable[Any], int], KeyFindings]]] = {
    "sharding": order_findings,
    "unique": unique_findings,
}

Piece: TypeAlias = "Scanned[SendTotals] | bytes | SpilledRun"


class PieceKey(NamedTuple):
    """Group, kind, and the place of the part in the log."""

    group: int
    kind: str
    begin: int


@dataclass(frozen=True)
class ProducersJob:
    """Gathers totals and keys range by range, then the keys of each group; a `store_core.store.parts.GroupedJob`.

    Attributes
    ----------
    scan : SendScan
    top : int
        Rows of each table.
    spill_root : Path or None
        Where keys wait to be gathered; None if the engine carries them.
    """

    scan: SendScan
    top: int
    spill_root: Path | None = None

    @property
    def groups(self) -> int:
        """One for the totals, and others for keys."""
        size = sum(each.end - each.begin for each in self.scan.ranges)
        return 1 + max(-(-size // _GROUP_BYTES), 1)

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.scan.plan()

    def run(self, part: ReadRange) -> Iterator[tuple[PieceKey, Piece]]:
        """Read a range; yield its keys, then its totals."""
        scanned = self.scan.run(part)
        pieces = scanned.found.keys.divided(self.groups - 1)
        scanned.found.keys = KeyPieces()  # the totals travel without them
        with nullcontext() if self.spill_root is None else RunSpill(self.spill_root) as spill:
            for group, kind, table in pieces:
                data = to_bytes(table)
                yield PieceKey(1 + group, kind, part.begin), data if spill is None else spill.put(data)
        yield PieceKey(0, _TOTALS, part.begin), scanned

    def gather(self, pieces: Iterable[tuple[PieceKey, Piece]]) -> Iterator[Scanned[SendTotals] | KeyFindings]:
        """Yield totals as they are, and what the keys of a group show."""
        found: dict[str, list[Any]] = {}
        with RunReader() as reader:
            for key, piece in pieces:
                if isinstance(piece, Scanned):
                    yield piece
                else:
                    found.setdefault(key.kind, []).append(from_bytes(reader.read(piece)))
        for kind, tables in found.items():
            yield _FINDINGS[kind](tables, self.top)

    def merge(self, partials: Iterable[Scanned[SendTotals] | KeyFindings]) -> ProducersReport:
        """Make the report."""
        totals: list[Scanned[SendTotals]] = []
        findings: list[KeyFindings] = []
        for each in partials:
            totals.append(each) if isinstance(each, Scanned) else findings.append(each)
        return _report(self, totals, findings)


def producers_by(engine: Engine, store: StorePaths, top: int = TOP) -> ProducersReport:
    """Look at producers on an engine; see `producers`."""
    check_least(1, top=top)
    scan = SendScan(store)
    with _scratch(engine) as directory:
        return engine.run_grouped(ProducersJob(scan, top, None if directory is None else Path(directory)))


def producers(
    store: StorePaths,
    top: int = TOP,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> ProducersReport:
    """Say what a broker can't tell of producers: skewed clocks, messages sent twice, wrong order, sizes.

    Only sends count, but for sizes: copies that brokers make, such as retries, have the times and keys of their
    originals. Duplicates and order are exact: keys are divided by their hashes into groups, one for each 512 MiB of the
    log, that are looked at one after the other. Meanwhile they wait in scratch files, of about a seventh of the log, in
    the system's directory for temporary files. Percentiles are from counts in buckets, and at most 0.8 % too low.

    Parameters
    ----------
    store : path or sequence of paths
        As of `store_core.read_messages`.
    top : int
        Rows of each table.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes, on_progress
        As of `store_core.answers.bill`.

    Raises
    ------
    StoreError
        If there is nothing to read, or `top` is less than 1.
    OSError
        If scratch files can't be written.

    Examples
    --------
    >>> from store_core.answers import producers
    >>> report = producers("/data/store")  # doctest: +SKIP
    >>> report.found.duplicate_keys  # doctest: +SKIP
    """
    store = configured_paths(store, config)
    with local_engine(processes, on_progress) as engine:
        return producers_by(engine, store, top)


def _scratch(engine: Engine) -> AbstractContextManager[str | None]:
    """Provide a directory for keys, if this process would otherwise have to keep all of them in memory."""
    return tempfile.TemporaryDirectory(prefix="commitlog-keys-") if engine.keeps_pieces else nullcontext()


# ---- the report


def _report(
    job: ProducersJob, totals: Sequence[Scanned[SendTotals]], findings: Sequence[KeyFindings]
) -> ProducersReport:
    found, counts = job.scan.merge(totals)
    keys = reduce(lambda one, other: one.joined(other, job.top), findings, KeyFindings())
    skews = found.skews.table()
    is_ahead = pc.less(skews["bucket"], 0)
    facts = ProducersFacts(
        store=job.scan.store,
        messages=counts.messages,
        sends=found.sends,
        unique_keys=found.unique,
        duplicate_keys=keys.duplicate_keys,
        duplicate_sends=keys.duplicate_sends,
        sharding_keys=found.sharding,
        inversions=keys.inversions,
        spread_keys=keys.spread_keys,
        ahead=pc.sum(skews.filter(is_ahead)["messages"]).as_py() or 0,
        damaged_ranges=counts.damaged_ranges,
        damaged_bytes=counts.damaged_bytes,
        notes=(*job.scan.notes, *_left_out(found.skews, "producers"), *_left_out(found.sizes, "topics")),
    )
    hosts = [row | {"sends": row["messages"]} for row in _spreads(found.skews, "host", (1, 50, 99), job.top)]
    tables = {"hosts": [{name: row[name] for name in row if name != "messages"} for row in hosts]}
    tables["sizes"] = [
        {name: row[name] for name in row if name != "ahead"}
        for row in _spreads(found.sizes, "topic", (50, 90, 99), job.top)
    ]
    return ProducersReport.of(
        facts, tables | {"duplicates": keys.duplicates, "inverted": keys.inverted, "spread": keys.spread}
    )


def _left_out(groups: GroupTable, what: str) -> tuple[str, ...]:
    if not groups.left_out:
        return ()
    return (
        f"there are too many {what} for all of them: {groups.left_out['messages']:,} messages are in no percentile",
    )


def _spreads(groups: GroupTable, name: str, ranks: tuple[int, ...], most: int) -> list[dict[str, Any]]:
    """Return least, percentiles and most of the names with the most messages."""
    table = groups.table()
    total = table.group_by([name]).aggregate([("messages", "sum"), ("least", "min"), ("most", "max")])
    total = total.rename_columns([name, "messages", "least", "most"])
    rows: list[dict[str, Any]] = (
        total.sort_by([("messages", "descending"), (name, "ascending")]).slice(0, most).to_pylist()
    )
    for row in rows:
        mine = table.filter(pc.equal(table[name], row[name]))
        buckets, counts = (mine[each].to_numpy() for each in ("bucket", "messages"))
        found = percentiles(buckets.astype(np.int32), counts, ranks)
        row["ahead"] = int(counts[buckets < 0].sum())
        bounded = (min(max(value, row["least"]), row["most"]) for value in found)
        row |= {f"p{rank}": value for rank, value in zip(ranks, bounded, strict=True)}
    return rows
