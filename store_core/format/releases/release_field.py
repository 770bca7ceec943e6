# SPDX-License-Identifier: Apache-2.0
"""How a difference between releases is written down: as a field of a dataclass, with what it means."""

from __future__ import annotations

from dataclasses import field
from typing import Any

__all__ = ["has", "value"]


def has(area: str, meaning: str, source: str) -> Any:  # noqa: ANN401 -- a field of a dataclass
    """Make a feature that a release has or has not; a release that says nothing has not.

    Parameters
    ----------
    area : str
        What part of RocketMQ it belongs to.
    meaning : str
        A clause without a full stop.
    source : str
        Java method that the rule comes from, a comma, and the RocketMQ versions that have it.
    """
    return field(default=False, metadata={"area": area, "meaning": meaning, "source": source})


def value(area: str, meaning: str, source: str) -> Any:  # noqa: ANN401 -- a field of a dataclass
    """Make a feature of which each release has a value; parameters as in `has`."""
    return field(metadata={"area": area, "meaning": meaning, "source": source})
