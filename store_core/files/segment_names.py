# SPDX-License-Identifier: Apache-2.0
"""Names of segment files: each is the file's start offset."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LAST_OFFSET", "NAME_RULE", "advice_on_name", "start_offset_of", "twin_note", "why_no_segment"]

NAME_RULE: Final = "a segment's name is its start offset, in 20 digits or more"
LAST_OFFSET: Final = 2**63 - 1

_TOO_FAR: Final = "the start offset in its name is larger than that of any segment"
_NAME: Final = re.compile(r"[0-9]{20,}")


def start_offset_of(name: str) -> int | None:
    """Return the offset that a name stands for; None if it is not a segment's."""
    if not _NAME.fullmatch(name):
        return None
    offset = int(name) if len(name.lstrip("0")) <= len(str(LAST_OFFSET)) else LAST_OFFSET
    return offset if offset < LAST_OFFSET else None


def why_no_segment(name: str) -> str:
    """Return why a file is not a segment, by its name; a clause."""
    return _TOO_FAR if _NAME.fullmatch(name) and start_offset_of(name) is None else NAME_RULE


def advice_on_name(name: str) -> str:
    """Return a warning for names that RocketMQ still takes for start offsets (``MappedFile``: ``Long.parseLong``)."""
    is_short = re.fullmatch("[0-9]{1,19}", name) is not None
    return f" RocketMQ would load it: if it is a segment, rename it to {int(name):020d}." if is_short else ""


def twin_note(zeros: object, data: object) -> str:
    """Return what is said of a file of zeros whose twin in another directory has the data."""
    return (
        f"{zeros} is all zeros, and {data} of the same offset has the data, which is read. RocketMQ loads both: "
        f"move the file of zeros elsewhere"
    )
