# SPDX-License-Identifier: Apache-2.0
"""A file that changes while a store is read ends no reader.

A reader ends in a named error, or has the rows that were there; never in a signal. The file of a queue is derived from
the log, so that a look-up has all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.changing_files import ANSWERS, KINDS, Changed, ReadLog, Work, bad_ends, made_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders import Record


_SEED = 23
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
    ends = log.campaign(times, _SEED, [kind])

    assert times == ends.total()
    assert not {end for _, end in ends} & bad_ends(log.work, changed)
