# SPDX-License-Identifier: Apache-2.0
"""A segment that changes while it is read into memory is a named error, or the rows that were there; never a signal."""

from __future__ import annotations

import pytest

from tests.fuzz.changing_files import FOREIGN, KINDS, SIGBUS, WRONG, campaign

_SEED = 23


@pytest.mark.parametrize("is_look_up", [False, True], ids=["scan", "look-up"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, pytest.param(60, marks=pytest.mark.soak)])
def test_no_change_kills_a_reader_or_makes_a_row(times: int, kind: str, is_look_up: bool) -> None:
    ends = campaign(times, _SEED, "read", [kind], is_look_up=is_look_up)

    assert times == ends.total()
    assert not {end for _, end in ends} & {SIGBUS, FOREIGN, WRONG, "never ended"}
