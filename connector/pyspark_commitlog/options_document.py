# SPDX-License-Identifier: Apache-2.0
"""``docs/options.md``: every option and every column, from the tables that the code itself uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.options import OPTIONS
from pyspark_commitlog.schema import spark_type
from pyspark_commitlog.write_options import WRITE_OPTIONS
from store_core.format.batch_input import INPUT_COLUMNS
from store_core.format.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_commitlog.option import Option

__all__ = ["markdown_document"]


def markdown_document() -> str:
    """Write the document."""
    lines = [*_INTRODUCTION, *_option_lines(OPTIONS), *_COLUMNS_INTRODUCTION, *_column_lines()]
    lines += [*_WRITE_INTRODUCTION, *_option_lines(WRITE_OPTIONS), *_INPUT_INTRODUCTION, *_input_lines(), ""]
    return "\n".join(lines)


_INTRODUCTION: Final = (
    "<!-- Generated from the tables of options and columns by `make docs`; do not edit. -->",
    "# Options and columns",
    "",
    "Names of options and columns match without regard to case; unknown ones are refused.",
    "",
    "## Reading",
    "",
    '`spark.read.format("commitlog").options(...).load(path)`. `store_core.read_messages` takes the same options as',
    "Python arguments, in snake_case.",
    "",
    "### Options of reading",
    "",
    "| option | default | about | meaning |",
    "|---|---|---|---|",
)

_COLUMNS_INTRODUCTION: Final = (
    "",
    "### Columns of a row",
    "",
    "Columns of the view `messages`, in the order of the DataFrame. Those not read by default come with `.schema(...)`",
    "or with option `columns`. Spark does not tell a Python source which columns a query uses: name a few, and only",
    "they are decoded. With `mode=PERMISSIVE` every column can be null: of a damaged range only `physical_offset`,",
    "`store_size`, `segment` and `_corrupt_record` are known.",
    "",
    "| column | Spark type | null | default | meaning |",
    "|---|---|---|---|---|",
)


_WRITE_INTRODUCTION: Final = (
    "",
    "## Writing",
    "",
    '`df.write.format("commitlog").mode("append").options(...).save(store)`, and `df.writeStream.format("commitlog")`.',
    "",
    "All messages of a job go into the store, or none. With `writeStream` that holds for each batch, and one that is",
    "in the store is not appended again after a restart: what was appended is noted in the store, in `commitlog-sink`,",
    "under the query's id, which its checkpoint keeps. Rows keep their order within a partition; partitions go in the",
    "order of their numbers. Rows that RocketMQ would refuse fail the job, unless `badRows` says otherwise.",
    "",
    "### Options of writing",
    "",
    "| option | default | about | meaning |",
    "|---|---|---|---|",
)

_INPUT_INTRODUCTION: Final = (
    "",
    "### Columns of a message",
    "",
    "Columns that a DataFrame may have, by name; others are refused. Of a property that is a column, and is in",
    "`properties` too, the column counts. `properties_string` holds all of them, so it does not go with `tags`,",
    "`keys`, `properties` and `delay_level`. Names that RocketMQ has for itself are stored as its brokers store",
    "them: `DELAY` delays, `WAIT`, `UNIQ_KEY` and the like are kept. `INNER_NUM`, properties of timers and inner",
    "batches are refused, the checksum `__CRC32#` is left out. RocketMQ ends a name at the byte 1 and a",
    "property at the byte 2: names that hold either are refused, and so are values, tags and keys that hold a 2.",
    "Those that hold a 1 are refused for release 4.3, which loses them; 4.9 and 5.3 read them back. A property with",
    "an empty name or value is stored, but no reader sees it. A key with a blank in it is read as two.",
    "",
    "| column | holds |",
    "|---|---|",
)


def _input_lines() -> Iterator[str]:
    for name, meaning in INPUT_COLUMNS.items():
        yield f"| `{name}` | {meaning} |"
    yield "| `store_timestamp` | timestamp or epoch ms; with `preserveStoreTimestamp` only, and required then |"


def _option_lines(options: Sequence[Option]) -> Iterator[str]:
    for option in options:
        default = option.default if option.default.startswith("(") else f"`{option.default}`"
        yield f"| `{option.name}` | {default} | {option.scope} | {option.meaning} |"


def _column_lines() -> Iterator[str]:
    for column in COLUMNS:
        kind, null, default = spark_type(column.type).simpleString(), _mark(column.nullable), _mark(column.default)
        yield f"| `{column.name}` | `{kind}` | {null} | {default} | {column.doc} |"


def _mark(holds: bool) -> str:  # noqa: FBT001 -- a mark for a truth
    return "yes" if holds else ""
