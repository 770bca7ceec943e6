# SPDX-License-Identifier: Apache-2.0
"""The command salvage ends with 5 where something is lost, and writes only where it is told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.command.exit_code import ExitCode
from tests.builders import BODY_AT, LogBuilder
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


def log() -> LogBuilder:
    made = LogBuilder()
    made.append_all(*(b"body %d" % number for number in range(9)))
    return made


def test_a_sound_log_ends_with_0_and_nothing_is_written(tmp_path: Path) -> None:
    called = call("salvage", log().write(tmp_path / "store"))

    assert ExitCode.DONE == called.code
    assert "nothing is lost" in called.text
    assert ["store"] == [path.name for path in tmp_path.iterdir()]


def test_a_damaged_log_ends_with_5_and_the_rest_is_in_a_new_store(tmp_path: Path) -> None:
    damaged = log()
    damaged.flip(damaged.records[3].physical_offset + BODY_AT)
    called = call("salvage", damaged.write(tmp_path / "store"), "--into", tmp_path / "new", "--json")

    (report,) = called.rows
    assert ExitCode.DAMAGED == called.code
    assert ("commitlog-salvage/1", "damaged", 8) == (report["schema"], report["verdict"], report["records"])
    assert 8 == call("count", tmp_path / "new", "--format", "jsonl").rows[0]["messages"]
    (note,) = report["notes"]
    assert f"commitlog rebuild both {tmp_path / 'new'} --replace" in note


def test_a_target_that_exists_is_wrong_usage(tmp_path: Path) -> None:
    store = log().write(tmp_path / "store")

    assert ExitCode.USAGE == call("salvage", store, "--into", tmp_path).code
