# SPDX-License-Identifier: Apache-2.0
"""The work of an export: a range of the log is a part, staged files are committed with an entry of the ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from store_core.answers.export_proof import READ, totals_of
from store_core.answers.message_reads import ScanCounts, messages_and_damage
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportSchema, fact, number, shared, table, text
from store_core.errors import (
    ExpiredSegmentsError,
    InvalidOptionError,
    SegmentVanishedError,
    StoreError,
    UnsupportedStoreError,
)
from store_core.files.access import explained_access
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.store_lock import StoreLock, is_lock_held
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.words import counted
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end
from store_core.store.export.export_ledger import LEDGER, ExportEntry, ExportLedger
from store_core.store.export.lake_files import LakeFile, PartitionWriters, SegmentTotals, totals_by_segment
from store_core.store.parts import EachPart, Engine
from store_core.store.read.follow.log_follower import NO_LIMITS, LogFollower
from store_core.store.read.follow.log_segments import LogSegments, find_continuation
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_messages import hint_of, stored_topics
from store_core.store.read.read_plan import plan_ranges
from store_core.store.store_layout import check_nothing_else, check_outside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.store.read.follow.log_segments import LogPosition
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


_DELTA_LOG: Final = "_delta_log"
"""In a table of Delta, which is refused later if it has rows of others."""


def export_by(
    engine: Engine, store: StorePaths, ledger: ExportLedger, topic: tuple[str, ...] = (), *, allow_loss: bool = False
) -> ExportReport:
    """Export on an engine, all of whose workers see the directory.

    Each message is exported once, whenever a run is killed: files are staged, synced and renamed, and the ledger in the
    directory has the entry last; the next run finishes what was begun, or begins it anew. It goes on where the last
    export ended, if the log still has the record there; another log is refused. Bodies are as stored. With a table the
    messages go into it, by one append of the table for each export; files are only staged in the directory.
    """
    files = ledger.file_system
    _check(store, ledger, topic)  # if there is nothing to export, nothing is made
    with explained_access(ledger.directory), StoreLock(ledger.directory, files):
        ledger.check_lake()
        ledger.finish()
        entries = ledger.entries()
        if ledger.table is not None:
            ledger.table.open(is_new=not entries)
        topics = _topics(topic, entries)
        options = replace(READ, topic=topics)
        follower = LogFollower(store, options, compressed=True)
        known = entries[-1].end if entries else follower.initial()
        begin, lost = _resumed(store, known, allow_loss=allow_loss)
        end = follower.advance(begin, NO_LIMITS)
        ranges = tuple(follower.ranges(begin, end))
        number = len(entries) + 1
        files.add_directories(ledger.staged)
        try:
            of_workers = None if type(files) is OsFileSystem else files
            exported = engine.run(ExportJob(ranges, options, ledger.staged, number, of_workers)) if ranges else []
            if not exported:
                return _report(store, ledger.target, entries, None, end)
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
                "" if ledger.table is None else ledger.table.name,
            )
            ledger.commit(entry)
        except (OSError, StoreError):
            ledger.give_up()
            raise
        return _report(store, ledger.target, (*entries, entry), entry, end)


def _topics(topic: Sequence[str], entries: Sequence[ExportEntry]) -> tuple[str, ...]:
    topics = tuple(sorted(topic))
    if entries and topic and topics != entries[0].topics:
        shown = ", ".join(entries[0].topics) or "all"
        raise InvalidOptionError(
            f"topic: expected {shown}, as in earlier exports into this directory, found {', '.join(topics)}: export "
            f"into another directory"
        )
    return entries[0].topics if entries else topics


def _check(store: StorePaths, ledger: ExportLedger, topic: Sequence[str]) -> None:
    """Refuse a store that can't be exported, topics that it does not have, and a directory of others' files.

    Nothing was written before.
    """
    segments = LogSegments.of(store, compressed=True).segments
    if any(segment.entries is not None for segment in segments):
        raise UnsupportedStoreError(
            "a DLedger log can't be exported: its leader may replace records that are not committed"
        )
    check_outside(ledger.target, store)
    signs = {LEDGER} if ledger.table is None else {LEDGER, _DELTA_LOG}
    check_nothing_else(
        ledger.target, "directory of exports", lambda names: not signs.isdisjoint(names), ledger.file_system
    )
    if topic and not ledger.is_begun():
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


@dataclass(frozen=True)
class ExportJob(EachPart["ReadRange", Exported]):
    """Writes each range into staged files."""

    options: ReadOptions  # with the default columns, in mode PERMISSIVE
    staged: Path  # A directory that all workers see
    number: int  # of the export
    file_system: FileSystem | None = None  # None for the real one, which each worker has

    def run(self, part: ReadRange) -> Exported:
        """Read a range, and write its files; a task that runs twice makes others, and those of one are used."""
        stem = f"{self.number:08d}-{part.begin:020d}"
        totals, counts = SegmentTotals(part.segment.start_offset), ScanCounts()
        with PartitionWriters(self.staged, stem, self.file_system or OsFileSystem()) as writers:
            for batch in read_range(part, self.options):
                messages, damage = messages_and_damage(batch, part)
                counts += ScanCounts.of(messages, damage)
                if messages.num_rows:
                    totals += totals_of(messages, part)
                    writers.add(messages)
            return Exported(totals, counts, writers.finish())


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
    lost_bytes: int = fact("bytes of the log that were gone before they were exported", tells="damaged")
    damaged_ranges: int = fact(
        "ranges that are no message, and so are not exported, in pieces of 16 MiB at most", tells="damaged"
    )
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
