# SPDX-License-Identifier: Apache-2.0
"""Slices of the campaigns: mutated input, flipped bits, files that change while they are read, and guided fuzzing."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.bit_flips import (
    REPORTED,
    SILENT,
    STORES,
    copied_store,
    flip_bits,
    full_reading_differs,
    golden_segments,
)
from tests.fuzz.changing_files import ANSWERS, KINDS, Changed, ReadLog, Work, bad_ends, made_store
from tests.fuzz.decoders import DECODERS
from tests.fuzz.guided.campaign import ALL_DECODERS, GivenRandom, Totals
from tests.fuzz.guided.judged import Judged
from tests.fuzz.limits import run_target
from tests.fuzz.target import mutate_bytes, mutate_text
from tests.fuzz.targets import TARGETS, target_named
from tests.golden_stores import golden_stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders import Record
    from tests.fuzz.target import Decoder, Target


_SEED = 5
_SOAK_SHARE = 0.05


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_mutated_input_is_read_right_or_refused(target: Target, tmp_path: Path) -> None:
    run = target.prepare(tmp_path)
    for number in range(target.in_slice):
        run(Random(_SEED + number))


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_much_mutated_input_is_read_right_or_refused_within_limits(target: Target) -> None:
    outcome = run_target(target, _SEED, round(target.cases * _SOAK_SHARE))

    assert [] == [str(failure) for failure in outcome.failures]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param("fails", "Finding: wrong", marks=pytest.mark.soak),
        pytest.param("needs-memory", "MemoryError", marks=pytest.mark.soak),
        ("dies", "the process ended with -9"),
        pytest.param("hangs", "more than its time", marks=pytest.mark.soak),
    ],
)
def test_what_no_case_may_do_is_a_failure_and_the_next_case_runs(target: str, told: str) -> None:
    outcome = run_target(target_named(target), _SEED, 3)

    assert 3 == outcome.cases
    assert 1 == len(outcome.failures)
    assert told in outcome.failures[0].what


def test_mutations_are_the_same_for_the_same_seed() -> None:
    def mutated(seed: int) -> tuple[bytes, str]:
        data = bytearray(range(200))
        mutate_bytes(Random(seed), data, (0, 50))
        return bytes(data), mutate_text(Random(seed), "a text", ("x",))

    assert mutated(3) == mutated(3)
    assert len({mutated(seed)[0] for seed in range(50)}) > 40


# ---- every bit of golden segments, one at a time

_HERE = {store.name for store in golden_stores()}
_EVERY = 1009


@pytest.mark.golden
@pytest.mark.parametrize("name", [name for name in STORES if name in _HERE])
@pytest.mark.parametrize("every", [_EVERY, pytest.param(1, marks=pytest.mark.soak)])
def test_each_flip_is_found_or_stays_in_its_own_column(name: str, every: int, tmp_path: Path) -> None:
    for number, segment in enumerate(golden_segments(name, tmp_path)):
        flips, shown = flip_bits(segment, every)
        root = copied_store(segment, tmp_path / f"store-{number}")

        assert {REPORTED} == set(flips.of("body"))
        assert 0 == flips.with_outcome(SILENT)
        assert -(-len(segment.data) * 8 // every) == flips.total
        for bit, begin, end, _ in shown[:: max(len(shown) // 4, 1)]:
            assert "" == full_reading_differs(segment, root, bit, (begin, end))


@pytest.mark.golden
def test_property_checksums_cover_the_whole_record(tmp_path: Path) -> None:
    (segment,) = golden_segments("5.3.3/propcrc", tmp_path, 1)
    flips, _ = flip_bits(segment, _EVERY // 10)

    for name in ("topic", "properties", "queue_id", "queue_offset", "store_timestamp", "born_host"):
        assert {"found by the checksum in the record's properties"} == set(flips.of(name))


# ---- files that change while they are read: a named error, or the rows that were there, and never a signal

_CHANGES_SEED = 23
_READS: list[tuple[Work, Changed]] = [
    ("scan", "segment"),
    ("look-up", "segment"),
    ("look-up", "queue"),
    *((work, "segment") for work in ANSWERS),
    ("recover", "queue"),
]


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Path, list[Record]]]:
    """Make a store once: each change is undone."""
    with made_store() as made:
        yield made


@pytest.fixture(scope="module", params=_READS, ids=" ".join)
def read(request: pytest.FixtureRequest, store: tuple[Path, list[Record]]) -> tuple[ReadLog, Changed]:
    work, changed = request.param
    return ReadLog(*store, work, changed), changed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, pytest.param(60, marks=pytest.mark.soak)])
def test_no_change_kills_a_reader_or_changes_a_row(times: int, kind: str, read: tuple[ReadLog, Changed]) -> None:
    log, changed = read
    ends = log.campaign(times, _CHANGES_SEED, [kind])

    assert times == ends.total()
    assert not {end for _, end in ends} & bad_ends(log.work, changed)


# ---- guided fuzzing, without the guide: `make fuzz-coverage` runs it with one


@pytest.mark.parametrize("decoder", ALL_DECODERS[len(DECODERS) :], ids=lambda each: each.name)
def test_texts_are_mutated_by_the_lots_of_an_input(decoder: Decoder, tmp_path: Path) -> None:
    judge = decoder.prepare(tmp_path)

    for seed in decoder.seeds(tmp_path):
        judge(seed)


def test_an_input_that_fails_is_kept_once_for_each_place_and_the_next_is_judged(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()

    def judge(data: bytes) -> None:
        if data.startswith(b"spin"):
            while True:
                pass
        if data:
            raise KeyError(len(data))

    judged = Judged(tmp_path, [("sound", len), ("faulty", judge)], seconds=0.05)
    for data in (b"\0anything", b"\1", b"\1a", b"\1ab", b"\1spin", b""):
        judged.take(data)
    judged.report()
    (report,) = tmp_path.glob("report-*.json")
    totals = Totals()
    totals.add(json.loads(report.read_text()), b"#5 NEW cov: 12 ft: 30 corp: 4/9b\n")

    assert {"sound": 2, "faulty": 4} == dict(totals.executions)
    assert [b"\1a", b"\1spin"] == sorted(path.read_bytes() for path in (tmp_path / "findings").iterdir())
    assert ["KeyError", "TooLongError"] == sorted(each.split()[1][:-1] for each in totals.findings.values())
    assert (12, 30, 4) == totals.coverage
    assert "2 findings" in str(totals)


def test_numbers_are_those_of_the_input_and_others_after_its_end() -> None:
    drawn, again = GivenRandom(b"\x07\xff\xff\x00\x80\x05"), GivenRandom(b"")

    assert 7 == drawn.getrandbits(8)
    assert 0x7FFF == drawn.getrandbits(15)
    assert drawn.random() == 0.5
    assert 5 == drawn.randrange(8)
    assert again.sample(range(50), 20) == drawn.sample(range(50), 20)
