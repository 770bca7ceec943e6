# SPDX-License-Identifier: Apache-2.0
"""A file that changes while a store is read ends no reader.

A reader ends in a named error, or has the rows that were there; never in a signal. The file of a queue is derived from
the log, so that a look-up has all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.changing_files import KINDS, bad_ends, campaign

if TYPE_CHECKING:
    from tests.fuzz.changing_files import Changed

_SEED = 23


@pytest.mark.parametrize(
    ("is_look_up", "changed"),
    [(False, "segment"), (True, "segment"), (True, "queue")],
    ids=["scan", "look-up", "look-up, queue"],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, pytest.param(60, marks=pytest.mark.soak)])
def test_no_change_kills_a_reader_or_changes_a_row(times: int, kind: str, is_look_up: bool, changed: Changed) -> None:
    ends = campaign(times, _SEED, [kind], is_look_up=is_look_up, of=changed)

    assert times == ends.total()
    assert not {end for _, end in ends} & bad_ends(changed)
