# SPDX-License-Identifier: Apache-2.0
"""The answer `diff`: in what the logs of two stores differ, such as master and slave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.answers.diff_merge import merge, merge_records
from store_core.answers.local_engine import local_engine
from store_core.store.configured_store import configured_paths
from store_core.store.diff.diff_options import DiffBy, DiffOptions
from store_core.store.diff.log_pair import LogPair
from store_core.store.diff.record_digests import DIGESTED, Unmatched, digested_records, unmatched_records
from store_core.store.diff.segment_diff import DiffPart, DiffPartial, PartSide, diff_part
from store_core.store.least_value import check_least

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.answers.diff_report import DiffReport
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["DiffJob", "DigestKey", "RecordDiffJob", "diff", "diff_by", "plan"]


class DigestKey(NamedTuple):
    """The key of digests: their group, and where in which log their records are."""

    group: int
    side: str
    start_offset: int
    sequence: int


class DiffJob:
    """Compares two logs byte by byte, in parts; see `store_core.store.parts.Job`.

    Parameters
    ----------
    pair : LogPair
    options : DiffOptions
    """

    def __init__(self, pair: LogPair, options: DiffOptions) -> None:
        self.pair = pair
        self.options = options

    def plan(self) -> Sequence[DiffPart]:
        """Return the parts: a range of offsets in one file of each log."""
        return list(self.pair.parts(self.options.most_rows))

    def run(self, part: DiffPart) -> DiffPartial:
        """Compare one part."""
        return diff_part(part)

    def merge(self, partials: Iterable[DiffPartial]) -> DiffReport:
        """Make the report."""
        return merge(self.pair, self.options, partials)


class RecordDiffJob:
    """Compares two logs record by record, in parts; see `store_core.store.parts.GroupedJob`.

    Pieces are digests, 24 bytes a record, which an engine on one machine holds in memory.

    Parameters
    ----------
    pair : LogPair
    options : DiffOptions
    """

    groups = 16

    def __init__(self, pair: LogPair, options: DiffOptions) -> None:
        self.pair = pair
        self.options = options

    def plan(self) -> Sequence[PartSide]:
        """Return the parts: the segment files of both logs."""
        a, b = self.pair.a, self.pair.b
        sides = ((a, b), (b, a))
        return [PartSide.of(side, segment, other) for side, other in sides for segment in side.segments]

    def run(self, part: PartSide) -> Iterator[tuple[DigestKey, bytes]]:
        """Digest the records of a segment file."""
        for sequence, records in enumerate(digested_records(part)):
            digests = np.ascontiguousarray(records["digest"])
            groups = digests.view(np.uint8).reshape(digests.size, -1)[:, 0] % self.groups
            for group in np.unique(groups).tolist():
                key = DigestKey(group, part.name, part.segment.start_offset, sequence)
                yield key, records[groups == group].tobytes()

    def gather(self, pieces: Iterable[tuple[DigestKey, bytes]]) -> Iterator[Unmatched]:
        """Find which records of a group only one log has."""
        packed: dict[str, list[bytes]] = {"a": [], "b": []}
        for key, piece in pieces:
            packed[key.side].append(piece)
        yield unmatched_records(*(np.frombuffer(b"".join(packed[side]), DIGESTED) for side in ("a", "b")))

    def merge(self, partials: Iterable[Unmatched]) -> DiffReport:
        """Make the report."""
        return merge_records(self.pair, self.options, partials)


def plan(a: StorePaths, b: StorePaths, options: DiffOptions | None = None) -> DiffJob | RecordDiffJob:
    """Plan a comparison: find where both logs begin and end, and choose how they are compared.

    Raises
    ------
    StoreError
        As `diff` raises.
    """
    chosen = options or DiffOptions()
    check_least(0, most_rows=chosen.most_rows)
    pair = LogPair.of(a, b)
    by_records = chosen.by is DiffBy.RECORDS or (chosen.by is DiffBy.AUTO and not pair.is_cut_alike)
    return RecordDiffJob(pair, chosen) if by_records else DiffJob(pair, chosen)


def diff_by(engine: Engine, a: StorePaths, b: StorePaths, options: DiffOptions | None = None) -> DiffReport:
    """Compare two logs on an engine; see `diff`."""
    job = plan(a, b, options)
    return engine.run(job) if isinstance(job, DiffJob) else engine.run_grouped(job)


def diff(  # noqa: PLR0913 -- what is asked, of which store, and by how many processes
    a: StorePaths,
    b: StorePaths,
    options: DiffOptions | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> DiffReport:
    """Compare the logs of two stores, such as master and slave, or a backup and the live store.

    Nothing is written, and no lock is taken. What follows the end of a log that a broker holds is not looked at: a
    record may be in progress there.

    Parameters
    ----------
    a, b : path or sequence of paths
        As of `store_core.read_messages`.
    options : DiffOptions, optional
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Returns
    -------
    DiffReport

    Raises
    ------
    StoreError
        If an option is invalid, or a path has nothing to read.
    SegmentVanishedError
        If retention deleted a segment while it was compared.

    Examples
    --------
    >>> from store_core.answers import diff
    >>> report = diff("/data/master", "/data/slave")  # doctest: +SKIP
    >>> print(report.to_text())  # doctest: +SKIP
    """
    a, b = configured_paths(a, config), configured_paths(b, config)
    with local_engine(processes, on_progress) as engine:
        return diff_by(engine, a, b, options)
