# SPDX-License-Identifier: Apache-2.0
"""The units of a queue on one side of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["COMPARED", "Compared", "Side", "plain_columns"]

COMPARED: Final = np.dtype([("physical_offset", "<i8"), ("size", "<i8"), ("tags_code", "<i8"), ("count", "<i8")])

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


def plain_columns(units: npt.NDArray[np.void]) -> Compared:
    """Make stored units of any kind of queue comparable; none of them counts messages."""
    compared = np.zeros(len(units), COMPARED)
    compared["physical_offset"] = units["physical_offset"]
    compared["size"] = units["store_size"]
    compared["tags_code"] = units["tags_code"]
    return compared
