# SPDX-License-Identifier: Apache-2.0
"""RocketMQ recovers what a killed writer of ours left, and has every message that was acknowledged."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import pytest

from store_core import read_messages
from tests.interop.answers import answer_rows
from tests.interop.reading import read_rows

if TYPE_CHECKING:
    from tests.interop.judge import Judge

pytestmark = pytest.mark.interop
ROOT = Path(__file__).parents[2]
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
