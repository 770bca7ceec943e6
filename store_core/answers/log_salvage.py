# SPDX-License-Identifier: Apache-2.0
"""The answer `salvage`: every message of a damaged log that proves itself, into a new store or Parquet."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.answers.local_engine import local_engine
from store_core.answers.salvage_report import SalvageFacts, SalvageReport
from store_core.files.store_path import store_roots
from store_core.store.configured_store import configured_paths
from store_core.store.salvage.grades import FoundBy, PropertyCrc
from store_core.store.salvage.salvage_format import SalvageFormat
from store_core.store.salvage.salvage_output import PIECES, NewLog, SalvageOutput, write_piece
from store_core.store.salvage.salvage_plan import plan_salvage, segment_size
from store_core.store.salvage.segment_salvage import SalvagePart, SegmentSalvage
from store_core.store.salvage.tile import Tile, TileKind

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["SalvageJob", "SalvagePartial", "salvage", "salvage_by"]


@dataclass(frozen=True, slots=True)
class SalvagePartial:
    """What became of a segment.

    Attributes
    ----------
    part : SalvagePart
    tiles : tuple of Tile
    grades : Counter
        Records by how they were found and what their property CRC says.
    covered : int
        Records that a blank record covers.
    """

    part: SalvagePart
    tiles: tuple[Tile, ...]
    grades: Counter[tuple[str, str]] = field(default_factory=Counter)
    covered: int = 0


class SalvageJob:
    """Salvages a log segment by segment; see `store_core.store.parts.Job`.

    Parameters
    ----------
    source : path or sequence of paths
    output : SalvageOutput or None
        None if nothing is to be written.
    """

    def __init__(self, source: StorePaths, output: SalvageOutput | None) -> None:
        self.output = output
        self.source = str(store_roots(source)[0])
        self.parts, self.notes = plan_salvage(source)

    def plan(self) -> Sequence[SalvagePart]:
        """Return the segments."""
        return self.parts

    def run(self, part: SalvagePart) -> SalvagePartial:
        """Salvage a segment, and write its records."""
        found = SegmentSalvage(part)
        if self.output is None:
            for _ in found:
                pass
        else:
            write_piece(self.output, part.segment.start_offset, found)
        return SalvagePartial(part, tuple(found.tiles.found), found.grades, found.covered)

    def merge(self, partials: Iterable[SalvagePartial]) -> SalvageReport:
        """Make the report."""
        return _report(self, list(partials))


def salvage_by(
    engine: Engine, source: StorePaths, into: str | os.PathLike[str] | None = None, kind: str = "store"
) -> SalvageReport:
    """Salvage a log on an engine, all of whose workers see the target's directory; see `salvage`."""
    if into is None:
        return engine.run(SalvageJob(source, None))
    with SalvageOutput.of_format(Path(into), SalvageFormat.of(kind), source) as output:
        job = SalvageJob(source, output)
        report = engine.run(job)
        if output.format is SalvageFormat.STORE:
            _write_log(job, output, segment_size(source))
        output.publish()
        return report


def salvage(  # noqa: PLR0913 -- what is asked, of which store, and by how many processes
    source: StorePaths,
    into: str | os.PathLike[str] | None = None,
    kind: str = "store",
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> SalvageReport:
    """Take every message of a damaged log that proves itself, and account for every other byte.

    A message proves itself by its magic code, its place in the log, lengths that add up, and the checksum of its body:
    what reading in mode DROPMALFORMED returns. The source is only read. The target appears when all of it is on disk.

    Parameters
    ----------
    source : path or sequence of paths
        As of `store_core.read_messages`.
    into : path, optional
        Where nothing is yet; without it nothing is written, and the report says what would be salvaged.
    kind : str
        ``"store"``: a store with a new log, whose records keep everything but their physical offset. ``"parquet"``: a
        directory with a file for each segment, a row per message with its grade.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each segment.

    Returns
    -------
    SalvageReport

    Raises
    ------
    InvalidOptionError
        If the target exists, or is in the source.
    StoreError
        If the source has nothing to read.
    OSError
        If the target can't be written; nothing is there then.

    Examples
    --------
    >>> from store_core.answers import salvage
    >>> report = salvage("/data/store", "/data/salvaged")  # doctest: +SKIP
    >>> print(report.to_text())  # doctest: +SKIP
    """
    source = configured_paths(source, config)
    with local_engine(processes, on_progress) as engine:
        return salvage_by(engine, source, into, kind)


def _write_log(job: SalvageJob, output: SalvageOutput, size: int) -> None:
    """Make the new log of the pieces, segment after segment."""
    with NewLog(output.work, size) as log:
        for part in job.parts:
            piece = output.piece_path(part.segment.start_offset)
            log.append(piece)
            piece.unlink()
    shutil.rmtree(output.work / PIECES)


# ---- the report


def _store_note(store: Path) -> str:
    """Say what a new store lacks: records keep queue offset and store time, and have new physical offsets."""
    command = f"commitlog rebuild both {store} --replace"
    return (
        f"the new store has a log only: {command} builds its queues and index; give it --broker-config if the broker's "
        f"files have other sizes than RocketMQ's own"
    )


def _report(job: SalvageJob, found: list[SalvagePartial]) -> SalvageReport:
    tiles = _with_holes([tile for each in found for tile in each.tiles])
    grades: Counter[tuple[str, str]] = sum((each.grades for each in found), Counter())
    records = [tile for tile in tiles if tile.kind is TileKind.RECORDS]
    lost = [tile for tile in tiles if tile.kind is TileKind.LOST]
    output = job.output
    new_store = output.target if output is not None and output.format is SalvageFormat.STORE else None
    facts = SalvageFacts(
        source=job.source,
        begin=tiles[0].begin if tiles else 0,
        end=tiles[-1].end if tiles else 0,
        into=None if output is None else str(output.target),
        format=None if output is None else output.format.value,
        records=sum(tile.records for tile in records),
        record_bytes=_size(records),
        after_damage=sum(count for (by, _), count in grades.items() if by == FoundBy.AFTER_DAMAGE.value),
        mismatched_property_crc=sum(
            count for (_, check), count in grades.items() if check == PropertyCrc.MISMATCH.value
        ),
        covered_records=sum(each.covered for each in found),
        lost_ranges=len(lost),
        lost_bytes=_size(lost),
        missing_bytes=_size([tile for tile in tiles if tile.kind is TileKind.MISSING]),
        notes=(*job.notes, *([_store_note(new_store)] if new_store is not None else [])),
    )
    rows = {
        "lost": [{**_row(tile), "bytes": tile.end - tile.begin, "reason": tile.reason} for tile in lost],
        "ranges": [_row(tile) | {"kind": tile.kind.value, "records": tile.records} for tile in tiles],
        "grades": [
            {"found_by": by, "property_crc": check, "records": count} for (by, check), count in sorted(grades.items())
        ],
    }
    return SalvageReport.of(facts, rows)


def _row(tile: Tile) -> dict[str, object]:
    return {"begin": tile.begin, "end": tile.end}


def _size(tiles: Sequence[Tile]) -> int:
    return sum(tile.end - tile.begin for tile in tiles)


def _with_holes(tiles: list[Tile]) -> list[Tile]:
    """Add the ranges of files that are not there."""
    holes = [
        Tile(before.end, after.begin, TileKind.MISSING) for before, after in pairwise(tiles) if before.end < after.begin
    ]
    return sorted([*tiles, *holes], key=itemgetter(0))
