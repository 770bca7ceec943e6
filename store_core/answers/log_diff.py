# SPDX-License-Identifier: Apache-2.0
"""The answer `diff`: whether two logs are the same, and where they are not."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from store_core.answers.answer import Answer, Kind, flag, function_of, opt
from store_core.store.log_side import DiffBy, DiffOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.answers.diff_report import DiffReport
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine
    from store_core.store.segment_diff import DiffPart, DiffPartial, LogPair, PartSide, Unmatched


__all__ = ["Diff", "DiffJob", "RecordDiffJob", "diff"]


@dataclass(frozen=True)
class Diff(Answer["DiffReport"]):
    """Compare the logs of two stores, such as master and slave, or a backup and the live store.

    The exit code is 0 if nothing differs in what both logs should have, and 1 if something does. A record in progress
    at the end of a live log is no difference.
    """

    NAME: ClassVar = "diff"
    STORE: ClassVar = "A"
    EXAMPLES: ClassVar = (
        "commitlog diff /data/master/store /data/slave/store",
        "commitlog diff /data/store /backup/store --same-extent --processes 4",
        "commitlog diff /data/store /backup/store --json",
    )

    b: StorePaths = opt(MISSING, "The other store.", kind=Kind.STORE, flag="", metavar="B")
    by: DiffBy = opt(
        DiffBy.AUTO,
        "bytes: those at each physical offset. records: wherever in the logs they are. auto: bytes, unless the two "
        "have segments of different sizes.",
        choices=DiffBy,
    )
    same_extent: bool = flag("Also report it if one begins or ends elsewhere.")
    most_rows: int = opt(1000, "Rows listed; all are counted.", metavar="N", least=0)

    def on(self, engine: Engine, store: StorePaths) -> DiffReport:
        """Find where both logs begin and end, then compare them in parts, by bytes or by records.

        What follows the end of a log that a broker holds is not looked at: a record may be in progress there.
        """
        from store_core.store.segment_diff import LogPair

        options, pair = DiffOptions(self.by, self.most_rows, self.same_extent), LogPair.of(store, self.b)
        if self.by is DiffBy.RECORDS or (self.by is DiffBy.AUTO and not pair.is_cut_alike):
            return engine.run_grouped(RecordDiffJob(pair, options))
        return engine.run(DiffJob(pair, options))


diff = function_of(Diff)


class DigestKey(NamedTuple):
    """The key of digests: their group, and where in which log their records are."""

    group: int
    side: str
    start_offset: int
    sequence: int


class DiffJob:
    """Compares two logs byte by byte, in parts; see `store_core.store.parts.Job`."""

    def __init__(self, pair: LogPair, options: DiffOptions) -> None:
        self.pair = pair
        self.options = options

    def plan(self) -> Sequence[DiffPart]:
        """Return the parts: a range of offsets in one file of each log."""
        return list(self.pair.parts(self.options.most_rows))

    def run(self, part: DiffPart) -> DiffPartial:
        """Compare one part."""
        from store_core.store.segment_diff import diff_part

        return diff_part(part)

    def merge(self, partials: Iterable[DiffPartial]) -> DiffReport:
        """Make the report."""
        from store_core.answers.diff_merge import merge

        return merge(self.pair, self.options, partials)


class RecordDiffJob:
    """Compares two logs record by record, in parts; see `store_core.store.parts.GroupedJob`.

    Pieces are digests, 24 bytes a record, which an engine on one machine holds in memory.
    """

    groups = 16

    def __init__(self, pair: LogPair, options: DiffOptions) -> None:
        self.pair = pair
        self.options = options

    def plan(self) -> Sequence[PartSide]:
        """Return the parts: the segment files of both logs."""
        from store_core.store.segment_diff import PartSide

        a, b = self.pair.a, self.pair.b
        sides = ((a, b), (b, a))
        return [PartSide.of(side, segment, other) for side, other in sides for segment in side.segments]

    def run(self, part: PartSide) -> Iterator[tuple[DigestKey, bytes]]:
        """Digest the records of a segment file."""
        from store_core.store.segment_diff import digested_records

        for sequence, records in enumerate(digested_records(part)):
            digests = np.ascontiguousarray(records["digest"])
            groups = digests.view(np.uint8).reshape(digests.size, -1)[:, 0] % self.groups
            for group in np.unique(groups).tolist():
                key = DigestKey(group, part.name, part.segment.start_offset, sequence)
                yield key, records[groups == group].tobytes()

    def gather(self, pieces: Iterable[tuple[DigestKey, bytes]]) -> Iterator[Unmatched]:
        """Find which records of a group only one log has."""
        from store_core.store.segment_diff import DIGESTED, unmatched_records

        packed: dict[str, list[bytes]] = {"a": [], "b": []}
        for key, piece in pieces:
            packed[key.side].append(piece)
        yield unmatched_records(*(np.frombuffer(b"".join(packed[side]), DIGESTED) for side in ("a", "b")))

    def merge(self, partials: Iterable[Unmatched]) -> DiffReport:
        """Make the report."""
        from store_core.answers.diff_merge import merge_records

        return merge_records(self.pair, self.options, partials)
