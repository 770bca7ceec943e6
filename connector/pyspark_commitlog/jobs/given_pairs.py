# SPDX-License-Identifier: Apache-2.0
"""Options of a command line that are given as ``NAME=VALUE``."""

from __future__ import annotations

from store_core.errors import InvalidOptionError

__all__ = ["pairs_of"]


def pairs_of(name: str, texts: list[str]) -> dict[str, str]:
    """Return the values by their names."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InvalidOptionError(f"{name}: expected NAME=VALUE, found {key!r}")
    return {key: value for key, _, value in pairs}
