# SPDX-License-Identifier: Apache-2.0
"""Checks that the columns of a DataFrame are those of messages, before any task runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP
from store_core.errors import InvalidOptionError
from store_core.format.columnar.input_columns import INPUT_COLUMNS
from store_core.format.columns import COLUMNS
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from pyspark_commitlog.write.options import WriteOptions


_INTEGERS: Final = ("tinyint", "smallint", "int")
_LONGS: Final = (*_INTEGERS, "bigint")
_TIMES: Final = ("bigint", "timestamp")
_BYTES: Final = ("binary", "string")
_TEXT: Final = ("string",)
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": _BYTES,
    "queue_id": _INTEGERS,
    "tags": _TEXT,
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
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
"""Types by Spark's names, however strings are collated."""

_COLLATION: Final = re.compile(r" collate \w+")
_OF_ARROW: Final = {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
}

_READ_ONLY: Final = frozenset(column.name for column in COLUMNS) - _TYPES.keys()
"""Columns of rows read from a store that no message has before it is in a log."""

_PAYLOADS: Final = frozenset({"value", "payload", "message", "data", "content"})
"""Names that other sources have for a body."""

_STRING: Final = "properties_string"
_IN_STRING: Final = ("tags", "keys", "properties", "delay_level")


def check_columns(schema: StructType | pa.Schema, options: WriteOptions) -> None:
    """Refuse a DataFrame, or columns of Arrow, that can't be messages."""
    columns = _columns_of(schema)
    names = [name.lower() for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOptionError(f"expected each column once, found {twice!r} twice: drop or rename one of the two")
    key = options.sharding_key
    if key is not None and key.lower() not in names:
        raise InvalidOptionError(f"option shardingKey: expected a column of the DataFrame, found {key!r}")
    known = _TYPES.keys() | ({key.lower()} if key is not None else set())
    kinds = dict(columns)
    unknown = [name for name in kinds if name.lower() not in known]
    if unknown and _READ_ONLY.issuperset(map(str.lower, unknown)):
        raise _read(kinds, unknown, options)
    needed = ["body"] + ["topic"] * (options.topic is None) + [STORE_TIMESTAMP] * options.preserve_store_timestamp
    missing = [name for name in needed if name not in names]
    if missing:
        raise _missing(missing[0], kinds)
    if unknown:
        raise _unknown(unknown)
    for name, kind in columns:
        if not _is_fit(name.lower(), kind):
            meaning = INPUT_COLUMNS.get(name.lower(), "timestamp with a time zone, or epoch ms")
            raise InvalidOptionError(f"column {name!r} of type {kind}: expected {meaning}")
    beside = [name for name in _IN_STRING if name in names] if _STRING in names else []
    if beside:
        raise InvalidOptionError(
            f"column {_STRING!r} holds all properties: drop either it or {', '.join(map(repr, beside))}"
        )
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        raise InvalidOptionError(
            "messages get the time at which they are appended: set option('preserveStoreTimestamp', 'true') to keep "
            "those in column 'store_timestamp', or drop it"
        )


def _columns_of(schema: StructType | pa.Schema) -> list[tuple[str, str]]:
    """Return names and types of columns, as Spark names types."""
    if isinstance(schema, pa.Schema):
        return [(field.name, _spark_name(field.type)) for field in schema]
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _spark_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_list(kind):
        return f"array<{_spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_name(kind.key_type)},{_spark_name(kind.item_type)}>"
    return _OF_ARROW.get(kind, str(kind))


def _unknown(names: list[str]) -> InvalidOptionError:
    """Return the error for columns that no message has; the first may be a mistyped name."""
    hint = did_you_mean(names[0], _TYPES) or f"the columns are {', '.join(INPUT_COLUMNS)}"
    others = f", nor {', '.join(map(repr, names[1:]))}" if names[1:] else ""
    return InvalidOptionError(f"a message can't have a column {names[0]!r}{others}; {hint}")


def _missing(name: str, kinds: Mapping[str, str]) -> InvalidOptionError:
    """Return the error for a missing column: which one, what is there, and how to make it."""
    own = [other for other in kinds if other.lower() not in _TYPES]
    fit = [other for other in own if _is_fit(name, kinds[other])]
    given = next((other for other in fit if other.lower() in _PAYLOADS), (fit or own or ["value"])[0])
    ways = {
        "body": f'create it, for example with selectExpr("CAST({given} AS BINARY) AS body", ...)',
        "topic": "create it, for example with withColumn('topic', lit('orders')), or name one topic for all "
        "rows by option 'topic' (--to-topic of commitlog append)",
        STORE_TIMESTAMP: "create it, or leave out option 'preserveStoreTimestamp'",
    }
    found = ", ".join(f"{other} {kind}" for other, kind in kinds.items())
    return InvalidOptionError(f"messages need a column {name!r}; found {found or 'none'}: {ways[name]}")


def _read(kinds: Mapping[str, str], unknown: list[str], options: WriteOptions) -> InvalidOptionError:
    """Refuse rows as they are read from a store, and say exactly which columns to drop."""
    names = {name.lower(): name for name in kinds}
    dropped = [*unknown]
    if _STRING in names:
        dropped += [names[name] for name in _IN_STRING if name in names]
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        dropped.append(names[STORE_TIMESTAMP])
    shown = ", ".join(map(repr, dropped))
    return InvalidOptionError(
        f"these rows were read from a store, and a message to be written can't have the columns {shown}: "
        f"drop them with "
        f"df.drop({shown}), or copy messages with commitlog append --from-store, which keeps all that can be kept"
    )


def _is_fit(name: str, kind: str) -> bool:
    """Return whether a column of a message may have a type; that of a sharding key may be any."""
    return name not in _TYPES or _COLLATION.sub("", kind) in _TYPES[name]
