# SPDX-License-Identifier: Apache-2.0
"""Whether the columns of a DataFrame are those of messages, asked before any task runs."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_commitlog.row_encoder import STORE_TIMESTAMP
from store_core.errors import InvalidOptionError
from store_core.format.batch_input import INPUT_COLUMNS

if TYPE_CHECKING:
    from pyspark_commitlog.write_options import WriteOptions

__all__ = ["check_columns"]

_INTEGERS: Final = (ByteType, ShortType, IntegerType)
_LONGS: Final = (*_INTEGERS, LongType)
_TIMES: Final = (LongType, TimestampType, TimestampNTZType)
_BYTES: Final = (BinaryType, StringType)
_TEXT: Final = (StringType,)
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "topic": _TEXT,
    "body": _BYTES,
    "queue_id": _INTEGERS,
    "tags": _TEXT,
    "keys": (StringType, ArrayType),
    "properties": (MapType,),
    "flag": _INTEGERS,
    "sys_flag": _INTEGERS,
    "born_timestamp": _TIMES,
    "born_host": _TEXT,
    "store_host": _TEXT,
    "reconsume_times": _INTEGERS,
    "prepared_transaction_offset": _LONGS,
    "delay_level": _INTEGERS,
    "properties_string": _BYTES,
    STORE_TIMESTAMP: _TIMES,
}
_STRING: Final = "properties_string"
_IN_STRING: Final = ("tags", "keys", "properties", "delay_level")


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse a DataFrame that can't be messages.

    Raises
    ------
    InvalidOptionError
        If a column is unknown (the nearest one is named), missing, there twice, at odds with another one, or of a type
        it can't have.
    """
    names = [name.lower() for name in schema.fieldNames()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOptionError(f"column {twice!r} is there twice")
    key = options.sharding_key
    if key is not None and key.lower() not in names:
        raise InvalidOptionError(f"option shardingKey: expected a column of the DataFrame, found {key!r}")
    for field in schema:
        if field.name.lower() not in _TYPES and (key is None or field.name.lower() != key.lower()):
            raise _unknown(field.name)
        _check_type(field)
    needed = ["body"] + ["topic"] * (options.topic is None) + [STORE_TIMESTAMP] * options.preserve_store_timestamp
    missing = [name for name in needed if name not in names]
    if missing:
        raise InvalidOptionError(f"messages need a column {missing[0]!r}; found {', '.join(names) or 'none'}")
    beside = [name for name in _IN_STRING if name in names] if _STRING in names else []
    if beside:
        raise InvalidOptionError(f"column {_STRING!r} holds all properties: drop {', '.join(map(repr, beside))}, or it")
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        raise InvalidOptionError(
            "messages get the time at which they are appended: say option('preserveStoreTimestamp', 'true') to keep "
            "those in column 'store_timestamp', or drop it"
        )


def _unknown(name: str) -> InvalidOptionError:
    near = difflib.get_close_matches(name.lower(), _TYPES, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(INPUT_COLUMNS)}"
    return InvalidOptionError(f"a message can't have a column {name!r}; {hint}")


def _check_type(field: StructField) -> None:
    allowed = _TYPES.get(field.name.lower())
    kind = field.dataType
    is_fit = allowed is None or isinstance(kind, allowed)
    if isinstance(kind, ArrayType):
        is_fit = is_fit and isinstance(kind.elementType, StringType)
    if isinstance(kind, MapType):
        is_fit = is_fit and isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not is_fit:
        meaning = INPUT_COLUMNS.get(field.name.lower(), "timestamp or epoch ms")
        raise InvalidOptionError(f"column {field.name!r} of type {kind.simpleString()}: expected {meaning}")
