# SPDX-License-Identifier: Apache-2.0
"""Dataclass fields that describe a difference between releases, with its meaning and source."""

from __future__ import annotations

from dataclasses import field
from typing import Any

__all__ = ["has", "value"]


def has(area: str, meaning: str, source: str) -> Any:  # noqa: ANN401 -- a field of a dataclass
    """Return the field of a feature that a release either has or lacks; the default is to lack it.

    Parameters
    ----------
    area : str
        The part of RocketMQ it belongs to.
    meaning : str
        A clause without a full stop.
    source : str
        Java method that the rule comes from, a comma, and the RocketMQ versions that have it.
    """
    return field(default=False, metadata={"area": area, "meaning": meaning, "source": source})


def value(area: str, meaning: str, source: str) -> Any:  # noqa: ANN401 -- a field of a dataclass
    """Return the field of a feature for which each release has a value; parameters as in `has`."""
    return field(metadata={"area": area, "meaning": meaning, "source": source})
