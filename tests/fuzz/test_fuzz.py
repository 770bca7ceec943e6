# SPDX-License-Identifier: Apache-2.0
"""A slice of the fuzz campaign; `make soak` runs more of it, `make fuzz` all."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.limits import run_target
from tests.fuzz.mutation import mutate_bytes, mutate_text
from tests.fuzz.targets import TARGETS, target_named

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.target import Target

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
