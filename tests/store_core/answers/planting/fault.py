# SPDX-License-Identifier: Apache-2.0
"""A named kind of fault, and what a check has to find of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store_core.store.rebuild.findings import FindingKind
    from tests.store_core.answers.planting.store_copy import StoreCopy


SOUND: Final = ("5.3.3/propcrc", "4.9.7/lmq", "5.5.0/tx")
"""Golden stores that RocketMQ closed, of three releases, with plain queues and an index."""


class Expected(NamedTuple):
    """A kind of findings that a fault causes: how many, and where the first is, as far as that is one place."""

    kind: FindingKind
    number: int = 1
    begin: int | None = None
    queue_offset: int | None = None
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    * `plant`: Plants one into a copy of a store, and returns what is to be found: nothing else may be.
    * `stores`: The golden stores that it can be planted into.
    """

    plant: Callable[[StoreCopy], list[Expected]]
    stores: tuple[str, ...] = SOUND

    def __str__(self) -> str:
        return self.plant.__name__


def counts_of(expected: Iterable[Expected]) -> dict[str, int]:
    """Return how many findings of each kind there have to be."""
    counts: Counter[str] = Counter()
    for each in expected:
        counts[str(each.kind)] += each.number
    return dict(counts)
