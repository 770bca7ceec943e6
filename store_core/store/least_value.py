# SPDX-License-Identifier: Apache-2.0
"""The check of options that are counts: how many rows, seconds, processes."""

from __future__ import annotations

from typing import Final

from store_core.errors import InvalidOptionError

__all__ = ["check_least"]

_MOST: Final = 2**63 - 1
"""What Arrow takes for a number of rows."""


def check_least(least: int, **values: int) -> None:
    """Refuse values that are too small, or do not fit into 64 bits.

    Parameters
    ----------
    least : int
        The smallest that is accepted.
    **values
        By the names of their options.

    Raises
    ------
    InvalidOptionError
        For the first that is smaller, or too large.
    """
    for name, value in values.items():
        if value < least:
            raise InvalidOptionError(f"{name}: expected {least} or more, found {value}")
        if value > _MOST:
            raise InvalidOptionError(f"{name}: expected {_MOST} or less, found {value}")
