# SPDX-License-Identifier: Apache-2.0
"""The answer `redact`: a copy of a store without what must not be in it."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import quote  # noqa: TID251 -- makes a name, opens nothing

from store_core.answers.answer import Answer, Kind, function_of, one_root, opt
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportSchema, fact, number, shared, table, text, truth
from store_core.errors import InvalidOptionError, StoreLockedError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import check_is_root
from store_core.files.store_path import ConfiguredRoot, local_path_of
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from store_core.answers.redaction import Redacted, Redaction, SearchedFile
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


@dataclass(frozen=True)
class Redact(Answer["RedactReport"]):
    """Copy a store without what must not be in it: bodies are replaced, in part or whole, by filler as long.

    Exactly one of --pattern, --text, --key and --topic is given. STORE is only read, and no broker may hold it. The
    exit code is 4 if something can't be redacted or is left: then there is no copy, and the report says where.
    """

    NAME: ClassVar = "redact"
    IS_LOCAL: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog redact /data/snapshot --into /data/clean --text jane@example.org",
        "commitlog redact /data/snapshot --into /data/clean --pattern '[0-9]{16}'",
        "commitlog redact /data/snapshot --into /data/clean --topic clicks",
    )

    into: str | os.PathLike[str] = opt(
        MISSING, "Where the redacted copy is written: a path where nothing is yet.", metavar="PATH"
    )
    pattern: str | bytes | None = opt(
        None, "Redact what this regular expression matches in bodies.", kind=Kind.HIDDEN, metavar="REGEX"
    )
    text: str | None = opt(None, "Redact this text in bodies.", kind=Kind.HIDDEN, metavar="TEXT")
    key: str | None = opt(
        None, "Redact the bodies of messages with this key or unique key.", kind=Kind.HIDDEN, metavar="KEY"
    )
    topic: tuple[str, ...] = opt((), "Redact all bodies of this topic; can be repeated.", metavar="TOPIC")

    def for_store(self, name: str) -> Self:
        """Put the copy of each store into a directory of its own."""
        return replace(self, into=Path(self.into) / quote(name, safe=""))

    def on(self, engine: Engine, store: Store) -> RedactReport:
        """Redact a copy, all of whose workers see it; every byte of it is searched before it appears.

        Queues, index and offsets stay valid, since no record moves and no property changes; checksums are computed
        again.
        """
        from store_core.answers.redaction import FileJob, Redacted, Redaction, RedactJob
        from store_core.snapshot.log import Log
        from store_core.store.new_directory import NewDirectory, copy_store, files_below, named_places, places_beside

        redaction = Redaction.of(self.pattern, self.text, self.key, self.topic)
        path = local_path_of(one_root(store.paths))
        root = path if isinstance(path, ConfiguredRoot) else path.resolve()
        check_is_root(root, OsFileSystem())
        Log.of(root, reads_entries=True, packed="refused")  # refuses before it copies
        _check_unlocked(root)
        with NewDirectory(*places_beside(Path(self.into), "redact", str(root))) as copy, named_places(copy, root):
            copy_store(root, copy.work)
            _check_unlocked(root)
            ranges = _ranges_of(root, copy.work)
            done = Redacted.of(engine.run(RedactJob(ranges, _options(), redaction)))
            refused = [*_damage(done), *done.refused_rows]
            _check_chosen(root, redaction, done, is_whole=not refused)
            facts = _facts(root, redaction, done)
            if refused or not done.messages:
                return _report(facts, done, refused)
            again = Redacted.of(engine.run(RedactJob(ranges, _options(), redaction)))
            names = tuple(path.relative_to(copy.work).as_posix() for path in files_below(copy.work))
            files = engine.run(FileJob(names, copy.work, redaction))
            refused = [*_left(again), *(row for each in files for row in _found_in(each))]
            if refused:
                return _report(facts, done, refused)
            copy.publish()
            rows: dict[str, list[Row]] = {"messages": done.rows, "files": [_file_row(root, each) for each in files]}
            digest = sha256(
                json.dumps({name: rows[name] for name in ("messages", "files")}, sort_keys=True).encode()
            ).hexdigest()
            return RedactReport.of(replace(facts, into=str(copy.target), files=len(files), digest=digest), rows)


redact = function_of(Redact)


Row = dict[str, Any]


def _options() -> ReadOptions:
    """Return the options of a read of all messages and damaged ranges."""
    from store_core.answers.message_reads import PART_BYTES
    from store_core.answers.redaction import REDACT_COLUMNS
    from store_core.store.read.read_options import ReadOptions

    never = {"use_consume_queues": "never", "use_index_files": "never"}
    return ReadOptions.parse(columns=REDACT_COLUMNS, mode="PERMISSIVE", max_partition_bytes=PART_BYTES, **never)


def _ranges_of(root: Path, work: Path) -> tuple[ReadRange, ...]:
    """Return the ranges of a store's log, in its copy."""
    from store_core.snapshot.log import check_plain
    from store_core.store.new_directory import path_in_copy
    from store_core.store.read.read_plan import plan_ranges

    ranges = plan_ranges(root, _options()).ranges
    for part in ranges:
        if part.segment.entries is not None:
            raise UnsupportedStoreError(f"{root} has a DLedger log, which can't be redacted: its entries have digests")
    check_plain(part.segment for part in ranges)
    segments = {part.segment: path_in_copy(Path(part.segment.path), root, work) for part in ranges}
    return tuple(replace(part, segment=replace(part.segment, path=str(segments[part.segment]))) for part in ranges)


def _check_chosen(root: Path, redaction: Redaction, done: Redacted, *, is_whole: bool) -> None:
    """Refuse a mistyped key or topic: one of no message, and a topic that no file of the store names either."""
    from store_core.store.read.read_messages import hint_of, stored_topics

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
    from store_core.files.store_lock import is_lock_held

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
    """Return the matches of a second pass, as of a pattern that matches the filler."""
    rows = [{**row, "reason": "its body still matches after the redaction"} for row in again.rows]
    places = ("topic", "queue_id", "queue_offset", "physical_offset", "reason")
    return [{name: row[name] for name in places} for row in [*rows, *again.refused_rows]]


def _found_in(file: SearchedFile) -> list[Row]:
    """Return where a file or its name still has the pattern."""
    found = [] if file.found is None else [f"byte {file.found} of {file.path} matches"]
    return [{"reason": reason} for reason in [*found, *(["the name of a file matches"] if file.is_name else [])]]


# ---- the report


def _facts(root: Path, redaction: Redaction, done: Redacted) -> RedactFacts:
    """Return the facts of a redaction without a copy."""
    from store_core.answers.redaction import MOST_ROWS

    more = done.messages - len(done.rows)
    return RedactFacts(
        store=str(root),
        into=None,
        by=redaction.kind,
        searched_messages=done.counts.messages,
        messages=done.messages,
        bytes=done.bytes,
        expanded=done.expanded,
        refused=0,
        files=0,
        digest=None,
        notes=(f"the table of messages has the first {MOST_ROWS}; {more:,} more were redacted",) if more else (),
    )


def _report(facts: RedactFacts, done: Redacted, refused: Sequence[Row]) -> RedactReport:
    """Return the report of a redaction of which there is no copy."""
    from store_core.answers.redaction import MOST_ROWS

    return RedactReport.of(
        replace(facts, refused=max(len(refused), done.refused)), {"refused": list(refused)[:MOST_ROWS]}
    )


def _file_row(root: Path, file: SearchedFile) -> Row:
    from store_core.store.new_directory import digest_of_file, path_in_source

    is_changed = digest_of_file(path_in_source(file.path, root)) != file.digest
    return {"path": file.path, "size": file.size, "is_changed": is_changed, "digest": file.digest}


_PLACE: Final = shared("topic", "queue_id", "queue_offset", "physical_offset")


@dataclass(frozen=True, slots=True)
class RedactFacts:
    """The facts of a redaction."""

    store: str = fact("the store root; nothing in it is changed")
    into: str | None = fact("the redacted copy; null if there is none")
    by: str = fact("`pattern`, `key` or `topic`")
    searched_messages: int = fact("messages that were looked at")
    messages: int = fact("messages that were redacted, or would have been")
    bytes: int = fact("bytes of their bodies that were replaced")
    expanded: int = fact("how many of them were compressed: their bodies are filler as a whole, and not compressed")
    refused: int = fact("rows of the table `refused`, and those that are too many for it", tells="refused")
    files: int = fact("files of the copy; with a pattern, every byte and name was searched, and nothing of it is left")
    digest: str | None = fact(
        "SHA-256 of the tables `messages` and `files`, as JSON with sorted keys: what to sign; or null"
    )
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table("refused", "Why there is no copy", *_PLACE, text("reason", "what can't be redacted")),
    table(
        "messages",
        "Redacted messages",
        *_PLACE,
        number("bytes", "bytes of the body that were replaced"),
        truth("was_compressed", "whether the body was compressed"),
        text("digest", "SHA-256 of the record in the copy", in_text=False),
    ),
    table(
        "files",
        "Files of the copy",
        text("path", "below the root"),
        number("size", "bytes"),
        truth("is_changed", "whether it differs from the store's"),
        text("digest", "SHA-256", in_text=False),
    ),
)


class RedactReport(Report[RedactFacts]):
    """The report of a redaction."""

    SCHEMA: ClassVar = ReportSchema.of("redact", 1, RedactFacts, *_REPORT_TABLES)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Messages that were redacted, and that can't be."""
        found = self.found
        bars = (("redacted", found.messages, Tone.GOOD), ("refused", found.refused, Tone.BAD))
        shown = (Bar(name, value, tone, counted(value, "message")) for name, value, tone in bars)
        return (Bars("What was looked for", tuple(shown)),)

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{counted(found.searched_messages, 'message')} looked at, by {found.by}"
        if found.refused:
            yield f"refused, no copy was made: {counted(found.refused, 'place')} can't be redacted"
        elif found.into is None:
            yield "nothing found, no copy was made"
        else:
            yield f"{counted(found.messages, 'message')} redacted, {found.bytes:,} bytes replaced"
            if found.expanded:
                were = agreeing(found.expanded, "was compressed, and is", "were compressed, and are")
                yield f"{found.expanded:,} of them {were} filler as a whole"
            yield f"the copy has {counted(found.files, 'file')}; to sign: {found.digest}"
        yield from found.notes
