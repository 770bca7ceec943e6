# SPDX-License-Identifier: Apache-2.0
"""Rows of JSON lines and CSV files, where it is beyond doubt what Spark's readers and casts make of each value.

`pyspark_commitlog.write.typed_rows` is the definition, and says what is wrong with a row. Anything unusual, such as
a number that is not a whole one, or a file that is not in UTF-8, leaves the whole file to it.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP
from store_core.format.columnar.input_columns import INT32_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["text_rows"]

_LARGEST: Final = 16 << 20
"""Most bytes of a file whose rows are held in memory."""

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_TIME: Final = re.compile(
    r"[12][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{3}|\.[0-9]{6})?Z"
)
_MILLISECOND: Final = 1000


class _UnusualError(Exception):
    """Only Spark can say what this means."""


def text_rows(path: Path, kind: Literal["json", "csv"], *, is_base64: bool) -> pa.Table | None:
    """Return the rows of a file with the types of messages; None if only Spark can say what they are.

    Parameters
    ----------
    path : Path
    kind : {"json", "csv"}
        JSON with an object per line, or CSV with a header.
    is_base64 : bool
        Whether bodies are in base64.
    """
    try:
        rows = list(_json_rows(_text(path)) if kind == "json" else _csv_rows(_text(path)))
        names = list({name: None for row in rows for name in row})
        if not rows or len({name.lower() for name in names}) < len(names):
            return None
        return pa.table({name: _column(name, [row.get(name) for row in rows], is_base64=is_base64) for name in names})
    except (_UnusualError, OSError, ValueError, RecursionError, csv.Error):
        return None


def _text(path: Path) -> str:
    """Return a file's text: UTF-8 whose lines end alike for all readers."""
    if not path.is_file() or path.stat().st_size > _LARGEST:
        raise _UnusualError
    text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    if "\r" in text or "\0" in text or text.startswith("\ufeff"):
        raise _UnusualError
    return text.removesuffix("\n")


# ---- rows


def _json_rows(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of lines, with numbers and truth values as the text of their JSON."""
    for line in text.split("\n"):
        row = json.loads(
            line, object_pairs_hook=_object, parse_int=_whole, parse_float=_unusual, parse_constant=_unusual
        )
        if not isinstance(row, dict) or not row:
            raise _UnusualError
        yield row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _UnusualError
    return {name: ("false", "true")[value] if isinstance(value, bool) else value for name, value in pairs}


def _whole(text: str) -> str:
    if _WHOLE.fullmatch(text) is None:
        raise _UnusualError
    return text


def _unusual(_: str) -> str:
    raise _UnusualError


def _csv_rows(text: str) -> Iterator[dict[str, str | None]]:
    """Yield the rows of a file without quoted line ends, with empty values as None."""
    lines = text.split("\n")
    if any(line.count('"') % 2 or not line.strip() or "\\" in line for line in lines):
        raise _UnusualError
    header, *rows = csv.reader(lines, strict=True)
    if len(set(header)) < len(header) or not all(name.isidentifier() for name in header):
        raise _UnusualError
    for row in rows:
        if len(row) != len(header) or any(value != value.strip() for value in row):
            raise _UnusualError
        yield {name: value or None for name, value in zip(header, row, strict=True)}


# ---- values


def _column(name: str, values: list[Any], *, is_base64: bool) -> pa.Array:
    convert, kind = _conversion(name.lower(), values, is_base64=is_base64)
    return pa.array([None if value is None else convert(value) for value in values], kind)


def _conversion(name: str, values: list[Any], *, is_base64: bool) -> tuple[Callable[[Any], Any], pa.DataType]:
    if name == "body" and is_base64:
        return _bytes, pa.binary()
    if name == "keys" and any(isinstance(value, list) for value in values):
        return _texts, pa.list_(pa.string())
    return _CONVERSIONS.get(name, (_plain_text, pa.string()))


def _plain_text(value: object) -> str:
    if not isinstance(value, str):
        raise _UnusualError
    value.encode()  # a lone surrogate is a ValueError
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise _UnusualError
    return [_plain_text(each) for each in value]


def _integer(bits: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        number = int(_whole(_plain_text(value)))
        if not -(1 << bits) <= number < 1 << bits:
            raise _UnusualError
        return number

    return convert


def _time(value: object) -> int:
    text = _plain_text(value)
    if _TIME.fullmatch(text) is None:
        return _integer(63)(text)
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _MILLISECOND + since.microseconds // _MILLISECOND


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(_plain_text(value), validate=True)
    except binascii.Error:
        raise _UnusualError from None


def _properties(value: object) -> list[tuple[str, str]]:
    """Return the pairs of an object, or of the text of one; a null is left to Spark, as are objects in objects."""
    if isinstance(value, str):
        value = json.loads(
            value, object_pairs_hook=_object, parse_int=_whole, parse_float=_unusual, parse_constant=_unusual
        )
    if not isinstance(value, dict):
        raise _UnusualError
    return [(_plain_text(name), _plain_text(each)) for name, each in value.items()]


_CONVERSIONS: Final[dict[str, tuple[Callable[[Any], Any], pa.DataType]]] = {
    **dict.fromkeys(INT32_COLUMNS, (_integer(31), pa.int32())),
    "prepared_transaction_offset": (_integer(63), pa.int64()),
    "born_timestamp": (_time, pa.int64()),
    STORE_TIMESTAMP: (_time, pa.int64()),
    "properties": (_properties, pa.map_(pa.string(), pa.string())),
}
