# SPDX-License-Identifier: Apache-2.0
"""What attempts write comes into place queue by queue or topic by topic, whoever is first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from store_core.store.rebuild.swap import ATTEMPTS, RebuildAttempt

if TYPE_CHECKING:
    from pathlib import Path

Queues = tuple[tuple[str, int], ...]


def write(root: Path, queues: Queues, text: str) -> None:
    """Write a file for each queue."""
    for topic, queue_id in queues:
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        (directory / f"{0:020d}").write_text(text)


def settled(target: Path) -> dict[str, str]:
    """Return what is in place, by path."""
    assert not list((target / ATTEMPTS).iterdir())
    paths = [path for path in target.rglob("*") if path.is_file()]
    return {str(path.relative_to(target).parent): path.read_text() for path in paths}


@pytest.mark.parametrize("others", [(("a", 1), ("b", 0)), (("b", 0), ("c", 0)), (("a", 0), ("a", 1))], ids=str)
def test_queues_of_several_attempts_are_all_there_and_the_first_stays(others: Queues, tmp_path: Path) -> None:
    mine: Queues = (("a", 0), ("b", 1))
    with RebuildAttempt(tmp_path) as first, RebuildAttempt(tmp_path) as second:
        write(first.root, mine, "first")
        write(second.root, others, "second")
        first.settle()
        second.settle()

    expected = {f"consumequeue/{topic}/{queue_id}": "second" for topic, queue_id in others}
    assert settled(tmp_path) == expected | {f"consumequeue/{topic}/{queue_id}": "first" for topic, queue_id in mine}


def test_a_topic_is_moved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "consumequeue").mkdir()
    renamed, rename = [], os.rename

    def counted(source: str, target: str) -> None:
        renamed.append(target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", counted)
    with RebuildAttempt(tmp_path) as attempt:
        write(attempt.root, tuple(("a", queue_id) for queue_id in range(50)), "x")
        attempt.settle()

    assert [f"{tmp_path}/consumequeue/a"] == renamed
    assert len(settled(tmp_path)) == 50


def test_an_index_comes_as_a_whole_and_stays(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with RebuildAttempt(tmp_path) as attempt:
            (attempt.root / "index").mkdir(parents=True)
            (attempt.root / "index" / "20260101000000000").write_text(text)
            attempt.settle()

    assert settled(tmp_path) == {"index": "first"}


def test_files_of_one_index_come_together_and_the_last_stays(tmp_path: Path) -> None:
    for text, name in (("first", "20260101000000000"), ("first", "20260101000000001"), ("second", "20260101000000000")):
        with RebuildAttempt(tmp_path) as attempt:
            (attempt.root / "index").mkdir(parents=True)
            (attempt.root / "index" / name).write_text(text)
            attempt.settle_index_files()

    assert {path.name: path.read_text() for path in (tmp_path / "index").iterdir()} == {
        "20260101000000000": "second",
        "20260101000000001": "first",
    }


def test_an_attempt_that_is_not_settled_leaves_nothing(tmp_path: Path) -> None:
    with RebuildAttempt(tmp_path) as attempt:
        write(attempt.root, (("a", 0),), "x")

    assert settled(tmp_path) == {}
