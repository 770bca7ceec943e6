# SPDX-License-Identifier: Apache-2.0
"""Findings, counted by their kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store_core.answers.checking.finding import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.answers.checking.finding import Finding

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Findings, counted by kind; the first of each kind are kept.

    Attributes
    ----------
    most : int
        How many findings of a kind are kept.
    """

    most: int = 100
    first: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _counts: Counter[FindingKind] = field(default_factory=Counter)
    _kept: Counter[FindingKind] = field(default_factory=Counter)

    def add(self, kind: FindingKind, count: int, findings: Iterable[Finding]) -> None:
        """Add findings of one kind, of which only the first may be given."""
        if count:
            self._counts[kind] += count
        for finding in findings:
            if self._kept[kind] < self.most:
                self._kept[kind] += 1
                self.first.append(finding)

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Add findings that are all given."""
        for finding in findings:
            self.add(finding.kind, 1, [finding])

    @property
    def counts(self) -> tuple[tuple[FindingKind, int], ...]:
        """How many findings of each kind there are, in the order of `FindingKind`."""
        return tuple((kind, self._counts[kind]) for kind in FindingKind if self._counts[kind])
