# SPDX-License-Identifier: Apache-2.0
"""Reading the records of a key by the entries of the index, where that pays and the index proves complete."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.remote.url_path import remote_file_of
from store_core.files.store_kind import has_queues
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.files.store_path import store_roots
from store_core.format.java import hash_code, positive_hash
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_slots import SLOT_SIZE
from store_core.queue.queue_rules import QueueRules
from store_core.store.config.index_listing import ListedIndexFile, index_paths
from store_core.store.memory import keep_freed_memory
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.filed_proofs import proofs_of
from store_core.store.read.lookup.index_check import first_contradiction, load_records, picks_at
from store_core.store.read.lookup.index_cover import left_out
from store_core.store.read.lookup.index_entries import (
    MOST_OTHERS,
    SAMPLES,
    IndexDoubtError,
    IndexEntries,
    offsets_of,
)
from store_core.store.read.lookup.index_survey import IndexFileInStore, survey_index
from store_core.store.read.lookup.known_end import known_end
from store_core.store.read.lookup.opened_segments import threads_for
from store_core.store.read.lookup.queue_look_up import Unsuitable
from store_core.store.read.lookup.queue_tiling import UnaccountedError, whole_tiling
from store_core.store.read.lookup.remote_costs import is_far, price_of_proof
from store_core.store.read.lookup.store_queues import StoreQueues

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.chain import Chain, Place
    from store_core.format.releases.release import Release
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.filed_proofs import FiledProofs
    from store_core.store.read.lookup.index_survey import IndexSurvey
    from store_core.store.read.lookup.queue_tiling import QueueTiling
    from store_core.store.read.picks import Picks
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["IndexLookUp", "plan_index_look_up"]

_DEFAULT_COUNTS: Final = (QueueRules().max_hash_slot_num, QueueRules().max_index_num)
_USUAL_SLOTS_SIZE: Final = SLOT_SIZE * _DEFAULT_COUNTS[0]
_OTHER_REQUESTS: Final = 16
"""Requests for an index file on another machine besides those of samples: to open it, and to follow the chain of a key
to its records."""

_MOST_RECORDS: Final = 1 << 12
"""Records of a segment on another machine above which it is scanned: all are loaded at once."""

_READ_IN_ANOTHER_WAY: Final = re.compile("[\x01\x02\ufffd\ud800-\udfff]")
"""Characters of a key that releases read differently, or that stand for malformed bytes."""


_NUMBER_SIZE: Final = 40
"""Bytes that a number in a list takes in memory."""


@dataclass(slots=True)
class IndexLookUp:
    """The index and the queues of a store, read and found worth using.

    Attributes
    ----------
    tiling : QueueTiling
        Which records there are.
    units : int
        Number of units that this follows from.
    surveys : list of IndexSurvey
        What the index files say that do not contradict themselves, oldest first.
    hits : list of numpy.ndarray
        Of `INDEX_DTYPE`: of each of these files all entries in the slots of the hashes that are asked for.
    options : ReadOptions
    costs : LookUpCosts
    proofs : FiledProofs
        What is known of the store.
    notes : list of str
    """

    tiling: QueueTiling
    units: int
    surveys: list[IndexSurvey]
    hits: list[npt.NDArray[np.void]]
    options: ReadOptions
    costs: LookUpCosts
    proofs: FiledProofs
    notes: list[str] = field(default_factory=list)

    @property
    def mapped(self) -> dict[Segment, Chain]:
        """Segments that were opened, whose pages a reader in the same process can use."""
        return self.tiling.opened.chains

    def close(self) -> None:
        """Close what was opened."""
        self.tiling.opened.close()

    @property
    def plan(self) -> str:
        """Name of the plan."""
        return "index"

    @property
    def why(self) -> str:
        """Why it was chosen."""
        return "entries of the index lead to the records, and all others have entries of other keys"

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
            found = dict(zip(asked, self._all_records(asked), strict=True))
        except (UnaccountedError, IndexDoubtError, OSError, CorruptDatabaseError) as error:
            return Unsuitable(f"the index is not complete: {error}", tuple(self.notes))
        scanned = [segment.name for segment, picks in found.items() if picks is None]
        if len(scanned) == len(found) > 0:
            return Unsuitable("the index leaves out too many records, or names places where none is", tuple(self.notes))
        self.notes += [f"segment {name} is scanned: the index does not account for it" for name in scanned]
        return [each for each in (_narrowed(part, found[part.segment]) for part in parts) if each is not None]

    def _all_records(self, asked: Mapping[Segment, int]) -> list[Picks | None]:
        """Return the records of all segments that are asked for, given their ends, as `_records` does."""
        if all(self.proofs.knows(self._name(segment, end)) for segment, end in asked.items()):
            return list(map(self._records, asked, asked.values()))
        self.tiling.surveys  # noqa: B018 -- read once, and not by each thread
        with ThreadPoolExecutor(threads_for(self.tiling.segments)) as pool:
            return list(pool.map(self._records, asked, asked.values()))

    def _records(self, segment: Segment, data_end: int) -> Picks | None:
        """Return the records of a segment that can have the key; None to scan it."""
        data_end = min(data_end, self.tiling.span_of(segment)[1])
        name = self._name(segment, data_end)
        known = self.proofs.fact(name, lambda: self._others(segment, data_end), _weight)
        if known is None:
            return None
        others = np.array(known, np.int64)
        hits = self._of(segment, data_end, self.hits)
        starts = np.unique(np.concatenate([hits["physical_offset"].astype(np.int64), others]))
        if not starts.size:
            return picks_at(np.empty(0, np.uint8), segment.start_offset, starts)
        if segment.remote is not None and starts.size > _MOST_RECORDS:
            return None
        with self.tiling.opened.opened(segment) as opened:
            load_records(opened, segment, starts)
            raw = opened.raw[: data_end - segment.start_offset]
            picks = _sound_picks(raw, segment, starts)
            _check_entries(raw, segment, hits, self.options, are_complete=False)
            self.tiling.opened.keep(segment, opened)
            return picks

    def _name(self, segment: Segment, data_end: int) -> Hashable:
        """Return the name of the fact which records of a segment are read whatever key is asked for."""
        files = tuple(str(survey.file.path) for survey in self.surveys)
        extent = *self.tiling.extent, segment.start_offset, data_end
        return "others", *extent, files, *self.costs.values, self.options.release

    def _others(self, segment: Segment, data_end: int) -> list[int] | None:
        """Return where records start that are read whatever key is asked for, if samples show entries to be right.

        None to scan the segment.
        """
        unqueued = self.tiling.unqueued(segment, data_end)
        others = np.empty(0, np.int64) if unqueued is None else unqueued.starts
        missing = left_out(self.tiling, self.surveys, segment, data_end, others)
        most = self.costs.most_share * (data_end - segment.start_offset) / self.costs.per_record
        if missing is None or missing.size > most:
            return None
        samples = self._of(segment, data_end, (survey.samples for survey in self.surveys))
        with self.tiling.opened.opened(segment) as opened:
            load_records(opened, segment, offsets_of(samples))
            raw = opened.raw[: data_end - segment.start_offset]
            _sound_picks(raw, segment, np.unique(samples["physical_offset"].astype(np.int64)))
            _check_entries(raw, segment, samples, self.options, are_complete=True)
        edges = np.array([edge for survey in self.surveys for edge in (survey.first, survey.last)], np.int64)
        edges = edges[(edges >= segment.start_offset) & (edges < data_end)]
        starts: list[int] = np.unique(np.concatenate([others, missing, edges])).tolist()
        return starts

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
    """Check that records, which are sound, have the keys of their entries."""
    if not entries.size:
        return
    first = segment.start_offset
    wrong = first_contradiction(raw, first, entries, cast("Release", options.release), are_complete=are_complete)
    if wrong is not None:
        raise IndexDoubtError(f"the record at offset {wrong} of {segment.path} has other keys than its entries say")


def _weight(starts: list[int] | None) -> int:
    return 0 if starts is None else _NUMBER_SIZE * len(starts)


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
    proofs = proofs_of(roots[0], options, segments)
    notes: tuple[str, ...] = ()
    room = int(costs.most_share * asked_size)
    try:
        is_too_dear = is_far(segments) and _least_price(roots[0] / INDEX_DIRECTORY, costs) > room
        nothing: tuple[tuple[IndexFileInStore, ...], tuple[str, ...]] = (), ()
        place = roots[0] / INDEX_DIRECTORY
        files, notes = nothing if is_too_dear else proofs.fact("index files", lambda: _files(place))
        if not files:
            why = "reading the index would cost too much" if is_too_dear else "there are no entries in the index"
            return Unsuitable(why, notes)
        room -= sum(_price(file, costs) for file in files) + price_of_proof(segments, costs)
        found = StoreQueues.open(roots[0], costs, room, resources, proofs)
        if isinstance(found, str):
            return Unsuitable(f"its proof needs the queues: {found}", notes)
        return _read(found, files, segments, options, costs, proofs, list(notes))
    except (OSError, CorruptDatabaseError, UnsupportedStoreError) as error:
        return Unsuitable(f"the index, or the queues that prove it, can't be read: {error}", notes)


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


def _files(directory: Path) -> tuple[tuple[IndexFileInStore, ...], tuple[str, ...]]:
    """Return the index files that have entries, and notes on those that are not used."""
    files: list[IndexFileInStore] = []
    notes: list[str] = []
    paths = index_paths(directory)
    expected = _DEFAULT_COUNTS
    for path in paths:
        if not path.is_file():
            continue
        try:
            state = FileState.at(str(path))
            file = ListedIndexFile.read(path, expected, is_full=path != paths[-1])
        except FileNotFoundError:
            continue
        if file.is_sound:
            expected = file.slots, file.most_entries
            files.append(IndexFileInStore(file, state, path == paths[-1]))
        elif not file.is_empty:
            notes.append(f"index file {path} is not used: its slots do not lead to the entries that its header counts")
    return tuple(files), tuple(notes)


def _price(file: IndexFileInStore, costs: LookUpCosts) -> int:
    """Return what reading an index file costs, in bytes of a scan; from elsewhere with what finds and checks keys."""
    size = file.listed.header.index_count * INDEX_DTYPE.itemsize + costs.per_file
    if remote_file_of(file.listed.path) is None:
        return size
    return size + file.listed.slots * SLOT_SIZE + costs.per_request * (2 * SAMPLES + _OTHER_REQUESTS)


def _least_price(directory: Path, costs: LookUpCosts) -> int:
    """Return what index files that are elsewhere cost at least, by their sizes alone: all slots are read."""
    sizes = [path.stat().st_size for path in index_paths(directory) if path.is_file()]
    return sum(min(size, _USUAL_SLOTS_SIZE) + costs.per_request * SAMPLES for size in sizes)


def _read(  # noqa: PLR0913 -- the two structures, the log, and what is asked of it
    queues: StoreQueues,
    files: Sequence[IndexFileInStore],
    segments: Sequence[Segment],
    options: ReadOptions,
    costs: LookUpCosts,
    proofs: FiledProofs,
    notes: list[str],
) -> IndexLookUp | Unsuitable:
    """Read the units, then the entries: a broker puts units first, so that few entries are of later records."""
    keep_freed_memory()
    tiling, summary = whole_tiling(queues, segments, costs, proofs)
    topics = options.topic or summary.topics
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
    return IndexLookUp(tiling, summary.units, surveys, hits, options, costs, proofs, [*notes, *summary.notes])
