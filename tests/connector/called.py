# SPDX-License-Identifier: Apache-2.0
"""Calls of `commitlog append` and `commitlog rebuild` in this process, as the jobs make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.command.program import program

if TYPE_CHECKING:
    from collections.abc import Sequence


def commitlog(*words: str) -> int:
    """Run the program, which writes to this process's streams; return its exit code."""
    try:
        program(list(words), prog_name="commitlog")
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("click ends by SystemExit")


def append(arguments: Sequence[str]) -> int:
    return commitlog("append", *arguments)


def rebuild_consume_queue(arguments: Sequence[str]) -> int:
    return commitlog("rebuild", "queues", *arguments)


def rebuild_index(arguments: Sequence[str]) -> int:
    return commitlog("rebuild", "index", *arguments)
