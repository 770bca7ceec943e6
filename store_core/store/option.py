# SPDX-License-Identifier: Apache-2.0
"""One option of the data source: name, default, scope and meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Option", "pairs_of", "unknown_option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of ``format("commitlog")``, for reading or for writing; `commitlog` has those for reading, too."""

    name: str  # as users write it; Spark ignores case
    default: str  # text of the default value, or, in parentheses, what happens without the option
    scope: str
    """What the option is about. Reading: ``what`` is opened, which ``rows`` and ``columns`` are returned, what
    ``damage`` does, ``speed``. Writing: ``rows``, ``store``, ``commit``."""
    meaning: str  # for users, in Markdown

    @property
    def field(self) -> str:
        """Name of the `ReadOptions.parse` argument for this option; not for `path`, `paths` and `view`."""
        return re.sub(r"([A-Z])", r"_\1", self.name).lower()


def unknown_option(name: str, names: Sequence[str], of: str) -> InvalidOptionError:
    """Return the error for an option that has none of these names; it suggests the nearest, or lists all."""
    known = did_you_mean(name, names) or f"the options are {', '.join(names)}"
    return InvalidOptionError(f"unknown option {name!r} of {of}; {known}")


def pairs_of(name: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what an option was given as ``NAME=VALUE``, by these names."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InvalidOptionError(f"{name}: expected NAME=VALUE, found {key!r}")
    return {key: value for key, _, value in pairs}
