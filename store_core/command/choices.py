# SPDX-License-Identifier: Apache-2.0
"""Options and arguments that are one of some names, of which the nearest is suggested for a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.format.near_name import hint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["NearChoice"]


class NearChoice(click.Choice[str]):
    """Some names; the nearest is suggested for one that is none of them.

    Parameters
    ----------
    hint : callable
        What else is said of a wrong one, in place of the nearest.
    """

    def __init__(self, names: Iterable[str], hint: Callable[[str], str] | None = None) -> None:
        super().__init__(list(names), case_sensitive=False)
        self._hint = hint

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """Return what is said of a value that is none of them."""
        hint = hint_of(value, self.choices) if self._hint is None else self._hint(str(value))
        text = f"{super().get_invalid_choice_message(value, ctx).rstrip('.')}{hint}"
        return text if text.endswith("?") else f"{text}."
