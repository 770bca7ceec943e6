# SPDX-License-Identifier: Apache-2.0
"""Command lines: each ends with an exit code of the table, and no text from a store reaches the terminal as it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.command.exit_code import ExitCode
from tests.fuzz.mutation import mutate_text
from tests.fuzz.target import Case, Finding, Target
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


_LINES: Final = (
    "cat STORE --topic orders --columns topic,body --limit 5",
    "head STORE -n 3 --format json", "count STORE --by topic",
    "get STORE k3", "ls STORE", "topics STORE", "view STORE consumequeue --topic orders", "schema STORE", "schema",
    "check STORE", "recover STORE --dry-run", "explain STORE --key k1", "diff STORE STORE", "bill STORE", "lag STORE",
    "delays STORE", "transactions STORE", "deadletters STORE", "retention STORE", "producers STORE", "trace STORE k3",
    "tail STORE -n 2", "cat STORE --filter 'a > 5' --mode PERMISSIVE --starting-offsets 100", "head STORE --format csv",
    "cat STORE --starting-timestamp 2026-01-01T00:00:00Z --queue-id 1 --release 4.9", "salvage STORE", "repair STORE",
)  # fmt: skip
_PIECES: Final = (
    "--topic ", "--columns ",
    "--help", "-n ", "--format table", "STORE", " ", "=", ",", "--", "-", "'", "--release 9.9",
    "--as-of now", "--queue-id x", "--mode X", "/dev/null", "/nonexistent", ".", "--key k1 ", "\x1b[31m", "é", "\udc80",
)  # fmt: skip
_NEVER: Final = ("--into", "--apply", "--plan", "--html", "--output", "--follow", "-f", "-o", "--write")
"""Options that write or never end, which a line by chance must not have."""

_HOSTILE: Final = "\x1b]0;gotcha\x07<script>"


def _commands(directory: Path) -> Case:
    root = directory / "store"
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1 << 14, mapped_file_size_consume_queue=400, max_hash_slot_num=10, max_index_num=40
    )
    with DefaultMessageStore.open(root, config) as store:
        for number in range(20):
            topic = _HOSTILE if number % 7 == 3 else "orders"
            store.put_message(
                Message(topic, _HOSTILE.encode(), queue_id=number % 2, tags=_HOSTILE, keys=[f"k{number}"])
            )
    codes = {int(code) for code in ExitCode} | {130, 141}

    def run(random: Random) -> None:
        text = random.choice(_LINES)
        if random.random() < 0.8:
            text = mutate_text(random, text, _PIECES)
        words = [word.replace("STORE", str(root)) for word in text.replace("'", "").split(" ") if word]
        if "\0" in text or not _is_argument(text):
            return
        if any(word.startswith(_NEVER) for word in words) or (words and words[0] in {"redact", "replay", "export"}):
            return
        ended = call(*words)
        if ended.code not in codes or "this is a bug" in ended.errors:
            raise Finding(f"{words} ended with {ended.code}: {ended.errors[:500]}")
        if (_HOSTILE.encode() in ended.data and "arrow" not in words) or _HOSTILE in ended.errors:
            raise Finding(f"{words} showed a text of the store as it is: {ended.errors[:500]!r}")

    return run


def _is_argument(text: str) -> bool:
    """Return whether a system can pass a text to a program; bytes that are no UTF-8 are surrogates then."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


COMMAND_TARGETS: Final = (Target("command-lines", _commands, 6_000, 40),)
