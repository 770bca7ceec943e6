# SPDX-License-Identifier: Apache-2.0
"""Calls of the program `commitlog` in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from store_core.command.console import Console
from store_core.command.program import program

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Called:
    """How a call ended, and what it wrote."""

    code: int
    data: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.data.decode("utf-8")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of an output in JSON lines."""
        return [json.loads(line) for line in self.lines]


def call(*words: object, around: Console | None = None, environment: Mapping[str, str] | None = None) -> Called:
    """Run a command; without other surroundings, its output is no terminal."""
    ended = CliRunner().invoke(
        program, [str(word) for word in words], obj=around or Console(), env=environment, prog_name="commitlog"
    )
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Called(ended.exit_code, ended.stdout_bytes, ended.stderr)
