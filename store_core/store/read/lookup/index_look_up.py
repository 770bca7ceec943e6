# SPDX-License-Identifier: Apache-2.0
"""Reading the records of a key by the entries of the index, where that pays and the index proves complete."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.segment_source import open_segment
from store_core.files.store_kind import has_queues
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.files.store_path import store_roots
from store_core.format.columnar.chain import Chain
from store_core.format.java_hash import hash_code, positive_hash
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.queue_rules import QueueRules
from store_core.store.config.index_listing import ListedIndexFile, index_paths
from store_core.store.memory import keep_freed_memory
from store_core.store.read.lookup.index_check import first_contradiction, picks_at
from store_core.store.read.lookup.index_cover import left_out
from store_core.store.read.lookup.index_entries import MOST_OTHERS, IndexDoubtError, IndexEntries
from store_core.store.read.lookup.index_survey import IndexFileInStore, survey_index
from store_core.store.read.lookup.proofs import FileState, proofs_of
from store_core.store.read.lookup.queue_look_up import MOST_MAPPED, Unsuitable
from store_core.store.read.lookup.queue_tiling import THREADS, QueueTiling, UnaccountedError, ask_nothing, known_end
from store_core.store.read.lookup.store_queues import StoreQueues

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.chain import Place
    from store_core.format.releases.release import Release
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.index_survey import IndexSurvey
    from store_core.store.read.lookup.proofs import ProofsOfStore
    from store_core.store.read.lookup.unit_block import QueueUnits
    from store_core.store.read.picks import Picks
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["IndexLookUp", "plan_index_look_up"]

_DEFAULT_COUNTS: Final = (QueueRules().max_hash_slot_num, QueueRules().max_index_num)
_READ_IN_ANOTHER_WAY: Final = re.compile("[\x01\x02\ufffd\ud800-\udfff]")
"""Characters of a key that releases read differently, or that stand for malformed bytes."""


@dataclass(slots=True)
class IndexLookUp:
    """The index and the queues of a store, read and found worth using.

    Attributes
    ----------
    tiling : QueueTiling
        Which records there are.
    surveys : list of IndexSurvey
        What the index files say that do not contradict themselves, oldest first.
    hits : list of numpy.ndarray
        Of `INDEX_DTYPE`: of each of these files all entries in the slots of the hashes that are asked for.
    options : ReadOptions
    costs : LookUpCosts
    notes : list of str
    mapped : dict of Segment to Chain
        Segments that were mapped, whose pages a reader in the same process need not map again.
    """

    tiling: QueueTiling
    surveys: list[IndexSurvey]
    hits: list[npt.NDArray[np.void]]
    options: ReadOptions
    costs: LookUpCosts
    notes: list[str] = field(default_factory=list)
    mapped: dict[Segment, Chain] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """Name of the plan."""
        return "index"

    @property
    def why(self) -> str:
        """Why it was chosen."""
        return "entries of the index lead to the records, and all others have entries of other keys"

    @property
    def units(self) -> int:
        """Number of units that were read."""
        return self.tiling.units

    @property
    def entries(self) -> int:
        """Number of entries of the index that were read."""
        return sum(survey.count for survey in self.surveys)

    def known_end(self, segment: Segment, *, verify_crc: bool) -> Place:
        """Return up to where the last segment's records are known, as `QueueLookUp.known_end` does."""
        return known_end(self.tiling, segment, verify_crc=verify_crc)

    def narrowed(self, whole: Sequence[ReadRange], parts: Sequence[ReadRange]) -> list[ReadRange] | Unsuitable:
        """Return the records to read, and the segments to scan of which the index leaves out too many records.

        Parameters
        ----------
        whole : sequence of ReadRange
            The segments whose end is known.
        parts : sequence of ReadRange
            What the options ask for of them.
        """
        del whole
        asked = {part.segment: part.data_end for part in parts}
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                found = dict(zip(asked, pool.map(self._records, asked, asked.values()), strict=True))
        except (UnaccountedError, IndexDoubtError, OSError, CorruptDatabaseError) as error:
            return Unsuitable(f"the index is not complete: {error}", tuple(self.notes))
        scanned = [segment.name for segment, picks in found.items() if picks is None]
        if len(scanned) == len(found) > 0:
            return Unsuitable("the index leaves out too many records, or names places where none is", tuple(self.notes))
        self.notes += [f"segment {name} is scanned: the index does not account for it" for name in scanned]
        return [each for each in (_narrowed(part, found[part.segment]) for part in parts) if each is not None]

    def _records(self, segment: Segment, data_end: int) -> Picks | None:
        """Return the records of a segment that can have the key; None to scan it."""
        data_end = min(data_end, self.tiling.span_of(segment)[1])
        unqueued = self.tiling.unqueued(segment, data_end)
        others = np.empty(0, np.int64) if unqueued is None else unqueued.starts
        missing = left_out(self.tiling, self.surveys, segment, data_end, others)
        most = self.costs.most_share * (data_end - segment.start_offset) / self.costs.per_record
        if missing is None or missing.size > most:
            return None
        hits = self._of(segment, data_end, self.hits)
        samples = self._of(segment, data_end, (survey.samples for survey in self.surveys))
        edges = np.array([edge for survey in self.surveys for edge in (survey.first, survey.last)], np.int64)
        edges = edges[(edges >= segment.start_offset) & (edges < data_end)]
        with open_segment(segment) as opened:
            raw = opened.raw[: data_end - segment.start_offset]
            _check_entries(raw, segment, hits, self.options, are_complete=False)
            _check_entries(raw, segment, samples, self.options, are_complete=True)
            if len(self.mapped) < MOST_MAPPED:
                self.mapped[segment] = Chain(segment.view(opened))
            starts = np.unique(np.concatenate([hits["physical_offset"].astype(np.int64), others, missing, edges]))
            return _sound_picks(raw, segment, starts)

    def _of(self, segment: Segment, data_end: int, pieces: Iterable[npt.NDArray[np.void]]) -> npt.NDArray[np.void]:
        """Return the entries of a segment's records, in order."""
        entries = np.concatenate([np.empty(0, INDEX_DTYPE), *pieces])
        offsets = entries["physical_offset"].astype(np.int64)
        mine = np.flatnonzero((offsets >= segment.start_offset) & (offsets < data_end))
        return entries[mine[np.argsort(offsets[mine], kind="stable")]]


def _check_entries(
    raw: npt.NDArray[np.uint8],
    segment: Segment,
    entries: npt.NDArray[np.void],
    options: ReadOptions,
    *,
    are_complete: bool,
) -> None:
    """Check that records have the keys of their entries."""
    if not entries.size:
        return
    first = segment.start_offset
    _sound_picks(raw, segment, np.unique(entries["physical_offset"].astype(np.int64)))
    wrong = first_contradiction(raw, first, entries, cast("Release", options.release), are_complete=are_complete)
    if wrong is not None:
        raise IndexDoubtError(f"the record at offset {wrong} of {segment.path} has other keys than its entries say")


def _sound_picks(raw: npt.NDArray[np.uint8], segment: Segment, starts: npt.NDArray[np.int64]) -> Picks:
    picks = picks_at(raw, segment.start_offset, starts)
    wrong = picks.first_wrong(raw, segment)
    if wrong is not None:
        raise IndexDoubtError(f"at offset {wrong} of {segment.path} there is no sound record")
    return picks


def _narrowed(part: ReadRange, picks: Picks | None) -> ReadRange | None:
    """Return a range with its records; None if it has none."""
    if picks is None:
        return part
    mine = picks.between(part.begin, part.end)
    return None if mine is None else replace(part, picks=mine)


def plan_index_look_up(  # noqa: PLR0913 -- as of `plan_queue_look_up`
    paths: StorePaths,
    segments: Sequence[Segment],
    asked_size: int,
    options: ReadOptions,
    costs: LookUpCosts,
    resources: ExitStack,
) -> IndexLookUp | Unsuitable:
    """Read the index of a store and the units of its queues, if the options ask for a key, and that is worth it.

    Parameters
    ----------
    As of `plan_queue_look_up`.
    """
    reason = _refusal(options)
    if reason is None and asked_size < costs.least_log:
        reason = f"a scan reads less than {costs.least_log >> 20} MiB"
    if reason is not None:
        return Unsuitable(reason)
    roots = [root for root in store_roots(paths) if (root / INDEX_DIRECTORY).is_dir()]
    if len(roots) != 1 or not has_queues(roots[0]):
        return Unsuitable(_missing(roots))
    notes: list[str] = []
    proofs = proofs_of(roots[0], options)
    try:
        files = _files(roots[0] / INDEX_DIRECTORY, notes)
        size = sum(file.listed.header.index_count * INDEX_DTYPE.itemsize + costs.per_file for file in files)
        if not files:
            return Unsuitable("there are no entries in the index", tuple(notes))
        found = StoreQueues.open(roots[0], costs, int(costs.most_share * asked_size) - size, resources)
        if isinstance(found, str):
            return Unsuitable(f"its proof needs the queues: {found}", tuple(notes))
        return _read(found.queues, files, segments, options, costs, proofs, notes)
    except (OSError, CorruptDatabaseError, UnsupportedStoreError) as error:
        return Unsuitable(f"the index can't be read: {error}", tuple(notes))


def _missing(roots: Sequence[Path]) -> str:
    if not roots:
        return "there is no index beside the log"
    return "there are indexes of several stores" if roots[1:] else "there are no queues beside the log, which prove it"


def _refusal(options: ReadOptions) -> str | None:
    named = options.key if options.unique_key is None else options.unique_key
    if named is None:
        return "no option names a key"
    if options.use_index_files == "never" or options.use_consume_queues == "never":
        name = "use_index_files" if options.use_index_files == "never" else "use_consume_queues"
        return f"option {name} is never"
    if not options.is_failfast:
        return f"mode {options.mode.name} looks for damage everywhere"
    if any(_READ_IN_ANOTHER_WAY.search(text) for text in (named, *options.topic)):
        return "releases read such a key or topic in different ways"
    return None


def _files(directory: Path, notes: list[str]) -> list[IndexFileInStore]:
    """Return the index files that have entries, and where they are found."""
    files: list[IndexFileInStore] = []
    paths = index_paths(directory)
    expected = _DEFAULT_COUNTS
    for path in paths:
        if not path.is_file():
            continue
        try:
            state = FileState.of(path.stat())
            file = ListedIndexFile.read(path, expected, is_full=path != paths[-1])
        except FileNotFoundError:
            continue
        if file.is_sound:
            expected = file.slots, file.most_entries
            files.append(IndexFileInStore(file, state, path == paths[-1]))
        elif not file.is_empty:
            notes.append(f"index file {path} is not used: its slots do not lead to the entries that its header counts")
    return files


def _read(  # noqa: PLR0913 -- the two structures, the log, and what is asked of it
    queues: Sequence[QueueUnits],
    files: Sequence[IndexFileInStore],
    segments: Sequence[Segment],
    options: ReadOptions,
    costs: LookUpCosts,
    proofs: ProofsOfStore,
    notes: list[str],
) -> IndexLookUp | Unsuitable:
    """Read the units, then the entries: a broker puts units first, so that few entries are of later records."""
    keep_freed_memory()
    tiling = QueueTiling(queues, segments, ask_nothing, costs, proofs)
    topics = options.topic or tuple({survey.queue.topic for survey in tiling.surveys})
    named = options.key if options.unique_key is None else options.unique_key
    hashes = sorted({positive_hash(hash_code(f"{topic}#{named}")) for topic in topics})
    most = int(costs.most_share * sum(segment.size for segment in segments)) // costs.per_record
    surveys, hits = [], []
    for file in files:
        try:
            survey = survey_index(file, tiling.spans, proofs)
            hits.append(IndexEntries(survey.file).in_chains(hashes, most + MOST_OTHERS))
            surveys.append(survey)
        except IndexDoubtError as error:
            notes.append(f"an index file is not used: {error}")
    if not surveys:
        return Unsuitable("no index file can be used", tuple(notes))
    return IndexLookUp(tiling, surveys, hits, options, costs, [*notes, *tiling.notes])
