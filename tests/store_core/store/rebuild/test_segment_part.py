# SPDX-License-Identifier: Apache-2.0
"""Parts of a segment that are read separately equal the whole, or are found not to fit together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core.files.segment_source import Segment
from store_core.queue.index_format import MessageKeys
from store_core.queue.queue_path import QueueRules
from store_core.snapshot import log_end
from store_core.snapshot.log_end import find_end
from store_core.store.parts import packed
from store_core.store.rebuild import segment_part
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.segment_part import (
    SegmentOutcome,
    SegmentPart,
    find_rebuilt_end,
    merge_outcomes,
    split_segments,
)
from store_core.store.rebuild.segment_scan import SegmentScan
from tests.budgets import budget
from tests.builders import BODY_AT, LogBuilder, Record
from tests.strategies import Log, layouts, logs, mutated

if TYPE_CHECKING:
    from pathlib import Path


RULES: Final = RebuildRules(QueueRules(), has_index=True)
Units = dict[tuple[str, int], list[tuple[int, ...]]]

one_directory = settings(budget(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_part, "_SMALLEST_PART", 100)


def segment_of(data: bytes, start_offset: int, directory: Path) -> Segment:
    path = directory / f"{start_offset:020d}"
    path.write_bytes(data)
    return Segment(str(path), start_offset, len(data))


def read(parts: list[SegmentPart]) -> tuple[list[SegmentOutcome], Units, list[bytes]]:
    """Read the parts in turn; return how each ended, the units by queue, and the index entries."""
    units: Units = {}
    outcomes, entries = [], []
    for part in parts:
        scan = SegmentScan(part, RULES)
        for piece in scan:
            if isinstance(piece, MessageKeys):
                entries.append(packed(piece.to_table()))
                continue
            rows = piece.units
            columns = (rows.physical_offset, rows.size, rows.tags_code, rows.queue_offset)
            for code, *values in zip(rows.code.tolist(), *(column.tolist() for column in columns), strict=True):
                units.setdefault(piece.queues[code], []).append(tuple(values))
        assert scan.outcome is not None
        outcomes.append(scan.outcome)
    return outcomes, units, entries


@one_directory
@given(mutated(logs() | layouts()) | layouts(), st.integers(1, 40))
def test_parts_that_fit_together_give_what_the_whole_gives(tmp_path: Path, log: Log, tasks: int) -> None:
    segment = segment_of(log.data, log.start_offset, tmp_path)
    parts = list(split_segments([segment], tasks))
    outcomes, units, _ = read(parts)
    merged = merge_outcomes(parts, outcomes)

    assert [0, *(part.end for part in parts)] == [*(part.begin for part in parts), len(log.data)]
    if merged is not None:
        whole, expected, _ = read([SegmentPart(segment, 0, segment.size, is_last=True)])
        assert whole == merged
        assert expected == units


@one_directory
@given(mutated(logs()) | logs() | layouts(), st.integers(0, 400), st.binary(max_size=40))
def test_the_end_where_reading_ended_is_that_of_the_chain(tmp_path: Path, log: Log, zeros: int, junk: bytes) -> None:
    segment = segment_of(log.data + bytes(zeros) + junk, log.start_offset, tmp_path)
    outcomes, _, _ = read([SegmentPart(segment, 0, segment.size, is_last=True)])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_LEAST": 1, "_WINDOWS": (1 << 7, 1 << 9), "_PROBE": 1 << 5}.items():
            patch.setattr(log_end, name, value)

        assert find_end([segment]) == find_rebuilt_end([segment], outcomes, live_end=None)


def test_the_end_of_a_sound_log_needs_its_last_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(segment_size=1 << 16)
    log.append_all(*[b"x" * 50] * 50)
    (data,) = log.segments().values()
    segment = segment_of(data, 0, tmp_path)
    outcomes, _, _ = read([SegmentPart(segment, 0, segment.size, is_last=True)])
    for name, value in {"_LEAST": 1 << 10, "_WINDOWS": (1 << 9,), "_PROBE": 1 << 8}.items():
        monkeypatch.setattr(log_end, name, value)
    monkeypatch.setattr(log_end, "_SEGMENT_START", None)

    assert find_rebuilt_end([segment], outcomes, live_end=None).end_offset == log.end


def test_sound_segments_are_cut_and_fit_together(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 16)
    log.fill(1, b"x" * 50)
    (data,) = list(log.segments().values())[:1]
    parts = list(split_segments([segment_of(data, 0, tmp_path)], 20))
    outcomes, _, _ = read(parts)
    starts = {record.physical_offset for record in log.records}

    assert len(parts) >= 20
    assert len(parts) == len({part.begin for part in parts} & starts)
    assert [sum(outcome.records for outcome in outcomes)] == [
        outcome.records for outcome in merge_outcomes(parts, outcomes) or ()
    ]


def test_a_record_in_a_body_that_claims_its_place_makes_no_part(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 15)
    log.append_all(*[b"x" * 50] * 20)
    decoy = Record(b"y" * 200, physical_offset=log.end + BODY_AT + 4000, queue_id=7).encode()
    log.append(bytes(4000) + decoy + bytes(4000))
    log.append_all(*[b"x" * 50] * 20)
    (data,) = log.segments().values()
    segment = segment_of(data, 0, tmp_path)
    at = data.index(decoy)
    cut = SegmentPart(segment, 0, at), SegmentPart(segment, at, segment.size)
    outcomes, units, _ = read(list(cut))

    assert ("orders", 7) in units
    assert merge_outcomes(cut, outcomes) is None


def test_what_is_not_written_yet_is_not_cut(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 16)
    log.append_all(*[b"x" * 50] * 50)
    (data,) = log.segments().values()
    parts = split_segments([segment_of(data, 0, tmp_path)], 20)

    assert all(part.begin < log.end for part in parts)
    assert len(data) == parts[-1].end
    assert all(before.end == after.begin for before, after in pairwise(parts))
