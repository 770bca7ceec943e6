# SPDX-License-Identifier: Apache-2.0
"""Findings, counted by their kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from store_core.answers.checking.finding import Finding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Place", "Tally"]


class Place(NamedTuple):
    """Where findings of a kind are: a file, or a queue. Fields that do not apply are None."""

    kind: FindingKind
    where: str
    topic: str | None
    queue_id: int | None


@dataclass(slots=True)
class Tally:
    """Findings, counted by kind; the first of each kind are kept.

    Attributes
    ----------
    most : int
        How many findings of a kind are kept.
    places : dict of Place to int or None
        All places that have findings, each with the least physical offset of those that were given.
    """

    most: int = 100
    first: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    places: dict[Place, int | None] = field(default_factory=dict)
    _counts: Counter[FindingKind] = field(default_factory=Counter)
    _kept: Counter[FindingKind] = field(default_factory=Counter)

    def add(self, kind: FindingKind, count: int, findings: Iterable[Finding]) -> None:
        """Add findings of one kind, of which only the first may be given."""
        if count:
            self._counts[kind] += count
        for finding in findings:
            self._note_place(finding)
            if self._kept[kind] < self.most:
                self._kept[kind] += 1
                self.first.append(finding)

    def _note_place(self, finding: Finding) -> None:
        place = Place(finding.kind, finding.where, finding.topic, finding.queue_id)
        known = self.places.get(place)
        begins = [begin for begin in (known, finding.begin) if begin is not None]
        self.places[place] = min(begins, default=None)

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Add findings that are all given."""
        for finding in findings:
            self.add(finding.kind, 1, [finding])

    def seen_again(self, earlier: Tally) -> Tally:
        """Return the findings that an earlier tally also has, each at the same place; with the notes of this one.

        Of a kind of which not all are kept, there are as many as the tally with fewer has.
        """
        again, known = Tally(self.most, notes=self.notes), {_identity(each) for each in earlier.first}
        for kind, count in self.counts:
            kept = [each for each in self.first if each.kind is kind]
            both = [each for each in kept if _identity(each) in known]
            if both:
                again.add(kind, len(both) if len(kept) == count else min(count, earlier._counts[kind]), both)
        return again

    @property
    def counts(self) -> tuple[tuple[FindingKind, int], ...]:
        """How many findings of each kind there are, in the order of `FindingKind`."""
        return tuple((kind, self._counts[kind]) for kind in FindingKind if self._counts[kind])


def _identity(finding: Finding) -> tuple[object, ...]:
    """Return what tells findings apart: what was expected and found may be of another moment."""
    return finding[: Finding._fields.index("end")]
