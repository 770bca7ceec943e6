# SPDX-License-Identifier: Apache-2.0
"""The command export writes what is new, and with --prove ends with 1 if anything differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.command.exit_code import ExitCode
from tests.builders import SIZE_AT
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import LogBuilder


def test_an_export_is_written_once_and_proved(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first, again = (call("export", store, "--into", lake, "--json") for _ in range(2))

    assert (ExitCode.DONE, 40) == (first.code, first.rows[0]["messages"])
    assert (ExitCode.DONE, None) == (again.code, again.rows[0]["number"])
    assert "nothing differs" in call("export", store, "--into", lake, "--prove").text
    next(lake.glob("topic=*/*/*.parquet")).unlink()
    assert ExitCode.FINDINGS == call("export", store, "--into", lake, "--prove").code


def test_damage_ends_with_5_and_wrong_usage_with_2(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[2].physical_offset + SIZE_AT, 1)
    store, lake = log.write(tmp_path / "store"), tmp_path / "lake"

    assert ExitCode.DAMAGED == call("export", store, "--into", lake).code
    assert ExitCode.USAGE == call("export", store, "--into", lake, "--prove", "--topic", "orders").code
    assert ExitCode.USAGE == call("export", store, "--into", store / "lake").code
    assert ExitCode.USAGE == call("export", store, "--into", tmp_path / "none", "--prove").code
