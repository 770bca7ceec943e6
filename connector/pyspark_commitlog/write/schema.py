# SPDX-License-Identifier: Apache-2.0
"""Checks that the columns of a DataFrame are those of messages, before any task runs."""

from __future__ import annotations

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

from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP
from store_core.errors import InvalidOptionError
from store_core.format.columnar.input_columns import INPUT_COLUMNS
from store_core.format.columns import COLUMNS
from store_core.format.near_name import did_you_mean

if TYPE_CHECKING:
    from pyspark_commitlog.write.options import WriteOptions

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
_READ_ONLY: Final = frozenset(column.name for column in COLUMNS) - _TYPES.keys()
"""Columns of rows read from a store that no message has before it is in a log."""

_PAYLOADS: Final = frozenset({"value", "payload", "message", "data", "content"})
"""Names that other sources have for a body."""

_STRING: Final = "properties_string"
_IN_STRING: Final = ("tags", "keys", "properties", "delay_level")


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse a DataFrame that can't be messages.

    Raises
    ------
    InvalidOptionError
        If a column is unknown (the message suggests the nearest one), missing (the message says how to make it),
        there twice, in conflict with another one, or of a wrong type.
    """
    names = [name.lower() for name in schema.fieldNames()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOptionError(f"column {twice!r} is there twice")
    key = options.sharding_key
    if key is not None and key.lower() not in names:
        raise InvalidOptionError(f"option shardingKey: expected a column of the DataFrame, found {key!r}")
    known = _TYPES.keys() | ({key.lower()} if key is not None else set())
    unknown = [field.name for field in schema if field.name.lower() not in known]
    if unknown and _READ_ONLY.issuperset(map(str.lower, unknown)):
        raise _read(schema, unknown, options)
    needed = ["body"] + ["topic"] * (options.topic is None) + [STORE_TIMESTAMP] * options.preserve_store_timestamp
    missing = [name for name in needed if name not in names]
    if missing:
        raise _missing(missing[0], schema)
    if unknown:
        raise _unknown(unknown)
    for field in schema:
        _check_type(field)
    beside = [name for name in _IN_STRING if name in names] if _STRING in names else []
    if beside:
        raise InvalidOptionError(f"column {_STRING!r} holds all properties: drop {', '.join(map(repr, beside))}, or it")
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        raise InvalidOptionError(
            "messages get the time at which they are appended: set option('preserveStoreTimestamp', 'true') to keep "
            "those in column 'store_timestamp', or drop it"
        )


def _unknown(names: list[str]) -> InvalidOptionError:
    """Return the error for columns that no message has; the first may be a mistyped name."""
    hint = did_you_mean(names[0], _TYPES) or f"the columns are {', '.join(INPUT_COLUMNS)}"
    others = f", nor {', '.join(map(repr, names[1:]))}" if names[1:] else ""
    return InvalidOptionError(f"a message can't have a column {names[0]!r}{others}; {hint}")


def _missing(name: str, schema: StructType) -> InvalidOptionError:
    """Return the error for a missing column: which one, what is there, and how to make it."""
    own = [field.name for field in schema if field.name.lower() not in _TYPES]
    fit = [field.name for field in schema if field.name in own and isinstance(field.dataType, _TYPES[name])]
    given = next((other for other in fit if other.lower() in _PAYLOADS), (fit or own or ["value"])[0])
    ways = {
        "body": f'create it, for example with selectExpr("CAST({given} AS BINARY) AS body", ...)',
        "topic": "create it, for example with withColumn('topic', lit('orders')), or name one topic for all "
        "rows by option 'topic' "
        "(--to-topic of commitlog-append)",
        STORE_TIMESTAMP: "create it, or leave out option 'preserveStoreTimestamp'",
    }
    found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    return InvalidOptionError(f"messages need a column {name!r}; found {found or 'none'}: {ways[name]}")


def _read(schema: StructType, unknown: list[str], options: WriteOptions) -> InvalidOptionError:
    """Refuse rows as they are read from a store, and say exactly which columns to drop."""
    names = {field.name.lower(): field.name for field in schema}
    dropped = [*unknown]
    if _STRING in names:
        dropped += [names[name] for name in _IN_STRING if name in names]
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        dropped.append(names[STORE_TIMESTAMP])
    shown = ", ".join(map(repr, dropped))
    return InvalidOptionError(
        f"these rows were read from a store, and a message to be written can't have the columns {shown}: "
        f"drop them with "
        f"df.drop({shown}), or copy messages with commitlog-append --from-store, which keeps all that can be kept"
    )


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
