# SPDX-License-Identifier: Apache-2.0
"""Hypothesis budgets that depend on the profile."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_FEWEST: Final = 5


def budget(share: float) -> settings:
    """Return settings with a share of the profile's examples, at least five.

    For a property that is tested in several cases, such as releases, which together get about the usual budget; and
    for one whose examples cost much more, or less, than others.
    """
    return settings(max_examples=max(round(settings().max_examples * share), _FEWEST))
