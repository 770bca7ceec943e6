# SPDX-License-Identifier: Apache-2.0
"""The check of options that are counts: how many rows, seconds, processes."""

from __future__ import annotations

from store_core.errors import InvalidOptionError

__all__ = ["check_least"]


def check_least(least: int, **values: int) -> None:
    """Refuse values that are too small.

    Parameters
    ----------
    least : int
        The smallest that is accepted.
    **values
        By the names of their options.

    Raises
    ------
    InvalidOptionError
        For the first that is smaller.
    """
    for name, value in values.items():
        if value < least:
            raise InvalidOptionError(f"{name}: expected {least} or more, found {value}")
