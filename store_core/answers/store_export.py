# SPDX-License-Identifier: Apache-2.0
"""The answer `export`: messages as Parquet, exactly once, with a proof at any time."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.answers.exporting.export_job import ExportJob, export_notes
from store_core.answers.exporting.export_report import ExportFacts, ExportReport
from store_core.answers.exporting.lake_proof import LakeProof
from store_core.answers.local_engine import local_engine
from store_core.answers.scanning.message_scan import PART_BYTES, ScanCounts, told_apart
from store_core.errors import (
    ExpiredSegmentsError,
    InvalidOptionError,
    StoreError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.files.store_path import store_roots
from store_core.store.configured_store import configured_paths
from store_core.store.export.export_ledger import LEDGER, ExportEntry, ExportLedger
from store_core.store.export.segment_totals import totals_by_segment
from store_core.store.read.follow.continuity import find_continuation
from store_core.store.read.follow.log_follower import LogFollower
from store_core.store.read.follow.log_segments import LogSegments
from store_core.store.read.follow.read_limits import NO_LIMITS
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.read.stored_topics import hint_of, stored_topics
from store_core.store.store_layout import check_nothing_else, check_outside

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from store_core.answers.exporting.export_job import Exported
    from store_core.answers.exporting.proof_report import ProofReport
    from store_core.files.file_system import FileSystem
    from store_core.files.store_path import StorePaths
    from store_core.store.export.lake_table import LakeTable
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.read.follow.log_position import LogPosition
    from store_core.store.read.ranges import ReadRange

__all__ = ["export", "export_by", "prove", "prove_by"]

_DELTA_LOG: Final = "_delta_log"
"""In a table of Delta, which is refused later if it has rows of others."""

_READ: Final = ReadOptions(mode=ReadMode.PERMISSIVE, max_partition_bytes=PART_BYTES, use_consume_queues="never")
"""Bodies are read and compared with their checksums; ranges do not depend on the engine."""


def export_by(  # noqa: PLR0913 -- as `export`
    engine: Engine,
    store: StorePaths,
    into: str | os.PathLike[str],
    topic: Sequence[str] | None = None,
    *,
    allow_loss: bool = False,
    table: LakeTable | None = None,
    file_system: FileSystem | None = None,
) -> ExportReport:
    """Export on an engine, all of whose workers see the directory; see `export`.

    With a table the messages go into it, by one append of the table for each export; files are only staged in the
    directory, which keeps the ledger.
    """
    target = Path(into).resolve()
    files = file_system or OsFileSystem()
    _check(store, target, topic or (), files, table)  # if there is nothing to export, nothing is made
    with _locked(target, files, table) as ledger:
        _check_table([*ledger.entries(), *ledger.pending()], table)
        ledger.finish()
        entries = ledger.entries()
        if table is not None:
            table.open(is_new=not entries)
        topics = _topics(topic, entries)
        options = replace(_READ, topic=topics)
        follower = LogFollower(store, options, compressed=True)
        known = entries[-1].end if entries else follower.initial()
        begin, lost = _resumed(store, known, allow_loss=allow_loss)
        end = follower.advance(begin, NO_LIMITS)
        ranges = tuple(follower.ranges(begin, end))
        number = len(entries) + 1
        files.add_directories(ledger.staged)
        try:
            exported = engine.run(ExportJob(ranges, options, ledger.staged, number, file_system)) if ranges else []
            if not exported:
                return _report(store, target, entries, None, end)
            lost += _missing_bytes(begin, ranges)
            entry = _entry(number, (begin, end), topics, exported, lost, entries)
            if table is not None:
                entry = replace(entry, table=table.name)
            ledger.commit(entry)
        except (OSError, StoreError):
            ledger.give_up()
            raise
        return _report(store, target, (*entries, entry), entry, end)


def export(  # noqa: PLR0913 -- the options of an export
    store: StorePaths,
    into: str | os.PathLike[str],
    topic: Sequence[str] | None = None,
    *,
    allow_loss: bool = False,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> ExportReport:
    """Export the messages that a log has and a directory has not, as Parquet partitioned by topic and day.

    Each message is exported once, whenever a run is killed: files are staged, synced and renamed, and the ledger in the
    directory has the entry last; the next run finishes what was begun, or begins it anew. It goes on where the last
    export ended, if the log still has the record there; another log is refused. Bodies are as stored.

    Parameters
    ----------
    store : path or sequence of paths
        As of `store_core.read_messages`; it may be live.
    into : path
        A directory, outside of the store; it is made if it is not there.
    topic : sequence of str, optional
        The only topics that are exported; the same for all exports into a directory.
    allow_loss : bool
        Whether to go on if something is gone that was not exported yet, as by retention; the report says how much.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes, on_progress
        As of `store_core.answers.bill`.

    Raises
    ------
    DataLossError
        If the log is not the one that was exported, or has lost what was not exported yet.
    StoreError
        If there is nothing to read, no topic is known, or the ledger is damaged.
    StoreLockedError
        If another export into the directory is running.
    OSError
        If the directory can't be written.

    Examples
    --------
    >>> from store_core.answers import export, prove
    >>> export("/data/store", "/data/lake").found.messages  # doctest: +SKIP
    >>> prove("/data/store", "/data/lake").verdict  # doctest: +SKIP
    """
    store = configured_paths(store, config)
    with local_engine(processes, on_progress) as engine:
        return export_by(engine, store, into, topic, allow_loss=allow_loss)


def prove_by(
    engine: Engine, store: StorePaths, into: str | os.PathLike[str], table: LakeTable | None = None
) -> ProofReport:
    """Prove an export on an engine, or one into a table; see `prove`."""
    target = Path(into).resolve()
    ledger = ExportLedger(target, OsFileSystem())
    entries = ledger.entries()
    if not entries:
        raise StoreNotFoundError(f"{ledger.directory} has no entry: nothing was exported to {target}")
    _check_table(entries, table)
    options = replace(_READ, topic=entries[0].topics, fail_on_data_loss=False)
    return LakeProof(str(store_roots(store)[0]), target, entries, options, table).run(engine, store)


def prove(
    store: StorePaths,
    into: str | os.PathLike[str],
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> ProofReport:
    """Compare what was exported with the log again: counts and totals of checksums, segment by segment.

    Every file that the ledger names is read, with the checksums of the bodies that are really in it, and every segment
    that the store still has. Nothing is written.

    Parameters
    ----------
    store, into
        As of `export`.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes, on_progress
        As of `store_core.answers.bill`.

    Raises
    ------
    StoreError
        If nothing was exported there, or the ledger is damaged.
    """
    store = configured_paths(store, config)
    with local_engine(processes, on_progress) as engine:
        return prove_by(engine, store, into)


def _check_table(entries: Sequence[ExportEntry], table: LakeTable | None) -> None:
    """Refuse a ledger whose exports went elsewhere."""
    given = "" if table is None else table.name
    for entry in entries[:1]:
        if entry.table != given:
            kept, asked = (name or "Parquet files" for name in (entry.table, given))
            advice = "The format is an option of jobs/export.py and of pyspark_commitlog.answers.export"
            raise InvalidOptionError(f"into: the ledger there is of exports to {kept}, asked for {asked}. {advice}")


@contextmanager
def _locked(target: Path, files: FileSystem, table: LakeTable | None) -> Iterator[ExportLedger]:
    ledger = ExportLedger(target, files, table)
    with StoreLock(ledger.directory, files):
        yield ledger


def _topics(topic: Sequence[str] | None, entries: Sequence[ExportEntry]) -> tuple[str, ...]:
    topics = tuple(sorted(topic or ()))
    if entries and topic and topics != entries[0].topics:
        shown = ", ".join(entries[0].topics) or "all"
        raise InvalidOptionError(f"topic: this directory is for {shown}, found {', '.join(topics)}: use another one")
    return entries[0].topics if entries else topics


def _check(store: StorePaths, target: Path, topic: Sequence[str], files: FileSystem, table: LakeTable | None) -> None:
    """Refuse a store that can't be exported, topics that it does not have, and a directory of others' files.

    Nothing was written before.
    """
    segments = LogSegments.of(store, compressed=True).segments
    if any(segment.entries is not None for segment in segments):
        raise UnsupportedStoreError("a DLedger log can't be exported: what is not committed may be replaced")
    check_outside("into", target, store)
    signs = {LEDGER} if table is None else {LEDGER, _DELTA_LOG}
    check_nothing_else(target, "directory of exports", lambda names: not signs.isdisjoint(names), files)
    if topic and not ExportLedger(target, files).is_begun():
        _check_topics(store, topic)


def _check_topics(store: StorePaths, topics: Sequence[str]) -> None:
    """Refuse topics if nothing in the store knows any of them, nor has the log a message: their names are mistyped."""
    known = stored_topics(store_roots(store))
    if known.isdisjoint(topics) and not _has_messages(store, topics):
        missing = min(topics)
        hint = hint_of(missing, known)
        raise InvalidOptionError(f"topic: {store_roots(store)[0]} has no topic {missing!r}; {hint}")


def _has_messages(store: StorePaths, topics: Sequence[str]) -> bool:
    options = replace(_READ, topic=tuple(topics), columns=("magic_code",), fail_on_data_loss=False)
    parts = plan_ranges(store, options).ranges
    return any(told_apart(batch, part)[0].num_rows for part in parts for batch in read_range(part, options))


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


def _missing_bytes(begin: LogPosition, ranges: Sequence[ReadRange]) -> int:
    """Return how many bytes of the log from a position on are in none of the ranges up to the last of them."""
    ends = (begin.physical_offset, *(part.end for part in ranges))
    return sum(max(part.begin - end, 0) for part, end in zip(ranges, ends, strict=False))


def _entry(  # noqa: PLR0913 -- what an entry is made of
    number: int,
    bounds: tuple[LogPosition, LogPosition],
    topics: tuple[str, ...],
    exported: Sequence[Exported],
    lost: int,
    before: Sequence[ExportEntry],
) -> ExportEntry:
    counts = sum((each.counts for each in exported), ScanCounts())
    return ExportEntry(
        number,
        *bounds,
        topics,
        tuple(totals_by_segment(each.totals for each in exported).values()),
        tuple(file for each in exported for file in each.files),
        counts.damaged_ranges,
        counts.damaged_bytes,
        lost,
        before[-1].digest if before else "",
    )


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
