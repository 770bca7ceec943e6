# SPDX-License-Identifier: Apache-2.0
"""Properties of many messages as maps from name to value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["without_names"]


def without_names(properties: pa.MapArray, names: Sequence[str]) -> pa.MapArray:
    """Return maps without some names; what is null stays null.

    Examples
    --------
    >>> maps = pa.array([[("KEYS", "k"), ("DELAY", "3")], None], pa.map_(pa.string(), pa.string()))
    >>> without_names(maps, ["DELAY"]).to_pylist()
    [[('KEYS', 'k')], None]
    """
    offsets = np.asarray(properties.offsets)[: len(properties) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    keys, items = properties.keys.slice(first, last - first), properties.items.slice(first, last - first)
    kept = np.asarray(pc.invert(pc.is_in(keys, pa.array(names))))
    before = np.concatenate([[0], np.cumsum(kept)])
    places = pa.array(before[offsets - first].astype(np.int32), mask=_ends_of_nulls(properties))
    mask = pa.array(kept)
    return pa.MapArray.from_arrays(places, keys.filter(mask), items.filter(mask))


def _ends_of_nulls(properties: pa.MapArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each offset whether it begins a null, as `pyarrow.MapArray.from_arrays` expects it."""
    return np.append(np.asarray(properties.is_null()), False)
