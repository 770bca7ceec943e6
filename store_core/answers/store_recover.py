# SPDX-License-Identifier: Apache-2.0
"""The answer `recover`: what a restart would do, by one release or by several, side by side."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, Kind, flag, function_of, one_root, opt
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import (
    Report,
    ReportColumn,
    ReportSchema,
    ReportTable,
    Verdict,
    command_words,
    fact,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_path import path_of
from store_core.files.url_path import UrlPath
from store_core.format.columns import STRINGS_TYPE
from store_core.format.release import DEFAULT_RELEASE, RELEASES, Release, release_hint
from store_core.format.words import agreeing, counted
from store_core.store.parts import EachPart, Engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from store_core.snapshot.store import Store
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.recovery.log_recovery import RecoveryReport


MOST_MESSAGES: Final = 100
"""How many truncated messages are listed, if not all are asked for; all are counted."""

_ALL: Final = "all"
_ONLY_DRY: Final = (
    "recover never changes a store: it shows what a broker's start would truncate, rebuild or refuse. Give --dry-run "
    "to see that. To have it done, start a broker; to make queues and index right, use commitlog repair"
)


@dataclass(frozen=True)
class Recover(Answer["RecoverReport"]):
    """Show what opening a store for writing, as a broker does at its start, would truncate, rebuild or refuse.

    The same code runs as for a real start, on changes that are kept in memory. The exit code is 0 if nothing would
    change, 1 if something would, 4 if the store would be refused, and 5 if nothing would change but the log is damaged.
    """

    NAME: ClassVar = "recover"
    CONFIG_WORDS: ClassVar = "file sizes"
    IS_LOCAL: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog recover /data/store --dry-run",
        "commitlog recover /data/store --dry-run --release 4.9 --config broker.conf",
        "commitlog recover /data/store --dry-run --release all",
        "commitlog recover /data/store --dry-run --release all --html recover.html",
    )

    release: tuple[str, ...] = opt(
        (DEFAULT_RELEASE,),
        "RocketMQ that would open the store; can be repeated. all: what each would do, side by side. Their decisions "
        "are in --json and --html then.",
        shown_default=DEFAULT_RELEASE,
        choices=(*RELEASES, _ALL),
        hint=release_hint,
    )
    messages: bool = flag(f"List all messages that would be truncated, not just {MOST_MESSAGES}.")
    dry_run: bool = opt(True, "Change nothing. Required: this command only looks.", shown_default="")  # noqa: FBT003 -- the default
    config: MessageStoreConfig | str | os.PathLike[str] | None = opt(None, "", kind=Kind.FROM_CONFIG)

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        if not self.dry_run:
            raise InvalidOptionError(_ONLY_DRY)

    def on(self, engine: Engine, store: Store) -> RecoverReport:
        """Run a recovery for each release, as if it were the only one; no lock is taken."""
        from store_core.store.store_layout import check_is_store, chosen_log, config_of, configured_root

        path = one_root(store.paths)
        if isinstance(path_of(path), UrlPath):
            raise UnsupportedStoreError(
                f"{path}: a broker's start can be simulated only with files on a local disk, where nothing is "
                f"changed. Copy the store there, or mount it. To find out whether it is intact, check the URL"
            )
        config = config_of(self.config, chosen_log(path, self.config))
        path = os.fspath(path_of(path))
        root = configured_root(path, config)
        check_is_store(path_of(root), config, OsFileSystem())
        named = self.release
        releases = RELEASES if _ALL in named else cast("tuple[Release, ...]", named)
        runs = engine.run(_DryRuns(releases, path, config))
        return _report(root, runs, None if self.messages else MOST_MESSAGES)


recover = function_of(Recover)


@dataclass(frozen=True)
class _DryRuns(EachPart["Release", "RecoveryReport"]):
    """Dry runs of a recovery, a part for each release."""

    path: str
    config: MessageStoreConfig

    def run(self, part: Release) -> RecoveryReport:
        from store_core.store.message_store import DefaultMessageStore

        return DefaultMessageStore.dry_run(self.path, replace(self.config, release=part))


def _report(path: str | os.PathLike[str], runs: Sequence[RecoveryReport], most_messages: int | None) -> RecoverReport:
    truncated = _truncated(path, runs, most_messages)
    opened = [run for run in runs if not run.is_refused]
    facts = RecoverFacts(
        store=str(path),
        was_closed=all(run.last_exit_ok for run in runs),
        is_live=any(run.is_live for run in runs),
        end_offset=max((run.end_offset for run in opened), default=0),
        truncated_messages=truncated.total,
        are_all_messages_listed=truncated.total == len(truncated.rows),
        checked={run.release: run.coverage.as_json()["checked"] for run in runs},
        not_checked={run.release: run.coverage.as_json()["not_checked"] for run in runs},
        words=str(runs[0]) if len(runs) == 1 else "",
    )
    rows = {
        "releases": [_release_row(run, truncated.counts.get(run.release)) for run in runs],
        "messages": truncated.rows,
        "decisions": [
            {"release": run.release, "what": each.what, "where": each.where, "why": each.why}
            for run in runs
            for each in run.decisions
        ],
        "notes": [{"release": run.release, "note": note} for run in runs for note in run.notes],
        "changes": [
            {"release": run.release, **asdict(change), "path": str(change.path)}
            for run in runs
            for change in run.changes
        ],
    }
    return RecoverReport.of(facts, rows)


def _release_row(run: RecoveryReport, truncated: int | None) -> dict[str, Any]:
    verdict = _verdict(run).value
    if run.is_refused:
        return {"release": run.release, "verdict": verdict, "refusal": run.refusal}
    row = {name: getattr(run, name) for name in ("release", "truncated_files", "min_offset", "max_offset", "records")}
    log_end, changes = run.recovery_end_offset, len(run.changes)
    return {**row, "verdict": verdict, "log_end": log_end, "truncated_messages": truncated or 0, "changes": changes}


def _verdict(run: RecoveryReport) -> Verdict:
    if run.is_refused:
        return Verdict.REFUSED
    if run.changes:
        return Verdict.FINDINGS
    return Verdict.DAMAGED if run.end.tails else Verdict.CLEAN


# ---- messages


_COLUMNS: Final = (
    "physical_offset", "topic", "queue_id", "queue_offset", "keys", "store_size", "msg_id", "unique_key",
    "store_timestamp",
)  # fmt: skip


class _Truncated(NamedTuple):
    """Messages that are truncated: how many by which release, and the first of them."""

    counts: dict[str, int]
    total: int
    rows: list[dict[str, Any]]


def _truncated(path: str | os.PathLike[str], runs: Iterable[RecoveryReport], most: int | None) -> _Truncated:
    """Read the sound messages behind the end that the first release to end the log keeps."""
    from store_core.store.read.read_messages import read_messages

    ends = {run.release: (run.recovery_end_offset, run.end_offset) for run in runs if not run.is_refused}
    cut = [each for each in ends.values() if each[0] < each[1]]
    if not cut:
        return _Truncated({}, 0, [])
    begin, last = min(end for end, _ in cut), max(end for _, end in cut)
    counts = dict.fromkeys(ends, 0)
    rows: list[dict[str, Any]] = []
    total = 0
    with read_messages(
        path, columns=_COLUMNS, mode="DROPMALFORMED", starting_offsets=begin, ending_offsets=last
    ) as batches:
        for batch in batches:
            total += batch.num_rows
            offsets = batch["physical_offset"]
            for name, (end, stop) in ends.items():
                is_cut = pc.and_(pc.greater_equal(offsets, end), pc.less(offsets, stop))
                counts[name] += pc.sum(is_cut).as_py() or 0
            room = batch.num_rows if most is None else max(most - len(rows), 0)
            rows += map(dict, islice(_rows(batch, ends), room))
    return _Truncated(counts, total, rows)


def _rows(batch: pa.RecordBatch, ends: dict[str, tuple[int, int]]) -> Iterator[dict[str, Any]]:
    times = batch.column("store_timestamp").cast(pa.int64()).to_pylist()
    names = [name for name in _COLUMNS if name != "store_timestamp"]
    for row, time in zip(batch.select(names).to_pylist(), times, strict=True):
        truncated_by = [name for name, (end, stop) in ends.items() if end <= row["physical_offset"] < stop]
        yield {**row, "store_timestamp": time, "truncated_by": truncated_by}


# ---- the report

_RELEASE: Final = text("release", "the RocketMQ release that would open the store")


@dataclass(frozen=True, slots=True)
class RecoverFacts:
    """The facts of dry runs; `words` are those of the recovery, if only one release was asked for."""

    store: str = fact("the store root")
    was_closed: bool = fact("whether there is no file `abort`")
    is_live: bool = fact("whether a broker holds the store's lock: it would crash at a moment of this run")
    end_offset: int = fact("physical offset one past the last sound record, before anything is truncated")
    truncated_messages: int = fact("sound messages that at least one of the releases would truncate")
    are_all_messages_listed: bool = fact("whether the table `messages` has all of them")
    checked: Mapping[str, list[str]] = fact("by release: which checks it makes")
    not_checked: Mapping[str, list[str]] = fact("by release: which checks it does not make")
    words: str = ""


class RecoverReport(Report[RecoverFacts]):
    """What each release would truncate, rebuild or refuse."""

    SCHEMA: ClassVar = ReportSchema.of(
        "recover",
        2,
        RecoverFacts,
        table(
            "releases",
            "What each release would do",
            _RELEASE,
            text("verdict", "`clean`, `findings` if something would change, `damaged` or `refused`"),
            number("log_end", "physical offset at which it would end the log; null if refused"),
            number("truncated_messages", "sound messages that it would truncate"),
            number("truncated_files", "segments after the log's end, which it would delete"),
            number("changes", "files and directories that it would change"),
            number("min_offset", "physical offset of the log's first record", in_text=False),
            number("max_offset", "physical offset to which the next record goes", in_text=False),
            number("records", "records checked", in_text=False),
            text("refusal", "why it would not open the store, else null"),
        ),
        table(
            "messages",
            "Sound messages that would be truncated",
            *shared("physical_offset", "topic", "queue_id", "queue_offset", "keys"),
            *shared("store_size", "msg_id", "unique_key", "store_timestamp", in_text=False),
            ReportColumn("truncated_by", STRINGS_TYPE, "the releases that would truncate it"),
            names_messages=True,
        ),
        table(
            "decisions",
            "Decisions",
            _RELEASE,
            text("what", "what would be done"),
            text("where", "the file, directory or queue"),
            text("why", "the rule, and the facts it was applied to"),
        ),
        table("notes", "Notes", _RELEASE, text("note", "what an operator should know besides")),
        table(
            "changes",
            "Files that would change",
            _RELEASE,
            text("path", "the file or directory"),
            text("kind", "`created`, `removed`, `written` or `truncated`"),
            number("first_changed", "the first byte that would differ"),
            number("size", "its size after that"),
            truth("is_directory", "whether it is a directory"),
        ),
    )

    @property
    def verdict(self) -> Verdict:
        """The most urgent one of all releases."""
        return Verdict.first(self.tables["releases"]["verdict"].to_pylist())

    @property
    def plots(self) -> tuple[Plot, ...]:
        """How many messages each release would truncate, if one would."""
        if not self.found.truncated_messages:
            return ()
        names = ("release", "truncated_messages")
        rows = zip(*(self.tables["releases"][name].to_pylist() for name in names), strict=True)
        bars = [
            Bar(f"RocketMQ {name}", count, Tone.BAD, counted(count, "message"))
            for name, count in rows
            if count is not None
        ]
        return (Bars("Sound messages that each release would truncate", tuple(bars)),)

    def _in_text(self, table: ReportTable) -> pa.Table:
        """Return the releases side by side, and messages; the words have the rest, for one release."""
        is_shown = table.name == "messages" or (table.name == "releases" and not self.found.words)
        return super()._in_text(table) if is_shown else table.of([])

    def _is_listed_whole(self, table: ReportTable) -> bool:
        return table.name == "messages" and self.found.are_all_messages_listed

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield self._verdict_words()
        yield from found.words.split("\n") if found.words else self._of_several()
        if found.truncated_messages:
            yield f"{counted(found.truncated_messages, 'sound message')} would be truncated"
            if not found.are_all_messages_listed:
                first = self.tables["messages"].num_rows
                are = agreeing(first, "the first of them is", f"the first {first:,} of them are")
                yield f"{are} listed; --messages lists all"

    @property
    def next(self) -> Iterator[tuple[str, str]]:
        """What to do before a broker starts."""
        store = self.found.store
        if self.found.truncated_messages:
            yield command_words("salvage", store), "which messages are sound; --into NEW takes them into a new store"
        if self.verdict is not Verdict.CLEAN:
            yield command_words("check", store), "what is wrong with log, queues and index"

    def _verdict_words(self) -> str:
        lost = self.found.truncated_messages
        if lost:
            return f"a broker's start would cut off {counted(lost, 'sound message')}"
        if self.verdict is Verdict.REFUSED:
            return "a broker would refuse to start"
        return "a broker's start would lose no message"

    def _of_several(self) -> Iterator[str]:
        """Yield what several releases find alike, and why those that can't open the store refuse it."""
        found, refusals = self.found, self.tables["releases"]["refusal"].to_pylist()
        yield found.store
        not_closed = "is open" if found.is_live else "was not closed (there is an abort file)"
        yield "the store was closed" if found.was_closed else f"the store {not_closed}"
        if not all(refusals):
            yield f"the last sound record ends at {found.end_offset}"
        yield from (f"refused: {refusal}" for refusal in dict.fromkeys(filter(None, refusals)))
