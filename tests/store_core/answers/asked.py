# SPDX-License-Identifier: Apache-2.0
"""What can be asked of any store, as tests ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core.answers import (
    Bill,
    Check,
    DeadLetters,
    Delays,
    Info,
    Lag,
    Producers,
    Retention,
    Salvage,
    Trace,
    Transactions,
)

if TYPE_CHECKING:
    from store_core.answers.answer import Answer


def answers_at(now: int, message: str) -> dict[str, Answer[Any]]:
    """Return answers by the names of their commands, as of a time in ms, and about a message."""
    return {
        "bill": Bill(),
        "check": Check(release="5.3"),
        "deadletters": DeadLetters(),
        "delays": Delays(now=now, lists_all=True),
        "info": Info(),
        "lag": Lag(now=now, messages=True),
        "producers": Producers(),
        "retention": Retention(now=now, days=2, disk_size=2**24, disk_used=2**23),
        "salvage": Salvage(),
        "trace": Trace(message),
        "transactions": Transactions(now=now, lists_all=True),
    }
