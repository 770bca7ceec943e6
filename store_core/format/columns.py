# SPDX-License-Identifier: Apache-2.0
"""The columns of a message: one list for Arrow's schema, the DataFrame schema and the documents; and times as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.errors import InvalidOptionError
from store_core.format.layout import MESSAGE_HEAD
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


BODY_TEXT: Final = "body_text"
BODIES: Final = frozenset({"body", BODY_TEXT})
"""Columns that are made from bodies: these are checked, and expanded, where one of them is requested."""

CORRUPT_RECORD: Final = "_corrupt_record"
STORE: Final = "store"
"""What tells the rows of several stores apart: a column of messages and of every view."""

PROPERTY_COLUMN: Final = "property."
"""How the name of a column of one property begins; the rest is the property's name, whose case matters."""

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
STRINGS_TYPE: Final = pa.list_(pa.field("element", pa.string(), nullable=True))
MAP_TYPE: Final = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True))

HEAD_FIELDS: Final = {
    "store_size": "total_size",
    "store_timestamp_ms": "store_timestamp",
    "born_timestamp_ms": "born_timestamp",
}
"""Columns whose head field has another name; for all others the names are equal."""

_HEAD_TYPES: Final = {field.name: field.type for field in MESSAGE_HEAD.fields if field.v6_flag is None}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a view."""

    name: str
    type: pa.DataType
    nullable: bool  # whether a sound record can have a null here
    default: bool  # whether it is read if no columns are named
    doc: str


def _head_column(name: str, doc: str, *, default: bool = True) -> Column:
    """Return the column of an integer field of the head: its type is that of the layout, in native order."""
    stored = np.dtype(_HEAD_TYPES[HEAD_FIELDS.get(name, name)])
    return Column(name, pa.from_numpy_dtype(stored.newbyteorder("=")), nullable=False, default=default, doc=doc)


def _column(name: str, kind: pa.DataType, doc: str, *, nullable: bool = False, default: bool = True) -> Column:
    return Column(name, kind, nullable, default, doc)


COLUMNS: Final = (
    _column(
        "topic", pa.string(), "topic of the record; delayed and half messages keep their own in property REAL_TOPIC"
    ),
    _head_column("queue_id", "queue of the topic"),
    _head_column("queue_offset", "logical offset; 0 for prepared and rolled-back transaction messages"),
    _head_column("physical_offset", "position of the record in the log, in bytes; the row's identity"),
    _head_column("store_size", "bytes of the record"),
    _column(
        "store_timestamp",
        TIMESTAMP_TYPE,
        "broker's clock when the record was appended; millisecond precision. Null outside the years 1 to 9999",
        nullable=True,
    ),
    _column(
        "born_timestamp",
        TIMESTAMP_TYPE,
        "producer's clock; millisecond precision. Null outside the years 1 to 9999, as where a producer stored "
        "microseconds",
        nullable=True,
    ),
    _column("store_host", pa.string(), "broker's `ip:port`, IPv6 as `[ip]:port`"),
    _column("born_host", pa.string(), "producer's `ip:port`, IPv6 as `[ip]:port`"),
    _column("tags", pa.string(), "property TAGS", nullable=True),
    _column("keys", STRINGS_TYPE, "property KEYS, split at spaces", nullable=True),
    _column("properties", MAP_TYPE, "all properties; the last value of a name that occurs twice"),
    _column("body", pa.binary(), "body as stored; decompressed with `decompress=true`"),
    _head_column("body_crc", "checksum of the stored body: CRC-32 with the top bit cleared"),
    _head_column("flag", "the application's own flag"),
    _head_column("sys_flag", "bits: compression, transaction type, host widths, batch"),
    _head_column("reconsume_times", "deliveries that failed before this copy"),
    _head_column("prepared_transaction_offset", "physical offset of the half message of a commit record, else 0"),
    _head_column("magic_code", "record kind, signed as Java prints it: -626843481 V1, -626843477 V2"),
    _column(
        BODY_TEXT,
        pa.string(),
        "`body` as text; null where it is not UTF-8. A compressed one is text with `decompress=true` only",
        nullable=True,
        default=False,
    ),
    _head_column("store_timestamp_ms", "`store_timestamp` as stored: ms since 1970, any number", default=False),
    _head_column("born_timestamp_ms", "`born_timestamp` as stored: ms since 1970, any number", default=False),
    _column("msg_id", pa.string(), "offset message id: 32 or 56 hexadecimal digits", default=False),
    _column(
        "unique_key", pa.string(), "property UNIQ_KEY: the id the producer's client made", nullable=True, default=False
    ),
    _column(
        "uniq_msg_id",
        pa.string(),
        "the id that the producer's send returned: the first property UNIQ_KEY; in a client's batch `unique_key`, the "
        "last one, is that of the batch",
        nullable=True,
        default=False,
    ),
    _column(
        "properties_string", pa.binary(), "properties exactly as stored: in their order, odd ones too", default=False
    ),
    _column("tags_code", pa.int64(), "Java hash of the tags, 0 without; what queue units hold", default=False),
    _column("segment", pa.string(), "name of the segment file", default=False),
    _column("transaction_type", pa.string(), "NOT_TYPE, PREPARED_TYPE, COMMIT_TYPE or ROLLBACK_TYPE", default=False),
    _column(
        "compression",
        pa.string(),
        "how the stored body is compressed: NONE, LZ4, ZSTD or ZLIB; null where `sys_flag` names none of these",
        nullable=True,
        default=False,
    ),
    _column(
        "dledger_index",
        pa.int64(),
        "in a DLedger log: number of the entry that holds the record; else null",
        nullable=True,
        default=False,
    ),
    _column(
        "dledger_term",
        pa.int64(),
        "in a DLedger log: term of the leader that appended the entry; else null",
        nullable=True,
        default=False,
    ),
    _column(
        "dledger_committed",
        pa.bool_(),
        "in a DLedger log: whether its checkpoint calls the entry committed; another leader may still replace those "
        "after it. Null if there is no checkpoint, and in other logs",
        nullable=True,
        default=False,
    ),
    _column(
        STORE,
        pa.string(),
        "name of the store: its broker's if `config/topics.json` tells it, else what its path alone has; of "
        "several, `physical_offset` is unique within it",
        default=False,
    ),
    _column(
        CORRUPT_RECORD,
        pa.binary(),
        "with `mode=PERMISSIVE`: the bytes of a damaged range; where only the body is null, why it could not be "
        "decompressed, as text; else null",
        nullable=True,
        default=False,
    ),
)

DEFAULT_COLUMNS: Final = tuple(column.name for column in COLUMNS if column.default)


def resolve_columns(names: Sequence[str], columns: Sequence[Column] = COLUMNS) -> tuple[str, ...]:
    """Return the canonical names for column names of any case, in the order given."""
    known = [column.name for column in columns]
    resolved = tuple(
        (_property_column(name) if columns is COLUMNS else None) or _resolve(name, known) for name in names
    )
    twice = sorted({name for name in resolved if resolved.count(name) > 1})
    if twice:
        raise InvalidOptionError(f"column {twice[0]!r} is named twice in {', '.join(names)}")
    if not resolved:
        raise InvalidOptionError(f"no column is named; the columns are {', '.join(known)}")
    return resolved


def property_of(name: str) -> str | None:
    """Return the property that a column ``property.NAME`` has; None for all other columns."""
    return name.removeprefix(PROPERTY_COLUMN) if name.startswith(PROPERTY_COLUMN) else None


def column_named(name: str) -> Column:
    """Return the column of a canonical name, see `resolve_columns`."""
    of_property = property_of(name)
    if of_property is not None:
        return _column(name, pa.string(), f"property {of_property}", nullable=True, default=False)
    return _BY_NAME[name]


_BY_NAME: Final = {column.name: column for column in COLUMNS}


def _property_column(name: str) -> str | None:
    """Return the canonical name if it is that of a property's column."""
    text = name.strip()
    prefix, of_property = text[: len(PROPERTY_COLUMN)], text[len(PROPERTY_COLUMN) :]
    if prefix.lower() != PROPERTY_COLUMN or not of_property:
        return None
    return PROPERTY_COLUMN + of_property


def _resolve(name: str, known: Sequence[str]) -> str:
    folded = name.strip().lower()
    if folded in known:
        return folded
    hint = did_you_mean(name.strip(), known) or f"the columns are {', '.join(known)}"
    raise InvalidOptionError(f"unknown column {name!r}; {hint}")


def arrow_schema(names: Sequence[str], *, nullable: bool = False, columns: Sequence[Column] = COLUMNS) -> pa.Schema:
    """Return the Arrow schema of some columns.

    * `names`: Canonical names, see `resolve_columns`.
    * `nullable`: Declare every column nullable, as mode PERMISSIVE needs.
    """
    by_name = {column.name: column for column in columns}
    found = (by_name.get(name) or column_named(name) for name in names)
    return pa.schema([pa.field(column.name, column.type, nullable or column.nullable) for column in found])


_NOT_A_TIME: Final = np.iinfo(np.int64).min
"""The one 64-bit number that numpy treats as not a time (NaT)."""


def iso_time(milliseconds: int) -> str:
    """Return a time as text, such as ``2023-11-14T22:18:19.500Z``.

    * `milliseconds`: Since 1970, as stores hold times; any 64-bit number, since a store's bytes may hold any.

    >>> iso_time(1_700_000_299_500)
    '2023-11-14T22:18:19.500Z'
    """
    if milliseconds == _NOT_A_TIME:
        return f"{milliseconds} ms"
    return str(np.datetime_as_string(np.datetime64(milliseconds, "ms"), timezone="UTC"))


TIME_RANGE: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds since 1970 of the times that a table holds; a store may hold any 64-bit number, such as nanoseconds."""

_MICROSECONDS: Final = 1000
_LAST_MILLISECOND: Final = np.iinfo(np.int64).max // _MICROSECONDS


def known_time(milliseconds: int | None) -> str | None:
    """Return a time as `iso_time` does; None if it is not known."""
    return None if milliseconds is None else iso_time(milliseconds)


def table_time(milliseconds: int | None) -> int | None:
    """Return a time as the microseconds that a table holds; None if there is none, or no table holds it.

    >>> table_time(1_700_000_299_500), table_time(None), table_time(1_700_000_299_500_000)
    (1700000299500000, None, None)
    """
    return None if milliseconds is None or milliseconds not in TIME_RANGE else milliseconds * _MICROSECONDS


def table_times(milliseconds: npt.NDArray[np.int64], *, is_nearest: bool = False) -> pa.TimestampArray:
    """Return times as a column: `table_time` of each.

    * `milliseconds`: int64, shape (n,).
    * `is_nearest`: Whether there are no nulls, but the nearest times that Arrow has: for what calculates with them.
    """
    if is_nearest:
        nearest = np.clip(milliseconds, -_LAST_MILLISECOND, _LAST_MILLISECOND)
        return _times(nearest)
    is_outside = (milliseconds < TIME_RANGE.start) | (milliseconds >= TIME_RANGE.stop)
    if not is_outside.any():
        return _times(milliseconds)
    return pa.array(np.where(is_outside, 0, milliseconds) * _MICROSECONDS, mask=is_outside).view(TIMESTAMP_TYPE)


def _times(milliseconds: npt.NDArray[np.int64]) -> pa.TimestampArray:
    """Return times that Arrow has, without ``pa.array``, which imports pandas."""
    return pa.Array.from_buffers(TIMESTAMP_TYPE, milliseconds.size, [None, pa.py_buffer(milliseconds * _MICROSECONDS)])


DAY_MS: Final = 86_400_000
_DAY_US: Final = DAY_MS * 1000


def utc_days(times: pa.Array) -> npt.NDArray[np.int64]:
    """Return the day of each time, rounded down: times before 1970 are of negative days.

    * `times`: Timestamps in microseconds, without nulls.

    >>> utc_days(pa.array([-1, 0, 1_700_000_299_500_000], pa.timestamp("us"))).tolist()
    [-1, 0, 19675]
    """
    days: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy() // _DAY_US
    return days


def iso_day(day: int) -> str:
    """Return a day as text.

    >>> iso_day(19675)
    '2023-11-14'
    """
    return iso_time(day * DAY_MS).partition("T")[0]
