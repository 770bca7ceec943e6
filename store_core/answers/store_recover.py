# SPDX-License-Identifier: Apache-2.0
"""What would a restart do? Dry runs of a store's recovery by one release or several, side by side."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.limits import MOST_MESSAGES
from store_core.answers.local_engine import local_engine
from store_core.answers.recover_report import RecoverFacts, RecoverReport
from store_core.answers.verdict import Verdict
from store_core.errors import UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.remote.url_path import UrlPath
from store_core.files.store_path import path_of
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.store.checked_config import check_is_store
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.store.configured_store import config_of, configured_store
from store_core.store.message_store import DefaultMessageStore
from store_core.store.read.read_messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.format.releases.release import Release
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.recovery.recovery_report import RecoveryReport

__all__ = ["recover", "recover_by"]

_COLUMNS: Final = (
    "physical_offset", "topic", "queue_id", "queue_offset", "keys", "store_size", "msg_id", "unique_key",
    "store_timestamp",
)  # fmt: skip


class _Truncated(NamedTuple):
    """Messages that are truncated: how many by which release, and the first of them."""

    counts: dict[str, int]
    total: int
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _DryRuns:
    """Dry runs of a recovery, a part for each release; see `store_core.store.parts.Job`."""

    path: str
    config: MessageStoreConfig
    releases: tuple[Release, ...]

    def plan(self) -> Sequence[Release]:
        return self.releases

    def run(self, part: Release) -> RecoveryReport:
        return DefaultMessageStore.dry_run(self.path, replace(self.config, release=part))

    def merge(self, partials: Iterable[RecoveryReport]) -> list[RecoveryReport]:
        return list(partials)


def recover(  # noqa: PLR0913 -- what is run, by how many processes, and who is informed
    path: str | os.PathLike[str],
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    *,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    releases: Sequence[Release] = (DEFAULT_RELEASE,),
    most_messages: int | None = MOST_MESSAGES,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> RecoverReport:
    """Say what opening a store for writing, as a broker does at its start, would truncate, rebuild or refuse.

    Nothing in the store changes, and no lock is taken.

    Parameters
    ----------
    path : path
        The store root.
    config : MessageStoreConfig or path, optional
        The broker's configuration, or the file with it. Its release does not count.
    store_path_commit_log : path, optional
        Which log is meant, where the store has one and the configuration names another; by default its own.
    releases : sequence of str
        RocketMQ releases that would open the store, each as if it were the only one.
    most_messages : int or None
        How many of the messages that would be truncated are listed; None for all. All are counted.
    processes : int
        Worker processes, each for one release at a time; 1 works in this process.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each release.

    Raises
    ------
    StoreNotFoundError
        If a directory has no part of a store.
    StoreError
        As for `store_core.DefaultMessageStore.dry_run`.

    Examples
    --------
    >>> from store_core.answers import recover
    >>> from store_core.format.releases.release import RELEASES
    >>> print(recover(store, releases=RELEASES).to_text())  # doctest: +SKIP
    """
    with local_engine(processes, on_progress) as engine:
        config = config_of(config, store_path_commit_log)
        return recover_by(engine, path, config, releases=releases, most_messages=most_messages)


def recover_by(
    engine: Engine,
    path: str | os.PathLike[str],
    config: MessageStoreConfig | None = None,
    *,
    releases: Sequence[Release] = (DEFAULT_RELEASE,),
    most_messages: int | None = MOST_MESSAGES,
) -> RecoverReport:
    """Say what opening a store would do as `recover` does, with an engine that runs the parts."""
    if isinstance(path_of(path), UrlPath):
        raise UnsupportedStoreError(
            f"{path}: a broker's start can be simulated only with files on a local disk, where nothing is "
            f"changed. Copy the store there, or mount it. To find out whether it is intact, check the URL"
        )
    config = config or MessageStoreConfig()
    path = configured_store(path, config)
    check_is_store(path_of(path), config, OsFileSystem())
    runs = engine.run(_DryRuns(os.fspath(path), config, tuple(releases)))
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
        "changes": list(chain.from_iterable(map(_change_rows, runs))),
    }
    return RecoverReport.of(facts, rows)


def _release_row(run: RecoveryReport, truncated: int | None) -> dict[str, Any]:
    verdict = _verdict(run).value
    if run.is_refused:
        return {"release": run.release, "verdict": verdict, "refusal": run.refusal}
    return {
        "release": run.release,
        "verdict": verdict,
        "log_end": run.recovery_end_offset,
        "truncated_messages": truncated or 0,
        "truncated_files": run.truncated_files,
        "changes": len(run.changes),
        "min_offset": run.min_offset,
        "max_offset": run.max_offset,
        "records": run.records,
    }


def _verdict(run: RecoveryReport) -> Verdict:
    if run.is_refused:
        return Verdict.REFUSED
    if run.changes:
        return Verdict.FINDINGS
    return Verdict.DAMAGED if run.end.tails else Verdict.CLEAN


def _change_rows(run: RecoveryReport) -> Iterator[dict[str, Any]]:
    for change in run.changes:
        yield {
            "release": run.release,
            "path": str(change.path),
            "kind": change.kind,
            "first_changed": change.first_changed,
            "size": change.size,
            "is_directory": change.is_directory,
        }


# ---- messages


def _truncated(path: str | os.PathLike[str], runs: Iterable[RecoveryReport], most: int | None) -> _Truncated:
    """Read the sound messages behind the end that the first release to end the log keeps."""
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
