# SPDX-License-Identifier: Apache-2.0
"""The answer `redact`: a copy of a store without what must not be in it."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core.answers.local_engine import local_engine
from store_core.answers.redacting.redact_job import MOST_ROWS, REDACT_COLUMNS, FileJob, RedactJob
from store_core.answers.redacting.redact_report import RedactFacts, RedactReport
from store_core.answers.redacting.redaction import Redaction
from store_core.answers.scanning.message_scan import PART_BYTES
from store_core.errors import InvalidOptionError, StoreLockedError, UnsupportedStoreError
from store_core.files.configured_root import ConfiguredRoot
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import is_lock_held
from store_core.files.store_parts import check_is_no_url, check_is_root
from store_core.snapshot.log import Log, check_plain
from store_core.store.configured_store import configured_store
from store_core.store.new_directory import NewDirectory, named_places, places_beside
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.read.stored_topics import hint_of, stored_topics
from store_core.store.store_copy import copy_store, digest_of_file, files_below, path_in_copy, path_in_source

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from store_core.answers.redacting.redact_job import Redacted, SearchedFile
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.read.ranges import ReadRange

__all__ = ["redact", "redact_by"]

_READ: Final = ReadOptions(
    columns=REDACT_COLUMNS,
    mode=ReadMode.PERMISSIVE,
    max_partition_bytes=PART_BYTES,
    use_consume_queues="never",
    use_index_files="never",
)

Row = dict[str, Any]


def redact_by(
    engine: Engine, store: str | os.PathLike[str], into: str | os.PathLike[str], redaction: Redaction
) -> RedactReport:
    """Redact on an engine, all of whose workers see the directory of the copy; see `redact`."""
    check_is_no_url(Path(store))
    root = store if isinstance(store, ConfiguredRoot) else Path(store).resolve()
    check_is_root(root, OsFileSystem())
    Log.of(root, reads_entries=True, compressed="refused")  # refuses before it copies
    _check_unlocked(root)
    with NewDirectory(*places_beside(Path(into), "redact", str(root))) as copy, named_places(copy, root):
        copy_store(root, copy.work)
        _check_unlocked(root)
        ranges = _ranges_of(root, copy.work)
        done = engine.run(RedactJob(ranges, _READ, redaction))
        refused = [*_damage(done), *done.refused_rows]
        _check_chosen(root, redaction, done, is_whole=not refused)
        if refused or not done.messages:
            return _report(root, None, redaction, done, refused, [])
        again = engine.run(RedactJob(ranges, _READ, redaction))
        names = tuple(path.relative_to(copy.work).as_posix() for path in files_below(copy.work))
        files = engine.run(FileJob(copy.work, names, redaction))
        refused = [*_left(again), *(row for each in files for row in _found_in(each))]
        if not refused:
            copy.publish()
        return _report(root, None if refused else copy.target, redaction, done, refused, files)


def redact(  # noqa: PLR0913 -- what is redacted, one of four
    store: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    pattern: str | bytes | None = None,
    text: str | None = None,
    key: str | None = None,
    topic: Sequence[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> RedactReport:
    """Make a copy of a store in which parts of bodies, or whole ones, are replaced by filler of the same length.

    Queues, index and offsets stay valid, since no record moves and no property changes; the checksums of bodies and of
    whole records are computed again. With a pattern, every byte and every name in the copy is then searched, and all
    compressed bodies. If anything is left, or can't be redacted, such as a key that matches, there is no copy, and the
    report says where. It does not quote what was redacted.

    Parameters
    ----------
    store : path
        The store root; no broker may hold it. Nothing in it is changed.
    into : path
        Where nothing is yet; the copy appears there when all of it is on disk.
    pattern : str or bytes
        Regular expression of Python over the bytes of bodies, where a dot is any byte. Compressed bodies are expanded
        to search them, and replaced as a whole if they match.
    text : str
        The same, for a text as it is.
    key : str
        Messages with this key or unique key, whose whole bodies are replaced. Keys stay.
    topic : sequence of str
        Topics, all of whose bodies are replaced.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes, on_progress
        As of `store_core.answers.bill`.

    Raises
    ------
    InvalidOptionError
        If not exactly one of the four is given, a topic is not known, no message has the key, or the target is not
        free.
    StoreLockedError
        If a broker holds the store.
    StoreError
        If the store can't be read.
    OSError
        If the copy can't be written.

    Examples
    --------
    >>> from store_core.answers import redact
    >>> report = redact("/data/store", "/data/clean", text="jane@example.org")  # doctest: +SKIP
    >>> report.found.digest  # doctest: +SKIP
    """
    store = configured_store(store, config)
    redaction = Redaction.of(pattern, text, key, topic)
    with local_engine(processes, on_progress) as engine:
        return redact_by(engine, store, into, redaction)


def _ranges_of(root: Path, work: Path) -> tuple[ReadRange, ...]:
    """Return the ranges of a store's log, in its copy.

    Raises
    ------
    UnsupportedStoreError
        If records can't be rewritten in their places.
    """
    ranges = plan_ranges(root, _READ).ranges
    for part in ranges:
        if part.segment.entries is not None:
            raise UnsupportedStoreError(f"{root} has a DLedger log, which can't be redacted: its entries have digests")
    check_plain(part.segment for part in ranges)
    segments = {part.segment: path_in_copy(Path(part.segment.path), root, work) for part in ranges}
    return tuple(replace(part, segment=replace(part.segment, path=str(segments[part.segment]))) for part in ranges)


def _check_chosen(root: Path, redaction: Redaction, done: Redacted, *, is_whole: bool) -> None:
    """Refuse a key of no message, and topics without messages that nothing in the store knows: they are mistyped.

    Raises
    ------
    InvalidOptionError
        If there is one; as to a key, only if all of the log was looked at.
    """
    if is_whole and redaction.key is not None and redaction.key not in done.chosen:
        raise InvalidOptionError(
            f"key: no message in {root} has the key or unique key {redaction.key!r}: no copy is made"
        )
    missing = sorted(set(redaction.topics) - done.chosen)
    known = stored_topics((root,)) if missing else frozenset[str]()
    for topic in missing:
        if topic not in known:
            raise InvalidOptionError(f"topic: {root} has no topic {topic!r}; {hint_of(topic, known)}")


def _check_unlocked(root: Path) -> None:
    if is_lock_held(root):
        raise StoreLockedError(
            f"{root} is held by a broker, or another writer: stop it, or redact a snapshot of its disk"
        )


# ---- what is left


def _damage(done: Redacted) -> list[Row]:
    if not done.counts.damaged_ranges:
        return []
    size = done.counts.damaged_bytes
    return [
        {"reason": f"{size} bytes of the log are damaged, so it is not known what they hold: salvage the log first"}
    ]


def _left(again: Redacted) -> list[Row]:
    """Return what a second pass still found: a pattern that the filler completes, or matches itself."""
    rows = [{**row, "reason": "its body still matches after the redaction"} for row in again.rows]
    places = ("topic", "queue_id", "queue_offset", "physical_offset", "reason")
    return [{name: row[name] for name in places} for row in [*rows, *again.refused_rows]]


def _found_in(file: SearchedFile) -> list[Row]:
    """Return where a file or its name still has the pattern."""
    found = [] if file.found is None else [f"byte {file.found} of {file.path} matches"]
    return [{"reason": reason} for reason in [*found, *(["the name of a file matches"] if file.is_name else [])]]


# ---- the report


def _report(  # noqa: PLR0913 -- what a report is made of
    root: Path,
    target: Path | None,
    redaction: Redaction,
    done: Redacted,
    refused: Sequence[Row],
    files: Sequence[SearchedFile],
) -> RedactReport:
    rows: dict[str, list[Row]] = {"refused": list(refused)[:MOST_ROWS]}
    if target is not None:
        rows |= {"messages": done.rows, "files": [_file_row(root, each) for each in files]}
    more = done.messages - len(done.rows)
    facts = RedactFacts(
        store=str(root),
        into=None if target is None else str(target),
        by=redaction.kind,
        searched_messages=done.counts.messages,
        messages=done.messages,
        bytes=done.bytes,
        expanded=done.expanded,
        refused=max(len(refused), done.refused),
        files=0 if target is None else len(files),
        digest=None if target is None else sha256(_signed(rows).encode()).hexdigest(),
        notes=(f"the table of messages has the first {MOST_ROWS}; {more:,} more were redacted",) if more else (),
    )
    return RedactReport.of(facts, rows)


def _file_row(root: Path, file: SearchedFile) -> Row:
    is_changed = digest_of_file(path_in_source(file.path, root)) != file.digest
    return {"path": file.path, "size": file.size, "is_changed": is_changed, "digest": file.digest}


def _signed(rows: dict[str, list[Row]]) -> str:
    return json.dumps({name: rows[name] for name in ("messages", "files")}, sort_keys=True)
