# SPDX-License-Identifier: Apache-2.0
"""RocketMQ recovers and opens what killed writers of ours left, and has every message that was acknowledged."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

import pytest

from store_core import read_messages
from tests.interop.answers import answer_rows, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.judge import Judge


ROOT = Path(__file__).parents[2]
_SEED: Final = 23
OPENED_SEGMENT: Final = 1 << 14
_SETTINGS: Final = {
    "mappedFileSizeCommitLog": OPENED_SEGMENT,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 10,
    "maxIndexNum": 20,
    "messageIndexSafe": True,
}
_KILLS: Final = 20
_WRITERS: Final = {
    "4.3": ["put-4.3"],
    "4.9": ["put-4.9", "put-async", "append-batch-async", "reput-4.9"],
    "5.3": [
        "put",
        "put-pool",
        "append-batch",
        "reput",
        "rebuild",
        "sink-batch",
        "sink-stream",
        "repair",
        "replay",
        "redact",
    ],
    "5.5": ["put-5.5"],
}
_IN_SLICE: Final = {"4.9": ["reput-4.9", "append-batch-async"], "5.5": ["put-5.5"]}
_COUNTED: Final = ("put", "append")
"""Beginnings of the names of writers that tell how many messages are acknowledged."""
_BUFFERED: Final = "put-pool"
"""The writer whose acknowledged messages are in memory at first."""


def kill(names: list[str], kills: int, folder: Path) -> None:
    """Leave killed writers' folders, by a process of their own."""
    words = ("leave", str(kills), str(_SEED), str(folder), *names)
    command = [sys.executable, "-m", "tests.store_core.kills.targets", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603 -- our own
    assert done.returncode == 0, done.stderr


def store_in(folder: Path) -> Path:
    """Return the store that a writer made: of a redaction the copy, if there is one."""
    return folder / "copy" if (folder / "copy").exists() else folder / "store"


def check_opened(judge: Judge, names: list[str], kills: int, tmp_path: Path) -> None:
    """Let RocketMQ open copies of what each kill left, and compare."""
    kill(names, kills, tmp_path)
    told = {name: json.loads((tmp_path / name / "told.json").read_text()) for name in names}
    runs = [(name, number) for name in names for number in range(len(told[name]))]
    stores = [store_in(tmp_path / name / str(number)) for name, number in runs]
    copies = [Path(shutil.copytree(store, tmp_path / f"copy-{number}")) for number, store in enumerate(stores)]
    answers = [judge.open(copy, **_SETTINGS) for copy in copies]

    assert kills * len(names) <= len(stores)
    for (name, number), store, future in zip(runs, stores, answers, strict=True):
        answer = future.result()
        assert answer["loaded"] is True, store
        assert answer["chainEnd"] == answer["bounds"]["max"], store
        if name.startswith(_COUNTED) and name != _BUFFERED:
            assert max([0, *told[name][number]]) <= len(answer["records"]), store
        assert answer_rows(answer, OPENED_SEGMENT) == read_rows(store, judge.release), store


@pytest.mark.parametrize("release", _IN_SLICE)
def test_a_few_killed_stores_are_opened(release: str, judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    check_opened(judge_of(release), _IN_SLICE[release], 2, tmp_path)


@pytest.mark.interop
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("release", "name"), [(release, name) for release, names in _WRITERS.items() for name in names]
)
def test_each_killed_store_is_opened(release: str, name: str, judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    check_opened(judge_of(release), [name], _KILLS, tmp_path)


SEGMENT_SIZE = 8192
KILLS = 8


def write_until_killed(store: Path, release: str, acknowledgements: int) -> int:
    """Kill a writer after a number of puts have returned; return the messages acknowledged by then."""
    command = [sys.executable, "-m", "tests.interop.killed_writer", str(store), release, str(SEGMENT_SIZE)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:  # noqa: S603 -- ours
        lines = cast("IO[str]", writer.stdout)
        told = [lines.readline() for _ in range(acknowledgements)]
        writer.kill()
        told += lines.readlines()
    return max(int(line) for line in told if line.endswith("\n"))


@pytest.mark.interop
def test_what_was_acknowledged_survives_a_kill(judge: Judge, tmp_path: Path) -> None:
    draw = random.Random(judge.release)  # noqa: S311 -- reproducible, not secret
    stores = [tmp_path / str(kill) for kill in range(KILLS)]
    acknowledged = [write_until_killed(store, judge.release, draw.randrange(1, 200)) for store in stores]
    copies = [Path(shutil.copytree(store, tmp_path / f"copy-{store.name}")) for store in stores]
    answers = [judge.open(copy, mappedFileSizeCommitLog=SEGMENT_SIZE) for copy in copies]

    for store, least, future in zip(stores, acknowledged, answers, strict=True):
        answer, messages = future.result(), read_messages(store, columns=["body"]).read_all()
        numbers = [int(body.partition(b":")[0]) for body in messages["body"].to_pylist()]
        assert answer["loaded"] is True
        assert answer["chainEnd"] == answer["bounds"]["max"]
        assert numbers == list(range(len(numbers)))
        assert least <= len(numbers)
        assert answer_rows(answer, SEGMENT_SIZE) == read_rows(store, judge.release)
