# SPDX-License-Identifier: Apache-2.0
"""Properties of many messages as maps from name to value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["have_name", "used_names", "used_values", "without_names"]


def used_names(properties: pa.MapArray) -> pa.StringArray:
    """Return the names that maps use; a slice also carries those of all other rows."""
    return properties.keys.slice(*_used(properties))


def used_values(properties: pa.MapArray) -> pa.StringArray:
    """Return the values that maps use, as `used_names`."""
    return properties.items.slice(*_used(properties))


def _used(properties: pa.MapArray) -> tuple[int, int]:
    first, last = properties.offsets[0].as_py(), properties.offsets[len(properties)].as_py()
    return first, last - first


def have_name(properties: pa.MapArray, name: str) -> npt.NDArray[np.bool_]:
    """Return which maps have a name.

    Examples
    --------
    >>> have_name(pa.array([[("KEYS", "k")], None, []], pa.map_(pa.string(), pa.string())), "KEYS").tolist()
    [True, False, False]
    """
    offsets = np.asarray(properties.offsets)[: len(properties) + 1]
    before = np.concatenate([[0], np.cumsum(np.asarray(pc.equal(used_names(properties), name)))])
    return np.asarray(np.diff(before[offsets - offsets[0]]) > 0)


def without_names(
    properties: pa.MapArray, names: Sequence[str], rows: npt.NDArray[np.bool_] | None = None
) -> pa.MapArray:
    """Return maps without some names; what is null stays null.

    Parameters
    ----------
    rows : numpy.ndarray, optional
        Which maps are changed; by default all are.

    Examples
    --------
    >>> maps = pa.array([[("KEYS", "k"), ("DELAY", "3")], None], pa.map_(pa.string(), pa.string()))
    >>> without_names(maps, ["DELAY"]).to_pylist()
    [[('KEYS', 'k')], None]
    """
    offsets = np.asarray(properties.offsets)[: len(properties) + 1]
    keys, items = used_names(properties), used_values(properties)
    kept = np.asarray(pc.invert(pc.is_in(keys, pa.array(names))))
    if rows is not None:
        kept = kept | ~np.repeat(rows, np.diff(offsets))
    before = np.concatenate([[0], np.cumsum(kept)])
    places = pa.array(before[offsets - offsets[0]].astype(np.int32), mask=_ends_of_nulls(properties))
    mask = pa.array(kept)
    return pa.MapArray.from_arrays(places, keys.filter(mask), items.filter(mask))


def _ends_of_nulls(properties: pa.MapArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each offset whether it begins a null, as `pyarrow.MapArray.from_arrays` expects it."""
    return np.append(np.asarray(properties.is_null()), False)
