# SPDX-License-Identifier: Apache-2.0
"""The command redact ends with 4, and makes no copy, where something can't be redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.command.exit_code import ExitCode
from tests.builders import LogBuilder
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


def test_a_copy_is_made_or_refused(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one secret", b"two")
    store, copy = log.write(tmp_path / "store"), tmp_path / "copy"
    called = call("redact", store, "--into", copy, "--text", "secret", "--json")

    assert (ExitCode.DONE, 1) == (called.code, called.rows[0]["messages"])
    assert b"one ******" in (copy / "commitlog" / f"{0:020d}").read_bytes()
    assert ExitCode.REFUSED == call("redact", store, "--into", tmp_path / "no", "--text", "orders").code
    assert ExitCode.USAGE == call("redact", store, "--into", copy, "--text", "secret").code
    assert ExitCode.USAGE == call("redact", store, "--into", tmp_path / "no").code
    assert ["copy", "store"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_key_that_no_message_has_is_wrong_usage_and_one_redacted_before_is_not(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(b"secret", properties={"KEYS": "k1 k2"})
    store, copy = log.write(tmp_path / "store"), tmp_path / "copy"
    unknown = call("redact", store, "--into", copy, "--key", "k3")

    assert ExitCode.USAGE == unknown.code
    assert "no message in" in unknown.errors
    assert "'k3'" in unknown.errors
    assert ExitCode.DONE == call("redact", store, "--into", copy, "--key", "k2").code
    assert ExitCode.DONE == call("redact", copy, "--into", tmp_path / "again", "--key", "k2").code
