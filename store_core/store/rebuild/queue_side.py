# SPDX-License-Identifier: Apache-2.0
"""The units of a queue on one side of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Compared", "Side"]

Compared: TypeAlias = "np.ndarray[Any, np.dtype[np.void]]"
"""Physical offset, size, tags code and number of messages of each unit."""


class Side(NamedTuple):
    """The units of a queue on one side of a comparison.

    Attributes
    ----------
    indexes : array of int64
        Places in the queue.
    units : array
        Their physical offsets, sizes, tags codes and, in a batch queue, numbers of messages.
    """

    indexes: npt.NDArray[np.int64]
    units: Compared

    def chosen(self, mask: npt.NDArray[np.bool_]) -> Side:
        """Return some of the units."""
        return Side(self.indexes[mask], self.units[mask])
