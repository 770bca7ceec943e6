# SPDX-License-Identifier: Apache-2.0
"""The answer `retention`: which files a broker will delete, when, and which messages nobody has consumed by then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from store_core.answers.local_engine import local_engine
from store_core.answers.retaining.disk_forecast import DiskForecast, DiskState, LogFile
from store_core.answers.retaining.losses import losses
from store_core.answers.retaining.pointing_files import pointing_files
from store_core.answers.retaining.retention_report import RetentionFacts, RetentionReport
from store_core.answers.retaining.strange_settings import strange_settings
from store_core.answers.store_lag import LagJob, LagOptions
from store_core.errors import CorruptRecordError, InvalidOptionError, StoreAccessError, StoreNotFoundError
from store_core.files.file_system import disk_bytes
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import modified_ns
from store_core.files.store_kind import StoreUse
from store_core.files.store_path import nothing_at, places_of
from store_core.format.iso_time import iso_time
from store_core.format.table_time import table_time
from store_core.format.utc_day import DAY_MS
from store_core.snapshot.log import first_store_timestamp, has_record
from store_core.snapshot.queues import Queues
from store_core.snapshot.store import Store
from store_core.store.clean.disk_space import DiskLimits
from store_core.store.configured_store import config_of, configured_paths
from store_core.store.read.read_messages import read_messages

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.answers.retaining.disk_forecast import Deletion
    from store_core.answers.retaining.pointing_files import PointingFile
    from store_core.answers.retaining.retention_options import RetentionOptions
    from store_core.answers.store_lag import LagPart, LagPartial
    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["RetentionJob", "retention", "retention_by"]

_HOUR_MS: Final = 3_600_000
_MOST_FILES: Final = 50_000
"""Files by which a log may grow in a forecast: fifty terabytes of the usual size."""


@dataclass(frozen=True, slots=True)
class _Log:
    """The files of a log, where its records end, and the store times of the first and the last."""

    files: tuple[LogFile, ...]
    end: int
    last: int | None
    first: int | None
    is_dledger: bool = False

    @property
    def begin(self) -> int:
        return self.files[0].start_offset

    @property
    def daily_growth(self) -> int:
        """Bytes a day, by the log's own store times; 0 if they don't tell."""
        return (self.end - self.begin) * DAY_MS // self.span if self.span else 0

    @property
    def span(self) -> int:
        """Milliseconds between the two store times; 0 if they don't tell."""
        return 0 if self.first is None or self.last is None else max(self.last - self.first, 0)


class RetentionJob:
    """Looks at queues as `LagJob` does, and foresees deletions when it merges; see `store_core.store.parts.Job`.

    Parameters
    ----------
    store : path or sequence of paths
    options : RetentionOptions
    """

    def __init__(self, store: StorePaths, options: RetentionOptions) -> None:
        store = configured_paths(store, options.config)
        root = Store(store).root_for(StoreUse.READ_QUEUES)
        self.options = options
        self.root = root
        self.log = _log_of(store)
        self.notes: tuple[str, ...] = ()
        self.lag: LagJob | None = None
        try:
            self.lag = LagJob(store, LagOptions())
        except (StoreNotFoundError, CorruptRecordError, StoreAccessError) as error:
            self.notes = (f"which messages are not consumed is not known: {error}",)

    def plan(self) -> Sequence[LagPart]:
        """Return the parts: queues that groups consume."""
        return [] if self.lag is None else self.lag.plan()

    def run(self, part: LagPart) -> LagPartial:
        """Look at the queues of a part."""
        if self.lag is None:
            raise AssertionError("there are no parts")
        return self.lag.run(part)

    def merge(self, partials: Iterable[LagPartial]) -> RetentionReport:
        """Make the report."""
        rows = [row for each in partials for row in each.rows]
        root, options = self.root, self.options
        files = [] if _is_rocksdb(root) else list(pointing_files(root))
        forecast = DiskForecast(options.config, self._state(root, files), options.time_zone)
        until = self._until(forecast.state)
        forecast.run(until)
        tables = {
            "losses": [] if self.lag is None else list(losses(rows, forecast, until, self.lag.queues)),
            "deletions": [_deletion_row(each) for each in forecast.deletions],
            "files": list(_file_rows(files, forecast)),
            "days": [_day_row(forecast, end) for end in range(options.now + DAY_MS, until + 1, DAY_MS)],
        }
        return RetentionReport.of(self._facts(forecast, until, tables), tables)

    def _until(self, state: DiskState) -> int:
        """Return up to when deletions are foreseen: as asked, unless the log would have too many files by then."""
        asked = self.options.days * DAY_MS
        most = asked if not state.log_growth else int(_MOST_FILES * state.files[-1].size / state.log_growth)
        return self.options.now + min(asked, most)

    def _state(self, root: Path, files: Iterable[PointingFile]) -> DiskState:
        size, used = self.options.disk_size or 0, self.options.disk_used or 0
        if not size or self.options.disk_used is None:
            size, used = self._disk(root)
        length = max(self.log.end - self.log.begin, 1)
        growth = self.log.daily_growth if self.options.daily_growth is None else self.options.daily_growth
        overhead = round(sum(file.size for file in files) / length, 4)
        return DiskState(self.options.now, self.log.files, self.log.end, size, used, growth / DAY_MS, overhead)

    def _disk(self, root: Path) -> tuple[int, int]:
        """Return size and use of the store's disk, as far as the options do not say."""
        if isinstance(root, UrlPath):
            raise InvalidOptionError(
                f"{root} is not on a local disk: give the size and use of the broker's, disk_size and disk_used"
            )
        size, used = disk_bytes(root)
        given = self.options.disk_used
        return self.options.disk_size or size, used if given is None else given

    def _facts(self, forecast: DiskForecast, until: int, tables: dict[str, list[dict[str, Any]]]) -> RetentionFacts:
        options, state, limits = self.options, forecast.state, DiskLimits.of(self.options.config)
        left = forecast.log_end_at(until) - forecast.log_begin_at(until)
        lost = tables["losses"]
        return RetentionFacts(
            store=str(self.root),
            now=iso_time(options.now),
            until=iso_time(until),
            release=options.config.release,
            file_reserved_time=options.config.file_reserved_time,
            delete_when=options.config.delete_when,
            time_zone=None if options.time_zone is None else str(options.time_zone),
            delete_ratio=limits.delete,
            forcible_ratio=limits.forcible,
            warning_ratio=limits.warning,
            clean_file_forcibly_enable=options.config.clean_file_forcibly_enable,
            log_begin=self.log.begin,
            log_end=self.log.end,
            first_store_timestamp=_time(self.log.first),
            last_store_timestamp=_time(self.log.last),
            daily_growth=round(state.log_growth * DAY_MS),
            overhead=state.overhead,
            disk_size=state.disk_size,
            disk_used=state.disk_used,
            deleted_segments=len(forecast.deletions),
            deleted_bytes=sum(each.file.size for each in forecast.deletions),
            first_deletion=_time(forecast.deletions[0].at if forecast.deletions else None),
            over_ratio_at=_time(forecast.over_ratio_at),
            full_at=_time(forecast.full_at),
            kept_hours=round(left / state.log_growth / _HOUR_MS, 1) if state.log_growth else None,
            losing_groups=len(lost),
            lost_messages=sum(row["messages"] for row in lost),
            notes=(*self.notes, *self._own_notes(until)),
        )

    def _own_notes(self, until: int) -> Iterator[str]:
        if until < self.options.now + self.options.days * DAY_MS:
            more = f"the log would have {_MOST_FILES:,} more files by then"
            yield f"this is foreseen up to {iso_time(until)} only: {more}"
        yield from strange_settings(self.options.config)
        if self.options.disk_size is None:
            yield (
                "the disk is the one that this store is on now: for a copy, say what the broker's disk has "
                "(--disk-size, --disk-used)"
            )
        if isinstance(self.root, UrlPath):
            yield "times of modification are those of the copy: files go as if the broker had written them then"
        if self.options.daily_growth is None and self.log.daily_growth and self.log.span < DAY_MS:
            seen = f"{self.log.span / 1000:,g} s of messages"
            yield f"the growth is an estimate from {seen}: give the broker's own, in bytes a day (--daily-growth)"
        if self.options.daily_growth is None and not self.log.daily_growth:
            yield "the growth is not known: the log's first and last record have no store times that differ"
        if _is_rocksdb(self.root):
            yield "queues are in a RocksDB, which drops units by compaction, not files"
        if self.log.is_dledger:
            yield "this is a DLedger log, which deletes by settings of its own, of the same names and defaults"


def retention_by(engine: Engine, store: StorePaths, options: RetentionOptions) -> RetentionReport:
    """Foresee deletions on an engine; see `retention`."""
    return engine.run(RetentionJob(store, options))


def retention(
    store: StorePaths,
    options: RetentionOptions,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> RetentionReport:
    """Say which files a broker will delete, when and why, and which messages nobody will have consumed by then.

    The rules are RocketMQ's: age by the files' modification times, the hours of ``deleteWhen``, and how full the disk
    is; see `store_core.store.clean`. The log is taken to grow as its own store times say. What groups consume until
    then is not foreseen: the messages named are those not consumed now. Of the log, its last segment is read, the first
    record of the first, and a record for each queue. Nothing is written or locked.

    Parameters
    ----------
    store : path or sequence of paths
        The store's root; modification times have to be those of the broker's files.
    options : RetentionOptions
        With the present time: this package reads no clock here.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Returns
    -------
    RetentionReport

    Raises
    ------
    StoreError
        If there is no log, or a file of it is broken.

    Examples
    --------
    >>> from store_core.answers import RetentionOptions, retention
    >>> options = RetentionOptions.of("2024-05-01T12:00:00Z", file_reserved_time=48)
    >>> print(retention("/data/store", options).to_text())  # doctest: +SKIP
    """
    options = options if config is None else replace(options, config=config_of(config, release=options.config.release))
    with local_engine(processes, on_progress) as engine:
        return retention_by(engine, store, options)


# ---- what is there


def _log_of(store: StorePaths) -> _Log:
    segments = list(Store(store).log.segments)
    while len(segments) > 1 and not has_record(segments[-1]):
        segments.pop()
    if not segments:
        raise nothing_at(places_of(store), ())
    files = tuple(
        LogFile(segment.start_offset, segment.size, modified_ns(segment) // 1_000_000, segment.name)
        for segment in segments
    )
    is_dledger = bool(segments[0].framing.lead)
    return _Log(files, *_end_of(store, segments[-1]), first_store_timestamp(segments[0]), is_dledger)


def _end_of(store: StorePaths, last: Segment) -> tuple[int, int | None]:
    """Return where the records of the last segment end, and the latest of their store times."""
    columns = ["physical_offset", "store_size", "store_timestamp_ms"]
    end, latest = last.start_offset, None
    for batch in read_messages(store, columns=columns, starting_offsets=last.start_offset, mode="DROPMALFORMED"):
        end = int(batch["physical_offset"][-1].as_py()) + int(batch["store_size"][-1].as_py())
        time = int(pc.max(batch["store_timestamp_ms"]).as_py())
        latest = time if latest is None else max(time, latest)
    return end, latest


def _is_rocksdb(root: Path) -> bool:
    return Queues(root).database is not None


# ---- rows of the report


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else iso_time(milliseconds)


def _deletion_row(deletion: Deletion) -> dict[str, Any]:
    file = deletion.file
    return {
        "segment": file.name or None,
        "start_offset": file.start_offset,
        "bytes": file.size,
        "last_modified": table_time(file.last_modified),
        "deleted": table_time(deletion.at),
        "reason": deletion.reason.value,
    }


def _file_rows(files: Iterable[PointingFile], forecast: DiskForecast) -> Iterator[dict[str, Any]]:
    """Yield the files that go; each goes when the log begins after all that it points to."""
    for file in files:
        gone = forecast.deleted_at(file.goes_above)
        if gone is not None:
            yield {"path": file.path, "bytes": file.size, "deleted": table_time(gone.at)}


def _day_row(forecast: DiskForecast, end: int) -> dict[str, Any]:
    used = max(round(forecast.used_at(end)), 0)
    return {
        "day": table_time(end),
        "disk_used": used,
        "percent": -(-used * 100 // forecast.state.disk_size),
        "log_bytes": forecast.log_end_at(end) - forecast.log_begin_at(end),
        "deleted_segments": sum(end - DAY_MS < each.at <= end for each in forecast.deletions),
    }
