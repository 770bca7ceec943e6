# SPDX-License-Identifier: Apache-2.0
"""The comparison of a ledger with the lake and the log that it is about.

Its parts are files of the lake and ranges of the log, each read again as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from store_core.answers.message_reads import PART_BYTES, messages_and_damage
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportSchema, fact, number, table, text
from store_core.errors import StoreNotFoundError
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.columnar.arrow_slices import binary_parts
from store_core.format.columnar.spans import body_crcs
from store_core.format.words import counted
from store_core.snapshot.log import Log
from store_core.store.export.lake_files import SegmentTotals, totals_by_segment
from store_core.store.parts import EachPart, Engine
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_values import OffsetBound, ReadMode
from store_core.store.read.ranges import ReadRange
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from store_core.store.export.export_ledger import ExportEntry, ExportLedger


READ: Final = ReadOptions(mode=ReadMode.PERMISSIVE, max_partition_bytes=PART_BYTES, use_consume_queues="never")
"""Bodies are read and compared with their checksums; ranges do not depend on the engine."""

_FILE_COLUMNS: Final = ("physical_offset", "store_size", "body")
_BATCH_ROWS: Final = 16384


@dataclass(frozen=True, slots=True)
class LakePart:
    """A file of the lake, as the ledger names it, and the segments that its messages may be of."""

    path: str
    messages: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proved:
    """What a part has."""

    totals: tuple[SegmentTotals, ...]
    is_lake: bool  # whether it is a file of the lake
    problem: str = ""  # what is wrong with that file by itself; empty if nothing is
    path: str = ""


@dataclass(frozen=True)
class ProofJob(EachPart[LakePart | ReadRange, Proved]):
    """Totals both sides."""

    target: Path
    options: ReadOptions  # as of the export, with the columns that are totalled

    def run(self, part: LakePart | ReadRange) -> Proved:
        """Total a file or a range."""
        if isinstance(part, ReadRange):
            batches = (messages_and_damage(batch, part)[0] for batch in read_range(part, self.options))
            return Proved(
                tuple(totals_by_segment(totals_of(batch, part) for batch in batches if batch.num_rows).values()),
                is_lake=False,
            )
        try:
            starts = np.array(part.starts, np.int64)
            found: list[SegmentTotals] = []
            with pq.ParquetFile(Path(self.target, part.path)) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(_FILE_COLUMNS)):
                    found += _of_rows(batch, starts)
            totals = list(totals_by_segment(found).values())
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            return Proved((), is_lake=True, problem=f"{type(error).__name__}: {error}", path=part.path)
        count = sum(each.messages for each in totals)
        problem = "" if count == part.messages else f"{count} messages, but the ledger has {part.messages}"
        return Proved(tuple(totals), is_lake=True, problem=problem, path=part.path)


def totals_of(messages: pa.RecordBatch, part: ReadRange) -> SegmentTotals:
    """Return the totals of messages of a range, whose bodies were compared with their checksums.

    The checksum of an empty body is 0, whatever is stored: nothing compares it.
    """
    names = ("physical_offset", "store_size", "body_crc")
    places, sizes, crcs = (messages.column(name).to_numpy().astype(np.int64) for name in names)
    is_empty = pc.equal(pc.binary_length(messages.column("body")), 0).to_numpy(zero_copy_only=False)
    return SegmentTotals.of(part.segment.start_offset, places, sizes, np.where(is_empty, 0, crcs))


def _of_rows(batch: pa.RecordBatch, starts: npt.NDArray[np.int64]) -> Iterator[SegmentTotals]:
    """Yield totals of rows of a lake, by checksums of the bodies that are really there.

    * `batch`: With `physical_offset`, `store_size` and `body`.
    * `starts`: int64, shape (n,): the starts of segments, in order; -1 stands for a segment before the first one.
    """
    places, sizes = (batch.column(name).to_numpy().astype(np.int64) for name in ("physical_offset", "store_size"))
    offsets, data, _ = binary_parts(batch.column("body"))
    bounds = offsets.astype(np.int64)
    crcs = body_crcs(np.ascontiguousarray(data), bounds[:-1], bounds[1:])
    owners = np.searchsorted(starts, places, "right") - 1
    for owner in np.unique(owners).tolist():
        mine = owners == owner
        segment = int(starts[owner]) if owner >= 0 else -1
        yield SegmentTotals.of(segment, places[mine], sizes[mine], crcs[mine])


_LOG_COLUMNS: Final = ("physical_offset", "store_size", "body", "body_crc", "magic_code", "topic")
"""Body and topic are read so that damage of theirs is left out, as of an export."""

Row = dict[str, Any]


def prove_by(engine: Engine, store: StorePaths, ledger: ExportLedger) -> ProofReport:
    """Compare a ledger with the lake, or the table, and the log that it is about, with an engine."""
    entries = ledger.entries()
    if not entries:
        raise StoreNotFoundError(f"{ledger.directory} has no entry: nothing was exported to {ledger.target}")
    ledger.check_lake()
    known = totals_by_segment(segment for each in entries for segment in each.segments)
    begin, end = entries[0].begin.physical_offset, entries[-1].end.physical_offset
    bounds = OffsetBound(begin), OffsetBound(end)
    options = replace(
        READ,
        topic=entries[0].topics,
        fail_on_data_loss=False,
        columns=_LOG_COLUMNS,
        starting_offsets=bounds[0],
        ending_offsets=bounds[1],
    )
    starts = tuple(known)
    files = [LakePart(file.path, file.messages, starts) for each in entries for file in each.files]
    ranges = plan_ranges(store, options).ranges
    parts = [*(files if ledger.table is None else ()), *ranges]
    proved = engine.run(ProofJob(parts, ledger.target, options))
    kept = {each.start_offset for each in Log.of(store, packed="read").segments}
    lake = _totals(proved, is_lake=True) if ledger.table is None else totals_by_segment(ledger.table.totals(starts))
    in_store = _totals(proved, is_lake=False)
    rows = [_compared(each, lake, in_store, kept) for each in known.values()]
    findings = [*_findings(proved, rows, lake), *_unknown_files(ledger, entries)]
    states = [row["state"] for row in rows]
    facts = ProofFacts(
        store=str(store_roots(store)[0]),
        into=str(ledger.target),
        table=entries[0].table or None,
        exports=len(entries),
        begin=begin,
        end=end,
        messages=sum(each.messages for each in known.values()),
        segments=len(known),
        proved_segments=states.count("proved"),
        expired_segments=states.count("expired"),
        differences=len(findings),
        digest=entries[-1].digest,
    )
    return ProofReport.of(facts, {"findings": findings, "segments": rows})


def _unknown_files(ledger: ExportLedger, exported: Sequence[ExportEntry]) -> Iterator[Row]:
    """Yield files that readers of the lake would take for exported ones; those of a table are its own matter."""
    if ledger.table is not None:
        return
    entries = [*exported, *ledger.pending()]
    known = {file.path for each in entries for file in each.files}
    for path in sorted(ledger.target.glob("[!_.]*/**/*.parquet")):
        name = path.relative_to(ledger.target).as_posix()
        if name not in known:
            yield {"what": "unknown_file", "where": name, "expected": "no file", "found": "a file"}


def _totals(proved: Sequence[Proved], *, is_lake: bool) -> dict[int, SegmentTotals]:
    return totals_by_segment(totals for each in proved if each.is_lake is is_lake for totals in each.totals)


def _compared(
    ledger: SegmentTotals, lake: Mapping[int, SegmentTotals], store: Mapping[int, SegmentTotals], kept: set[int]
) -> Row:
    nothing = SegmentTotals(ledger.segment)
    sides = {"ledger": ledger, "lake": lake.get(ledger.segment, nothing), "store": store.get(ledger.segment, nothing)}
    is_kept = ledger.segment in kept
    if not is_kept:
        del sides["store"]
    is_equal = all(each == ledger for each in sides.values())
    row: Row = {"segment": ledger.segment, "totals": sides}
    row["state"] = ("proved" if is_kept else "expired") if is_equal else "differs"
    for side, totals in sides.items():
        row |= {f"{side}_messages": totals.messages, f"{side}_crc_total": totals.crc_total}
    return row


def _findings(proved: Sequence[Proved], rows: Sequence[Row], lake: Mapping[int, SegmentTotals]) -> Iterator[Row]:
    """Yield files with a problem, then segments whose sides differ, then those of the lake that the ledger lacks."""
    for each in proved:
        if each.problem:
            yield {"what": "file", "where": each.path, "expected": "as exported", "found": each.problem}
    for row in rows:
        for side, totals in row["totals"].items():
            if totals != row["totals"]["ledger"]:
                expected, found = _shown(row["totals"]["ledger"]), f"{side}: {_shown(totals)}"
                yield {"what": "segment", "where": str(row["segment"]), "expected": expected, "found": found}
    known = {row["segment"] for row in rows}
    for segment, totals in lake.items():
        if segment not in known:
            found = f"lake: {_shown(totals)}"
            yield {"what": "segment", "where": str(segment), "expected": "no messages", "found": found}


def _shown(totals: SegmentTotals) -> str:
    return (
        f"{totals.messages} messages, {totals.bytes} bytes, checksums {totals.crc_total}, places {totals.place_total}"
    )


# ---- the report

_SIDES: Final = ("ledger", "lake", "store")


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """The facts of a proof."""

    store: str = fact("the store root")
    into: str = fact("the directory of the lake")
    table: str | None = fact("format and name of the table that has the messages; null if they are Parquet files there")
    exports: int = fact("entries of the ledger")
    begin: int = fact("physical offset from which on the log was exported")
    end: int = fact("physical offset one past it")
    messages: int = fact("messages that the ledger has")
    segments: int = fact("segments that they are of")
    proved_segments: int = fact("segments of which ledger, lake and log have equal totals")
    expired_segments: int = fact("segments that the store no longer has: there the lake equals the ledger, or differs")
    differences: int = fact("rows of the table `findings`", tells="findings")
    digest: str | None = fact("SHA-256 of the ledger's last entry, which names the one before, and so on; null if none")


class ProofReport(Report[ProofFacts]):
    """Whether a lake has what the log has."""

    SCHEMA: ClassVar = ReportSchema.of(
        "export-proof",
        1,
        ProofFacts,
        table(
            "findings",
            "What differs",
            text("what", "`segment`, `file` or `unknown_file`"),
            text("where", "the segment's physical offset, or the file below the directory"),
            text("expected", "what the ledger has"),
            text("found", "what is there"),
        ),
        table(
            "segments",
            "Segments",
            number("segment", "physical offset at which it begins"),
            text("state", "`proved`, `expired` or `differs`"),
            *(number(f"{side}_messages", f"messages that the {side} has") for side in _SIDES),
            *(
                number(f"{side}_crc_total", f"sum of the checksums of the {side}'s bodies", in_text=False)
                for side in _SIDES
            ),
        ),
    )

    @property
    def subject(self) -> str:
        """The directory of the lake."""
        return self.found.into

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Messages that the lake lacks or has too many of, by segment that differs."""
        rows = [row for row in self.tables["segments"].to_pylist() if row["state"] == "differs"]
        bars = tuple(
            Bar(f"{row['segment']:020d}", abs(missing), Tone.BAD, _difference(missing), max(row["ledger_messages"], 1))
            for row in rows
            for missing in [row["ledger_messages"] - row["lake_messages"]]
        )
        return (Bars("Segments that differ, and the messages that the lake lacks", bars),) if rows else ()

    def _lines(self) -> Iterator[str]:
        found = self.found
        bounds = f"from offset {found.begin} to {found.end}"
        yield f"{counted(found.exports, 'export')}: {counted(found.messages, 'message')} {bounds}"
        yield f"{found.proved_segments} of {counted(found.segments, 'segment')}: ledger, lake and log have equal totals"
        if found.expired_segments:
            yield f"{counted(found.expired_segments, 'segment')} no longer in the store: compared with the ledger alone"
        yield counted(found.differences, "difference") if found.differences else "nothing differs"


def _difference(missing: int) -> str:
    """Return in words how many messages of a segment the lake lacks; less than 0 are too many."""
    if missing:
        return f"{counted(abs(missing), 'message')} {'missing' if missing > 0 else 'too many'}"
    return "as many, but others"
