# SPDX-License-Identifier: Apache-2.0
"""Which checks a report made of a store, and which it did not; "no damage" covers only the former."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = ["Check", "Coverage"]


class Check(Enum):
    """One possible check; JSON uses its name in lower case, text its value."""

    SEGMENT_SIZES = "names and sizes of the segments"
    LENGTHS = "magic codes and lengths of the records"
    LENGTHS_OF_LAST_SEGMENT = "magic codes and lengths in the segment that the log ends in"
    LENGTHS_OF_EARLIER_SEGMENTS = "the segments before the one in which the check begins"
    PLACES = "whether records carry their own physical offsets"
    BODY_CHECKSUMS = "body checksums of all records"
    LAST_BODY_CHECKSUMS = "body checksums of the last records"
    PROPERTY_CHECKSUMS = "property checksums"
    QUEUES = "the consume queues against the log"
    INDEX = "the key index against the log"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was checked, and what was not."""

    checked: tuple[Check, ...] = ()
    not_checked: tuple[Check, ...] = ()

    @classmethod
    def of(cls, checks: Mapping[Check, bool]) -> Self:
        """Make a coverage from a mapping that says whether each check was made."""
        return cls(
            tuple(check for check, is_made in checks.items() if is_made),
            tuple(check for check, is_made in checks.items() if not is_made),
        )

    def as_json(self) -> dict[str, list[str]]:
        """Return both lists as values for JSON."""
        return {
            "checked": [check.name.lower() for check in self.checked],
            "not_checked": [check.name.lower() for check in self.not_checked],
        }

    @property
    def lines(self) -> tuple[str, ...]:
        """The same in words: one line for what was checked, one for what was not."""
        parts = (("checked", self.checked), ("not checked", self.not_checked))
        return tuple(f"{name}: {', '.join(check.value for check in found)}" for name, found in parts if found)
