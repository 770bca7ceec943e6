# SPDX-License-Identifier: Apache-2.0
"""Checks of a row's properties: what is left out of a message, and what would be read back differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import InvalidOptionError
from store_core.format.columnar.property_maps import without_names
from store_core.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_CRC, PROPERTY_SEPARATOR
from store_core.format.property_string import delete_property
from store_core.format.releases.release import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.format.releases.release import Release

__all__ = ["refuse_separators", "without_property_crc"]

_VALUES: Final = {PROPERTY_SEPARATOR: "byte 2, which ends a property"}
_NAMES: Final = {NAME_VALUE_SEPARATOR: "byte 1, which ends a name", **_VALUES}
_VALUES_WITHOUT_SEPARATOR: Final = {NAME_VALUE_SEPARATOR: "byte 1, at which RocketMQ 4.3 loses the value", **_VALUES}


def without_property_crc(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Leave out the checksum of the record that a message was read from: it does not match the new record.

    A broker that verifies it (5.2 and later, ``forceVerifyPropCRC``) would treat the new record as damaged.

    Parameters
    ----------
    columns : dict of str to pyarrow.Array
        Columns by lower-case name.
    """
    replaced: dict[str, pa.Array] = {}
    strings, properties = columns.get("properties_string"), columns.get("properties")
    if strings is not None and _occurs(strings, PROPERTY_CRC):
        replaced["properties_string"] = _without_item(strings.cast(pa.binary()))
    if properties is not None and pc.any(pc.equal(_used(properties, "keys"), PROPERTY_CRC)).as_py():
        replaced["properties"] = without_names(properties, (PROPERTY_CRC,))
    return columns | replaced


def _without_item(strings: pa.BinaryArray) -> pa.BinaryArray:
    def cut(value: bytes | None) -> bytes | None:
        return value and delete_property(value.decode("latin-1"), PROPERTY_CRC).encode("latin-1")

    return pa.array([cut(value) for value in strings.to_pylist()], pa.binary())


def refuse_separators(messages: pa.RecordBatch, release: Release) -> None:
    """Refuse properties that contain separator bytes: readers of the message would see other properties.

    Parameters
    ----------
    messages : pyarrow.RecordBatch
        With lower-case names. Column `properties_string` may contain anything: it is stored as it is.
    release : str
        4.3 loses a value with the byte between name and value, or what follows it (``String.split`` in its
        ``MessageDecoder``); 4.9 and later cut at the first, and keep it in values.

    Raises
    ------
    InvalidOptionError
        If any row has one.
    """
    values = _VALUES if rules_of(release).splits_properties_at_first_separator else _VALUES_WITHOUT_SEPARATOR
    for what, column, separators in _texts(messages, values):
        for separator, meaning in separators.items():
            if _occurs(column, separator):
                raise InvalidOptionError(f"{what} contain {meaning}: expected any other character")


def _texts(messages: pa.RecordBatch, values: dict[str, str]) -> Iterable[tuple[str, pa.Array, dict[str, str]]]:
    for name in ("tags", "keys"):
        if name in messages.schema.names:
            column = messages.column(name)
            is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
            yield name, column.flatten() if is_list else column, values
    if "properties" in messages.schema.names:
        properties = messages.column("properties")
        yield "names of properties", _used(properties, "keys"), _NAMES
        yield "values of properties", _used(properties, "items"), values


def _used(properties: pa.MapArray, part: str) -> pa.Array:
    """Return the names or values that the rows of a map use; a slice also carries those of all other rows."""
    offsets = properties.offsets
    first, last = offsets[0].as_py(), offsets[len(properties)].as_py()
    return getattr(properties, part).slice(first, last - first)


def _occurs(column: pa.Array, text: str) -> bool:
    """Return whether any value contains a text; one search of all bytes is much faster than one per row."""
    if not len(column):
        return False
    column = column.cast(pa.binary())
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    if data is None:
        return False
    return text.encode() in memoryview(data)[ends[0] : ends[-1]].tobytes()
