# SPDX-License-Identifier: Apache-2.0
"""Checks of a row's properties: what is left out of a message, and what would be read back differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import InvalidOptionError
from store_core.format.columnar.arrow_slices import true_mask
from store_core.format.columnar.property_maps import have_name, used_names, used_values, without_names
from store_core.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_CRC, PROPERTY_SEPARATOR
from store_core.format.property_string import REAL_TOPIC, delete_property
from store_core.format.record.delayed import OF_WAITING
from store_core.format.releases.release import rules_of
from store_core.format.sys_flag import TRANSACTION_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.format.releases.release import Release

__all__ = ["refuse_separators", "without_delivery", "without_property_crc"]

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
        replaced["properties_string"] = _without_items(strings.cast(pa.binary()), (PROPERTY_CRC,))
    if properties is not None and pc.any(pc.equal(used_names(properties), PROPERTY_CRC)).as_py():
        replaced["properties"] = without_names(properties, (PROPERTY_CRC,))
    return columns | replaced


def without_delivery(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Leave out of delivered messages what they had waited for, a delay or a transaction: they would wait again.

    That a broker delivered them shows ``REAL_TOPIC``: a message that a producer sends has none.

    Parameters
    ----------
    columns : dict of str to pyarrow.Array
        Columns by lower-case name.
    """
    strings, properties = columns.get("properties_string"), columns.get("properties")
    replaced: dict[str, pa.Array] = {}
    if strings is not None and _occurs(strings, REAL_TOPIC):
        given = strings.cast(pa.binary())
        delivered = true_mask(pc.not_equal(given, _without_items(given, (REAL_TOPIC,))))
        replaced["properties_string"] = pc.if_else(pa.array(delivered), _without_items(given, OF_WAITING), given)
    elif properties is not None and pc.any(pc.equal(used_names(properties), REAL_TOPIC)).as_py():
        delivered = have_name(properties, REAL_TOPIC)
        replaced["properties"] = without_names(properties, OF_WAITING, delivered)
    else:
        return columns
    for name, bits in (("sys_flag", ~TRANSACTION_MASK), ("prepared_transaction_offset", 0)):
        if name in columns:
            cleared = pc.bit_wise_and(columns[name], pa.scalar(bits, columns[name].type))
            replaced[name] = pc.if_else(pa.array(delivered), cleared, columns[name])
    return columns | replaced


def _without_items(strings: pa.BinaryArray, names: Iterable[str]) -> pa.BinaryArray:
    def cut(value: bytes | None) -> bytes | None:
        text = (value or b"").decode("latin-1")
        for name in names:
            text = delete_property(text, name)
        return value and text.encode("latin-1")

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
        yield "names of properties", used_names(properties), _NAMES
        yield "values of properties", used_values(properties), values


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
