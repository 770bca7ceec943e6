# SPDX-License-Identifier: Apache-2.0
"""Converts rows of text, from JSON or CSV, to the types of messages; errors name the text and its row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention
from pyspark.sql.types import MapType, StructType

from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP
from store_core.errors import InvalidOptionError
from store_core.format.columnar.input_columns import INT32_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


WRONG_LINE: Final = "_wrong_line"
"""The column in which Spark's JSON reader leaves a line that is not JSON."""

_TIMES: Final = ("born_timestamp", STORE_TIMESTAMP)
_SHOWN: Final = 200
"""Characters of a value, or of a row, that an error shows."""

_BEGIN, _END = "wrong row: ", " (nothing was appended)"
_WRONG: Final = re.compile(f"{_BEGIN}(.*?){re.escape(_END)}", re.DOTALL)
_WIDE: Final = re.compile(r"MALFORMED_CSV_RECORD\] Malformed CSV record: (.*?) SQLSTATE", re.DOTALL)
_FILE: Final = re.compile(r"while reading file (file:\S+)\. ")


def typed_rows(frame: DataFrame, path: str, *, is_base64: bool) -> DataFrame:
    """Convert columns of text to the types of messages.

    * `frame`: Rows from files, with columns of text; properties may be an object, and keys a list.
    * `is_base64`: Whether bodies are in base64.

    Returns: Its job fails at a text that can't be converted; `wrong_row` finds the message in Spark's error.
    """
    if frame.columns == [WRONG_LINE]:
        raise InvalidOptionError(f"{path}: expected a JSON object in each line, found none")
    names = [name for name in frame.columns if name != WRONG_LINE]
    shown = F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)))
    columns = [_column(frame, name, shown, is_base64=is_base64).alias(name) for name in names]
    if WRONG_LINE in frame.columns:
        line = F.col(WRONG_LINE)
        told = _raised(F.lit("expected a JSON object in each line, found "), F.substring(line, 1, _SHOWN))
        # In a condition on the rows: Spark would not compute a column that is not selected.
        return frame.where(F.when(line.isNull(), line.isNull()).otherwise(told)).select(*columns)
    return frame.select(*columns)


def wrong_row(text: str) -> str | None:
    """Return what is wrong with a row of `typed_rows`, found in the text of a Spark error and its causes."""
    found = _WRONG.search(text)
    if found is not None:
        return found[1] + _END
    found = _WIDE.search(text)
    if found is None:
        return None
    file = _FILE.search(text)
    where = "" if file is None else f"{file[1]}: "
    return f"{where}expected as many values in each line as the header has, found {found[1][:_SHOWN]}{_END}"


def _column(frame: DataFrame, name: str, row: Column, *, is_base64: bool) -> Column:
    column, kind, key = F.col(f"`{name}`"), frame.schema[name].dataType, name.lower()

    def checked(value: Column, expected: str) -> Column:
        told = _raised(
            F.lit(f"column {name}: expected {expected}, found "),
            F.substring(column.cast("string"), 1, _SHOWN),
            F.lit(" in the row "),
            F.substring(row, 1, _SHOWN),
        )
        return F.when(column.isNull() | value.isNotNull(), value).otherwise(told)

    if key in INT32_COLUMNS:
        return checked(column.try_cast("int"), "a whole number of 32 bits")
    if key == "prepared_transaction_offset":
        return checked(column.try_cast("bigint"), "a whole number of 64 bits")
    if key in _TIMES:
        time = F.coalesce(column.try_cast("bigint"), F.unix_millis(column.try_cast("timestamp")))
        return checked(time, "milliseconds since 1970, or a time such as 2026-03-14T08:00:00Z")
    if key == "body" and is_base64:
        return checked(F.try_to_binary(column, F.lit("base64")), "base64")
    if key == "properties" and not isinstance(kind, MapType):
        text = F.to_json(column) if isinstance(kind, StructType) else column
        return checked(F.from_json(text, "map<string,string>"), 'a JSON object such as {"name": "value"}')
    return column


def _raised(*parts: Column) -> Column:
    """Return a column that fails the job, with a text between marks that names the file."""
    return F.raise_error(F.concat(F.lit(_BEGIN), F.input_file_name(), F.lit(": "), *parts, F.lit(_END)))
