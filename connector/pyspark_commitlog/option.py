# SPDX-License-Identifier: Apache-2.0
"""What an option is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError
from store_core.format.near_name import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Option", "unknown_option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of ``format("commitlog")``, for reading or for writing.

    Attributes
    ----------
    name : str
        As users write it; Spark ignores its case.
    default : str
        The option's text where there is one, else, in brackets, what happens without it.
    scope : str
        What it is about: ``what`` is opened, which ``rows`` and ``columns`` come out, what ``damage`` does,
        ``speed``; of writing: ``rows``, ``store``, ``commit``.
    meaning : str
        For users, in Markdown.
    """

    name: str
    default: str
    scope: str
    meaning: str

    @property
    def field(self) -> str:
        """The argument of `ReadOptions.parse` that takes its text, if it is not one of `path`, `paths` and `view`."""
        return re.sub(r"([A-Z])", r"_\1", self.name).lower()


def unknown_option(name: str, options: Sequence[Option], of: str) -> InvalidOptionError:
    """Make the error for an option that is not in a table, with the nearest name that is, else with all names."""
    names = [option.name for option in options]
    known = did_you_mean(name, names) or f"the options are {', '.join(names)}"
    return InvalidOptionError(f"unknown option {name!r} of {of}; {known}")
