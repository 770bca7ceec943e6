# SPDX-License-Identifier: Apache-2.0
"""A slice of guided fuzzing, without the guide: `make fuzz-coverage` runs it with one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.decoders import DECODERS
from tests.fuzz.guided.campaign import Totals
from tests.fuzz.guided.judged import Judged
from tests.fuzz.guided.lots import ALL_DECODERS, GivenRandom

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.target import Decoder


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
