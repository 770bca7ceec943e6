# SPDX-License-Identifier: Apache-2.0
"""The answer `salvage`: every message of a damaged log that proves itself, into a new store or Parquet."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from store_core.answers.answer import Answer, function_of, opt
from store_core.answers.plots import Plot, Strip, Tone, lanes_of
from store_core.answers.report import Report, ReportSchema, command_words, fact, number, shared, table, text
from store_core.format.words import agreeing, counted
from store_core.store.parts import EachPart
from store_core.store.salvage_tiles import FoundBy, PropertyCrc, SalvageFormat, Tile, TileKind

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine
    from store_core.store.segment_salvage import SalvageOutput, SalvagePart, SegmentSalvage


@dataclass(frozen=True)
class Salvage(Answer["SalvageReport"]):
    """Take every sound message out of a damaged log, and say what every other byte is.

    STORE is only read. The exit code is 0 if nothing is lost, and 5 if something is.
    """

    NAME: ClassVar = "salvage"
    TAKES_SEVERAL: ClassVar = False
    EXAMPLES: ClassVar = (
        "commitlog salvage /data/store",
        "commitlog salvage /data/store --into /data/salvaged",
        "commitlog salvage /data/store --into /data/rows --format parquet",
    )

    into: str | os.PathLike[str] | None = opt(
        None, "Write what is sound to this path, where nothing is yet. Without it nothing is written.", metavar="PATH"
    )
    kind: SalvageFormat = opt(
        SalvageFormat.STORE,
        "store: one with a new log. parquet: a directory of files, a row per message with its grade.",
        flag="--format",
        choices=SalvageFormat,
    )

    def on(self, engine: Engine, store: Store) -> SalvageReport:
        """Salvage segment by segment; all workers see the target, which appears when all of it is on disk."""
        from store_core.files.store_path import store_roots
        from store_core.snapshot.log import Log
        from store_core.store.new_directory import places_beside
        from store_core.store.segment_salvage import PIECES, NewLog, SalvageOutput, plan_salvage

        source = str(store_roots(store.paths)[0])
        if self.into is None:
            parts, notes = plan_salvage(store.paths)
            return _report(source, notes, None, engine.run(SalvageJob(parts, None)))
        with SalvageOutput(*places_beside(Path(self.into), "salvage", store.paths), self.kind) as output:
            parts, notes = plan_salvage(store.paths)
            report = _report(source, notes, output, engine.run(SalvageJob(parts, output)))
            if output.format is SalvageFormat.STORE:
                with NewLog(output.work, Log.of(store.paths).usual_size) as log:
                    for part in parts:
                        piece = output.piece_path(part.segment.start_offset)
                        log.append(piece)
                        piece.unlink()
                shutil.rmtree(output.work / PIECES)
            output.publish()
            return report


salvage = function_of(Salvage)


@dataclass(frozen=True)
class SalvageJob(EachPart["SalvagePart", "SegmentSalvage"]):
    """Salvages a log segment by segment."""

    output: SalvageOutput | None  # None if nothing is to be written

    def run(self, part: SalvagePart) -> SegmentSalvage:
        """Salvage a segment, and write its records."""
        from store_core.store.segment_salvage import SegmentSalvage, write_piece

        found = SegmentSalvage(part)
        if self.output is None:
            for _ in found:
                pass
        else:
            write_piece(self.output, part.segment.start_offset, found)
        return found


# ---- the report


def _store_note(store: Path) -> str:
    """Say what a new store lacks: records keep queue offset and store time, and have new physical offsets."""
    command = f"commitlog rebuild both {store} --replace"
    return (
        f"the new store has a log only: {command} builds its queues and index; give it --config if the broker's "
        f"files have other sizes than RocketMQ's own"
    )


def _report(
    source: str, notes: Sequence[str], output: SalvageOutput | None, found: list[SegmentSalvage]
) -> SalvageReport:
    tiles = _with_holes([tile for each in found for tile in each.tiles])
    grades: Counter[tuple[str, str]] = sum((each.grades for each in found), Counter())
    records = [tile for tile in tiles if tile.kind is TileKind.RECORDS]
    lost = [tile for tile in tiles if tile.kind is TileKind.LOST]
    new_store = output.target if output is not None and output.format is SalvageFormat.STORE else None
    facts = SalvageFacts(
        source=source,
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
        notes=(*notes, *([_store_note(new_store)] if new_store is not None else [])),
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
    return sorted([*tiles, *holes], key=lambda tile: tile.begin)


@dataclass(frozen=True, slots=True)
class SalvageFacts:
    """The facts of a salvage."""

    source: str = fact("the store root")
    begin: int = fact("physical offset of the log's first byte")
    end: int = fact("physical offset one past the last byte of its last segment")
    into: str | None = fact("where the records went; null if nothing was written")
    format: str | None = fact("`store` or `parquet`; null if nothing was written")
    records: int = fact("records that were verified")
    record_bytes: int = fact("their bytes")
    after_damage: int = fact("how many of them are behind damage in their segment")
    mismatched_property_crc: int = fact("how many of them differ from the checksum over the whole record")
    covered_records: int = fact(
        "sound records, not salvaged, in the rest of files that a blank record closes", tells="damaged"
    )
    lost_ranges: int = fact("ranges without a record that proved itself", tells="damaged")
    lost_bytes: int = fact("bytes in them")
    missing_bytes: int = fact("bytes of segments that are not there, between the first and the last", tells="damaged")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "lost",
        "What was lost",
        *shared("begin", "end"),
        number("bytes", "how many"),
        text("reason", "why there is no record at `begin`"),
    ),
    table(
        "grades",
        "Evidence for the records",
        text("found_by", "`chain`, or `after_damage` in their segment"),
        text("property_crc", "the checksum over the record: `none`, `match`, `mismatch`"),
        number("records", "how many; all match the checksum of their body, if they have one"),
    ),
    table(
        "ranges",
        "Every byte of the log",
        *shared("begin"),
        number("end", "physical offset; where the next range begins"),
        text(
            "kind",
            "`records`, `lost`, `missing` (no file), `filler` (the rest of a closed file), `unwritten`, "
            "`in progress` (a broker may be writing it) or `stale` (older records after the end)",
        ),
        number("records", "records in it"),
    ),
)


_TONES: Final = {
    TileKind.RECORDS.value: Tone.GOOD,
    TileKind.LOST.value: Tone.BAD,
    TileKind.MISSING.value: Tone.BAD,
    TileKind.STALE.value: Tone.WARNING,
    TileKind.IN_PROGRESS.value: Tone.WARNING,
    TileKind.FILLER.value: Tone.PLAIN,
    TileKind.UNWRITTEN.value: Tone.PLAIN,
}
"""Lanes of the plot, from top to bottom."""


class SalvageReport(Report[SalvageFacts]):
    """The result of a salvage."""

    SCHEMA: ClassVar = ReportSchema.of("salvage", 1, SalvageFacts, *_REPORT_TABLES)

    @property
    def subject(self) -> str:
        """The store root."""
        return self.found.source

    @property
    def plots(self) -> tuple[Plot, ...]:
        """What every byte of the log is, up to its end: beside a preallocated file a small log would not be seen."""
        names = ("kind", "begin", "end")
        rows = list(zip(*(self.tables["ranges"][name].to_pylist() for name in names), strict=True))
        end = self.found.end
        if len(rows) > 1 and rows[-1][0] == TileKind.UNWRITTEN.value:
            _, end, _ = rows.pop()
        return (Strip("What every byte of the log is, up to its end", self.found.begin, end, lanes_of(rows, _TONES)),)

    @property
    def next(self) -> Iterator[tuple[str, str]]:
        """How to take the records, or to check those that were taken."""
        if self.found.into is None:
            yield command_words("salvage", self.found.source, "--into", "NEW"), "takes them into a new store"
        elif self.found.format == "store":
            yield command_words("check", self.found.into), "whether the new store is whole"

    def _lines(self) -> Iterator[str]:
        found = self.found
        is_whole = not (found.lost_ranges or found.missing_bytes or found.covered_records)
        yield "nothing is lost" if is_whole else "something is lost; what is sound can be taken out"
        where = f", now in {found.into}" if found.into else "; nothing was written"
        verified = agreeing(found.records, "was verified", "were verified")
        yield f"{counted(found.records, 'record')} of {found.record_bytes:,} bytes {verified}{where}"
        if found.after_damage:
            yield f"{found.after_damage:,} of them {agreeing(found.after_damage, 'is', 'are')} behind damage"
        if found.mismatched_property_crc:
            match = agreeing(found.mismatched_property_crc, "does not match", "do not match")
            yield f"{found.mismatched_property_crc:,} of them {match} the checksum over the whole record"
        if found.covered_records:
            are, were = agreeing(found.covered_records, "is", "are"), agreeing(found.covered_records, "was", "were")
            yield (
                f"{counted(found.covered_records, 'sound record')} {are} behind a blank record that closes the file, "
                f"and {were} not salvaged: if damage put it there, overwrite its 8 bytes with zeros in a copy, and "
                f"salvage that"
            )
        if found.lost_ranges:
            yield f"lost: {found.lost_bytes:,} bytes in {counted(found.lost_ranges, 'place')}"
        if found.missing_bytes:
            yield f"missing: {found.missing_bytes:,} bytes of segments that are not there"
        yield from found.notes
