# SPDX-License-Identifier: Apache-2.0
"""The answer `export`: messages as Parquet, or in a table of a lake, exactly once, with a proof at any time."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import quote  # noqa: TID251 -- makes a name, opens nothing

from store_core.answers.answer import Answer, AnyReport, flag, function_of, opt
from store_core.answers.export_proof import READ, check_same_lake, prove_by, totals_of
from store_core.answers.message_scan import ScanCounts, messages_and_damage
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportSchema, fact, number, shared, table, text
from store_core.answers.verdict import Verdict
from store_core.errors import (
    ExpiredSegmentsError,
    InvalidOptionError,
    SegmentVanishedError,
    StoreError,
    UnsupportedStoreError,
)
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.store_lock import StoreLock, is_lock_held
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.words import counted
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end
from store_core.store.export.export_ledger import LEDGER, ExportEntry, ExportLedger
from store_core.store.export.lake_files import LakeFile, PartitionWriters
from store_core.store.export.lake_table import LAKE_FORMATS, LakeFormat, check_table, table_of
from store_core.store.export.segment_totals import SegmentTotals, totals_by_segment
from store_core.store.read.follow.log_follower import NO_LIMITS, LogFollower
from store_core.store.read.follow.log_segments import LogSegments, find_continuation
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_plan import plan_ranges
from store_core.store.read.stored_topics import hint_of, stored_topics
from store_core.store.store_layout import check_nothing_else, check_outside

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.answers.export_proof import ProofReport
    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.snapshot.store import Store
    from store_core.store.export.lake_table import LakeTable
    from store_core.store.parts import Engine
    from store_core.store.read.follow.log_position import LogPosition
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


@dataclass(frozen=True)
class _OfLake(Answer[AnyReport]):
    """What is asked of a lake."""

    into: str | os.PathLike[str] = opt(MISSING, "The directory of the lake, outside of STORE.", metavar="DIRECTORY")
    kind: LakeFormat = opt(
        "parquet",
        "Format of the lake. Tables of Iceberg and Delta need Spark, with their jars.",
        flag="--format",
        choices=LAKE_FORMATS,
    )
    table: str | None = opt(
        None, "Name of the Iceberg table, CATALOG.NAMESPACE.TABLE. DIRECTORY then has the ledger alone.", metavar="NAME"
    )

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        check_table(self.kind, self.table)

    def for_store(self, name: str) -> Self:
        """Give each store a directory of its own, which is a partition of the lake."""
        if self.table is not None:
            raise InvalidOptionError(f"--table {self.table}: expected one store; give each a table of its own")
        return replace(self, into=Path(self.into) / f"store={quote(name, safe='')}")


@dataclass(frozen=True)
class Prove(_OfLake["ProofReport"]):
    """Compare what was exported with the log again: counts and totals of checksums, segment by segment.

    Every file that the ledger names is read, with the checksums of the bodies that are really in it, and every segment
    that the store still has. Nothing is written.
    """

    def on(self, engine: Engine, store: Store) -> ProofReport:
        """Read both sides again."""
        return prove_by(engine, store.paths, self.into, table_of(engine, self.kind, self.into, self.table))


@dataclass(frozen=True)
class Export(_OfLake["Report[Any]"]):
    """Export messages as Parquet, by topic and day: new ones, each exactly once.

    STORE is only read, and may be live. A run that is killed is finished by the next one. The exit code is 0 if all is
    exported, 5 if something is damaged or gone; with --prove it is 1 if anything differs.
    """

    NAME: ClassVar = "export"
    EXAMPLES: ClassVar = (
        "commitlog export /data/store --into /data/lake",
        "commitlog export /data/store --into /data/orders --topic orders",
        "commitlog export /data/store --into /data/lake --prove",
    )

    topic: tuple[str, ...] = opt((), "Only this topic; can be repeated.", metavar="TOPIC")
    allow_loss: bool = flag("Go on if retention has deleted what was not exported yet.")
    prove: bool = flag("Export nothing; compare what is there with the log.")

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        if self.prove and (self.topic or self.allow_loss):
            raise InvalidOptionError("--prove compares all that was exported: leave out --topic and --allow-loss")

    def on(self, engine: Engine, store: Store) -> Report[Any]:
        """Export, or prove, on an engine all of whose workers see the directory."""
        if self.prove:
            return Prove(self.into, self.kind, self.table).on(engine, store)
        return export_by(engine, store.paths, self, table_of(engine, self.kind, self.into, self.table))


export = function_of(Export)
prove = function_of(Prove)


_DELTA_LOG: Final = "_delta_log"
"""In a table of Delta, which is refused later if it has rows of others."""


def export_by(
    engine: Engine,
    store: StorePaths,
    asked: Export,
    table: LakeTable | None = None,
    file_system: FileSystem | None = None,
) -> ExportReport:
    """Export on an engine, all of whose workers see the directory.

    Each message is exported once, whenever a run is killed: files are staged, synced and renamed, and the ledger in the
    directory has the entry last; the next run finishes what was begun, or begins it anew. It goes on where the last
    export ended, if the log still has the record there; another log is refused. Bodies are as stored. With a table the
    messages go into it, by one append of the table for each export; files are only staged in the directory.
    """
    target = Path(asked.into).resolve()
    files = file_system or OsFileSystem()
    _check(store, target, asked.topic, files, table)  # if there is nothing to export, nothing is made
    ledger = ExportLedger(target, files, table)
    with StoreLock(ledger.directory, files):
        check_same_lake([*ledger.entries(), *ledger.pending()], table)
        ledger.finish()
        entries = ledger.entries()
        if table is not None:
            table.open(is_new=not entries)
        topics = _topics(asked.topic, entries)
        options = replace(READ, topic=topics)
        follower = LogFollower(store, options, compressed=True)
        known = entries[-1].end if entries else follower.initial()
        begin, lost = _resumed(store, known, allow_loss=asked.allow_loss)
        end = follower.advance(begin, NO_LIMITS)
        ranges = tuple(follower.ranges(begin, end))
        number = len(entries) + 1
        files.add_directories(ledger.staged)
        try:
            exported = engine.run(ExportJob(ranges, options, ledger.staged, number, file_system)) if ranges else []
            if not exported:
                return _report(store, target, entries, None, end)
            ends = (begin.physical_offset, *(part.end for part in ranges))
            lost += sum(max(part.begin - last, 0) for part, last in zip(ranges, ends, strict=False))
            counts = sum((each.counts for each in exported), ScanCounts())
            entry = ExportEntry(
                number,
                begin,
                end,
                topics,
                tuple(totals_by_segment(each.totals for each in exported).values()),
                tuple(file for each in exported for file in each.files),
                counts.damaged_ranges,
                counts.damaged_bytes,
                lost,
                entries[-1].digest if entries else "",
                "" if table is None else table.name,
            )
            ledger.commit(entry)
        except (OSError, StoreError):
            ledger.give_up()
            raise
        return _report(store, target, (*entries, entry), entry, end)


def _topics(topic: Sequence[str], entries: Sequence[ExportEntry]) -> tuple[str, ...]:
    topics = tuple(sorted(topic))
    if entries and topic and topics != entries[0].topics:
        shown = ", ".join(entries[0].topics) or "all"
        raise InvalidOptionError(
            f"topic: expected {shown}, as in earlier exports into this directory, found {', '.join(topics)}: export "
            f"into another directory"
        )
    return entries[0].topics if entries else topics


def _check(store: StorePaths, target: Path, topic: Sequence[str], files: FileSystem, table: LakeTable | None) -> None:
    """Refuse a store that can't be exported, topics that it does not have, and a directory of others' files.

    Nothing was written before.
    """
    segments = LogSegments.of(store, compressed=True).segments
    if any(segment.entries is not None for segment in segments):
        raise UnsupportedStoreError(
            "a DLedger log can't be exported: its leader may replace records that are not committed"
        )
    check_outside("into", target, store)
    signs = {LEDGER} if table is None else {LEDGER, _DELTA_LOG}
    check_nothing_else(target, "directory of exports", lambda names: not signs.isdisjoint(names), files)
    if topic and not ExportLedger(target, files).is_begun():
        known = stored_topics(store_roots(store))
        if known.isdisjoint(topic) and not _has_messages(store, topic):
            missing = min(topic)
            hint = hint_of(missing, known)
            raise InvalidOptionError(f"topic: {store_roots(store)[0]} has no topic {missing!r}; {hint}")


def _has_messages(store: StorePaths, topics: Sequence[str]) -> bool:
    options = replace(READ, topic=tuple(topics), columns=("magic_code",), fail_on_data_loss=False)
    parts = plan_ranges(store, options).ranges
    return any(messages_and_damage(batch, part)[0].num_rows for part in parts for batch in read_range(part, options))


def _resumed(store: StorePaths, known: LogPosition, *, allow_loss: bool) -> tuple[LogPosition, int]:
    """Return where the export begins, and how many bytes before it are gone."""
    position, loss = find_continuation(LogSegments.of(store, compressed=True), known, verify_crc=True)
    if loss is None:
        return known, 0
    is_expired = isinstance(loss, ExpiredSegmentsError)
    if is_expired and allow_loss:
        return position, loss.end - loss.begin
    advice = f"To go on at offset {loss.resume_offset}: --allow-loss" if is_expired else "Export into another directory"
    raise type(loss)(loss.problem, loss.begin, loss.end, loss.resume_offset, advice)


def _report(
    store: StorePaths, target: Path, entries: Sequence[ExportEntry], new: ExportEntry | None, at: LogPosition
) -> ExportReport:
    end = entries[-1].end.physical_offset if entries else 0
    files = () if new is None or new.table else new.files
    facts = ExportFacts(
        store=str(store_roots(store)[0]),
        into=str(target),
        table=next((each.table or None for each in entries), None),
        number=None if new is None else new.number,
        begin=end if new is None else new.begin.physical_offset,
        end=end,
        messages=0 if new is None else sum(each.messages for each in new.segments),
        bytes=0 if new is None else sum(each.bytes for each in new.segments),
        files=len(files),
        all_messages=sum(segment.messages for each in entries for segment in each.segments),
        digest=entries[-1].digest if entries else None,
        lost_bytes=0 if new is None else new.lost_bytes,
        damaged_ranges=0 if new is None else new.damaged_ranges,
        damaged_bytes=0 if new is None else new.damaged_bytes,
        notes=export_notes(store, 0 if new is None else new.begin.physical_offset, at),
    )
    rows = {
        "segments": [] if new is None else [each.as_json() for each in new.segments],
        "files": [each.as_json() for each in files],
    }
    return ExportReport.of(facts, rows)


# ---- the parts


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of a range."""

    totals: SegmentTotals
    counts: ScanCounts
    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Writes each range into staged files; see `store_core.store.parts.Job`."""

    ranges: tuple[ReadRange, ...]
    options: ReadOptions  # with the default columns, in mode PERMISSIVE
    staged: Path  # A directory that all workers see
    number: int  # of the export
    file_system: FileSystem | None = None  # None for the real one, which each worker has

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.ranges

    def run(self, part: ReadRange) -> Exported:
        """Read a range, and write its files; a task that runs twice makes others, and those of one are used."""
        stem = f"{self.number:08d}-{part.begin:020d}"
        totals, counts = SegmentTotals(part.segment.start_offset), ScanCounts()
        with PartitionWriters(self.staged, stem, self.file_system or OsFileSystem()) as writers:
            for batch in read_range(part, self.options):
                messages, damage = messages_and_damage(batch, part)
                counts += ScanCounts.of_messages(messages) + ScanCounts.of_damage(damage)
                if messages.num_rows:
                    totals += totals_of(messages, part)
                    writers.add(messages)
            return Exported(totals, counts, writers.finish())

    def merge(self, exported: Iterable[Exported]) -> list[Exported]:
        """Return what became of the ranges."""
        return list(exported)


# ---- what is to be said


def export_notes(store: StorePaths, begin: int, end: LogPosition) -> tuple[str, ...]:
    """Return notes about segments that are missing since an offset, and about bytes after the end of an export.

    If a segment vanishes meanwhile, those that are known by then are returned: the next export tells.
    """
    notes: tuple[str, ...] = ()
    try:
        segments = LogSegments.of(store, compressed=True).segments
        between = [each for each in segments if each.end_offset >= begin and each.start_offset <= end.physical_offset]
        notes = tuple(problem.problem for problem in Log(tuple(between)).problems)
        return notes + _on_tails(store, segments, end)
    except SegmentVanishedError:
        return notes


def _on_tails(store: StorePaths, segments: Sequence[Segment], end: LogPosition) -> tuple[str, ...]:
    """Return notes about bytes after an export's end that are not a record.

    There are none while a broker has the store open, since it may be writing a record there, nor if the log ends
    elsewhere by now.
    """
    if any(is_lock_held(root) for root in store_roots(store)):
        return ()
    found = find_end(segments, place_in=end.place_in)
    if found.end_offset != end.physical_offset:
        return ()
    return tuple(f"the log ends at offset {found.end_offset}: {tail}; no newer record follows" for tail in found.tails)


# ---- the report


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """The facts of an export."""

    store: str = fact("the store root")
    into: str = fact("the directory of the lake")
    table: str | None = fact("format and name of the table that has the messages; null if they are Parquet files there")
    number: int | None = fact("number of this export in the ledger; null if there was nothing new")
    begin: int = fact("physical offset from which on the log was exported")
    end: int = fact("physical offset one past it")
    messages: int = fact("messages exported")
    bytes: int = fact("bytes of their records")
    files: int = fact("files written")
    all_messages: int = fact("messages of all exports into the directory")
    digest: str | None = fact("SHA-256 of the ledger's last entry, which names the one before, and so on; null if none")
    lost_bytes: int = fact("bytes of the log that were gone before they were exported")
    damaged_ranges: int = fact("ranges that are no message, and so are not exported, in pieces of 16 MiB at most")
    damaged_bytes: int = fact("bytes in them")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


class ExportReport(Report[ExportFacts]):
    """What an export wrote."""

    SCHEMA: ClassVar = ReportSchema.of(
        "export",
        1,
        ExportFacts,
        table(
            "segments",
            "Segments",
            number("segment", "physical offset at which it begins"),
            number("messages", "messages of it in this export"),
            *shared("bytes"),
            number("crc_total", "sum of the checksums of their bodies"),
        ),
        table(
            "files",
            "Files",
            text("path", "below the directory"),
            number("messages", "rows"),
            number("size", "bytes of the file"),
        ),
    )

    @property
    def verdict(self) -> Verdict:
        """Damaged if something is not exported because it is damaged or gone."""
        is_less = self.found.damaged_ranges or self.found.lost_bytes
        return Verdict.DAMAGED if is_less else Verdict.CLEAN

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Bytes by segment."""
        rows = self.tables["segments"].to_pylist()
        bars = (Bar(f"{row['segment']:020d}", row["bytes"], Tone.GOOD, f"{row['bytes']:,} bytes") for row in rows)
        return (Bars("Bytes exported by segment", tuple(bars)),) if rows else ()

    def _lines(self) -> Iterator[str]:
        found = self.found
        all_messages = counted(found.all_messages, "message")
        if found.number is None:
            yield f"nothing new after offset {found.end}: the directory has {all_messages}"
        else:
            place = f"in {counted(found.files, 'file')}" if found.table is None else f"into {found.table}"
            yield f"export {found.number}: {counted(found.messages, 'message')} of {found.bytes:,} bytes, {place}"
            yield f"from offset {found.begin} to {found.end}; the directory now has {all_messages}"
        if found.lost_bytes:
            yield f"{found.lost_bytes:,} bytes of the log were gone before they were exported"
        if found.damaged_ranges:
            yield f"not exported: {found.damaged_bytes:,} bytes in {counted(found.damaged_ranges, 'damaged range')}"
        yield from found.notes
