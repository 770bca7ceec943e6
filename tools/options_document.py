# SPDX-License-Identifier: Apache-2.0
"""Generates ``docs/options.md``: every option and every column, from the tables that the code itself uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import store_core.answers
from pyspark_commitlog.reader import spark_type
from pyspark_commitlog.stream import STREAM_OPTIONS
from pyspark_commitlog.write.options import WRITE_OPTIONS
from store_core.answers.answer import Answer, Kind, options_of
from store_core.format.columnar.input_columns import INPUT_COLUMNS
from store_core.format.columns import COLUMNS
from store_core.store.read.option_table import READ_OPTIONS, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def markdown_document() -> str:
    """Return the text of the document."""
    lines = [*_INTRODUCTION, *_option_lines(READ_OPTIONS), *_STREAM_INTRODUCTION, *_option_lines(STREAM_OPTIONS)]
    lines += [*_COLUMNS_INTRODUCTION, *_column_lines()]
    lines += [
        *_PROPERTY_COLUMNS,
        *_WRITE_INTRODUCTION,
        *_option_lines(WRITE_OPTIONS),
        *_INPUT_INTRODUCTION,
        *_input_lines(),
        *_ANSWERS_INTRODUCTION,
        *_answer_lines(),
    ]
    return "\n".join(lines)


_INTRODUCTION: Final = (
    "<!-- Generated from the tables of options and columns by `make docs`; do not edit. -->",
    "# Options and columns",
    "",
    "Names of options and columns are case-insensitive; unknown ones are rejected.",
    "",
    "## Reading",
    "",
    '`spark.read.format("commitlog").options(...).load(path)`. `store_core.read_messages` takes the same options as',
    "Python arguments, in snake_case, and commands as options: `failOnDataLoss=false` is `fail_on_data_loss=False` and",
    "`--no-fail-on-data-loss`. Errors name them as this page does.",
    "",
    "### Read options",
    "",
    "| option | default | about | meaning |",
    "|---|---|---|---|",
)

_STREAM_INTRODUCTION: Final = (
    "",
    "### Options of a stream",
    "",
    '`spark.readStream.format("commitlog")` takes the read options except `endingOffsets`, `endingTimestamp` and',
    "`asOf`, and these. Limits need PySpark 4.2 or later.",
    "",
    "| option | default | about | meaning |",
    "|---|---|---|---|",
)

_COLUMNS_INTRODUCTION: Final = (
    "",
    "### Columns of a row",
    "",
    "Columns of the view `messages`, in the order of the DataFrame. Those not read by default come with `.schema(...)`",
    "or with the option `columns`. Spark does not tell a Python data source which columns a query uses: name them, and",
    "only those are decoded. With `mode=PERMISSIVE` every column can be null: for a damaged range only",
    "`physical_offset`, `store_size`, `segment` and `_corrupt_record` are known. With `decompress=true`, a sound",
    "record whose body can't be decompressed keeps its other columns, and `_corrupt_record` is a text that says why.",
    "",
    "| column | Spark type | null | default | meaning |",
    "|---|---|---|---|---|",
)


_PROPERTY_COLUMNS: Final = (
    "",
    "`property.NAME` is one property as a string, null where a message has none of that name, for as many names as are",
    'asked for: `.option("columns", "topic,property.region")`. The case of NAME matters. In SQL the name needs',
    'backticks: ``select("`property.region`")``. Of the map `properties` Spark converts each name and each value, so a',
    "read that needs no map is faster without it ([figures](benchmarks.md)).",
)

_WRITE_INTRODUCTION: Final = (
    "",
    "## Writing",
    "",
    '`df.write.format("commitlog").mode("append").options(...).save(store)`, and `df.writeStream.format("commitlog")`.',
    "",
    "A job appends all of its messages, or none. With `writeStream` this applies to each batch, and a batch that is",
    "in the store is not appended again after a restart: the store records it, in `commitlog-sink`, under the query's",
    "id, which is kept in its checkpoint. Rows keep their order within a partition, and partitions are appended in the",
    "order of their numbers. Rows that RocketMQ would reject fail the job, unless `badRows` says otherwise.",
    "",
    "### Write options",
    "",
    "| option | default | about | meaning |",
    "|---|---|---|---|",
)

_ANSWERS_INTRODUCTION: Final = (
    "",
    "## Reports",
    "",
    "Options of commands that report on a store, `commitlog NAME STORE`; [what the reports have](reports.md). In",
    "Python `store_core.answers` has a class for each, whose fields are the options, and a function with them as",
    "arguments: `--rows 9` is `Bill(rows=9).ask(store)`, and `bill(store, rows=9)`. All commands have `--processes`,",
    "`--storage`, `--config`, `--store-path-commit-log`,",
    "`--time-zone`, `--html` and `--json`, too.",
    "",
)

_INPUT_INTRODUCTION: Final = (
    "",
    "### Columns of a message",
    "",
    "Columns that a DataFrame may have, matched by name; others are rejected. If a property is a column and also in",
    "`properties`, the column takes precedence. `properties_string` contains all properties, so it can't be combined",
    "with `tags`, `keys`, `properties` and `delay_level`. Names that RocketMQ reserves are stored as its brokers store",
    "them: `DELAY` delays, `WAIT`, `UNIQ_KEY` and the like are kept. Where `REAL_TOPIC` says that a broker has",
    "delivered a message, its delay or transaction is over: `DELAY`, `TRAN_MSG` and the like are left out.",
    "`INNER_NUM`, and properties of timers and inner batches, are rejected; the checksum `__CRC32#` is left out.",
    "A topic has only characters that `TopicValidator` allows, and is none of those that a broker keeps for itself;",
    "records of another store (`preserveStoreTimestamp`) may have any. RocketMQ ends a name at the byte 1 and a",
    "property at the byte 2:",
    "names that contain either are rejected, and so are values, tags and keys that contain a 2. Those that contain a 1",
    "are rejected for release 4.3, which loses them; later ones read them back. A property with an empty name or value",
    "is stored, but readers do not see it. A key that contains a space is read as two keys. A `timestamp_ntz` has no",
    "time zone: cast it to `timestamp`, for which Spark takes the session's.",
    "",
    "| column | contents |",
    "|---|---|",
)


def _input_lines() -> Iterator[str]:
    for name, meaning in INPUT_COLUMNS.items():
        yield f"| `{name}` | {meaning} |"
    kept = "with `preserveStoreTimestamp` only, and required then"
    yield f"| `store_timestamp` | timestamp with a time zone, or epoch ms; {kept} |"


def _answer_lines() -> Iterator[str]:
    for answer in (getattr(store_core.answers, name) for name in store_core.answers.__all__):
        is_answer = isinstance(answer, type) and issubclass(answer, Answer) and answer is not Answer
        if is_answer and options_of(answer):
            yield from (f"### {answer.NAME}", "", "| option | in Python | default | meaning |", "|---|---|---|---|")
            for each in options_of(answer):
                if each.kind not in {Kind.FROM_CONFIG, Kind.READ}:
                    shown = f"`{each.flag}`" if each.flag else (each.metavar or "").replace("|", r"\|")
                    yield f"| {shown} | `{each.name}` | {each.shown_default} | {each.words} |"
            yield ""


def _option_lines(options: Sequence[Option]) -> Iterator[str]:
    for option in options:
        default = option.default if option.default.startswith("(") else f"`{option.default}`"
        yield f"| `{option.name}` | {default} | {option.scope} | {option.meaning} |"


def _column_lines() -> Iterator[str]:
    for column in COLUMNS:
        kind, null, default = spark_type(column.type).simpleString(), _mark(column.nullable), _mark(column.default)
        yield f"| `{column.name}` | `{kind}` | {null} | {default} | {column.doc} |"


def _mark(holds: bool) -> str:  # noqa: FBT001 -- the value to be shown
    return "yes" if holds else ""
