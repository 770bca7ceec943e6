# SPDX-License-Identifier: Apache-2.0
"""What one word may mean that messages are asked for by."""

from __future__ import annotations

from enum import Enum

__all__ = ["WordKind"]


class WordKind(Enum):
    """What a word means."""

    KEY = "key"
    ID = "id"
    POSITION = "position"
