# SPDX-License-Identifier: Apache-2.0
"""The command diff ends with 1 where logs differ, and says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.command.exit_code import ExitCode
from tests.builders import BODY_AT, LogBuilder
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


def log() -> LogBuilder:
    made = LogBuilder()
    made.append_all(*(b"body %d" % number for number in range(9)))
    return made


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return log().write(tmp_path / "sound")


def test_equal_logs_end_with_0(sound: Path, tmp_path: Path) -> None:
    called = call("diff", sound, log().write(tmp_path / "other"))

    assert ExitCode.DONE == called.code
    assert "no differences" == called.lines[0]


def test_differing_logs_end_with_1_and_json_has_the_record(sound: Path, tmp_path: Path) -> None:
    changed = log()
    changed.flip(changed.records[3].physical_offset + BODY_AT)
    called = call("diff", sound, changed.write(tmp_path / "other"), "--json")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-diff/1", "findings", 1) == (report["schema"], report["verdict"], report["changed_records"])
    assert {changed.records[3].physical_offset} == {row["physical_offset"] for row in report["tables"]["records"]}


def test_another_extent_is_a_finding_if_asked_for(sound: Path, tmp_path: Path) -> None:
    behind = log()
    behind.truncate(behind.records[7].physical_offset)
    behind.write(tmp_path / "behind")

    assert ExitCode.DONE == call("diff", sound, tmp_path / "behind").code
    assert ExitCode.FINDINGS == call("diff", sound, tmp_path / "behind", "--same-extent").code


def test_a_missing_store_is_wrong_usage(sound: Path, tmp_path: Path) -> None:
    assert ExitCode.USAGE == call("diff", sound, tmp_path / "none").code
