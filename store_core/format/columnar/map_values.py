# SPDX-License-Identifier: Apache-2.0
"""Single properties out of the column of all properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["with_properties"]

_PROPERTIES: Final = "properties"


def with_properties(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return a batch with columns of single properties in place of that of all properties.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Has the column ``properties``.
    names : mapping of str to str
        New column -> property. Of two properties with one name the last counts, as in Java.
    """
    maps = batch[_PROPERTIES]
    for column, name in names.items():
        batch = batch.append_column(column, pc.map_lookup(maps, pa.scalar(name), "last"))
    return batch.drop_columns([_PROPERTIES])
