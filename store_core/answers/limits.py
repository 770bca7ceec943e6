# SPDX-License-Identifier: Apache-2.0
"""Defaults and bounds of answers that the help of commands shows: it has to come without importing an answer."""

from __future__ import annotations

from typing import Final

from store_core.format.releases.release import RELEASES

__all__ = ["MOST_DAYS", "MOST_MESSAGES", "ONLY_DRY", "RELEASE_CHOICES", "TIME_WORDS"]

MOST_MESSAGES: Final = 100
"""How many truncated messages `recover` lists, if not all are asked for."""

RELEASE_CHOICES: Final = {name: (name,) for name in RELEASES} | {"all": RELEASES}
"""What ``--release`` of `recover` may be -> the releases that it stands for."""

MOST_DAYS: Final = 366
"""The most days that `retention` foresees."""

ONLY_DRY: Final = (
    "recover never changes a store: it shows what a broker's start would truncate, rebuild or refuse. Give --dry-run "
    "to see that. A broker's start does it; to make queues and index right, see commitlog repair"
)
"""What `recover` says without ``--dry-run``."""

TIME_WORDS: Final = "ms since 1970, ISO 8601, or such as -15m, before the log's last message"
"""What a time may be."""
