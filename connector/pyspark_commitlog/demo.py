# SPDX-License-Identifier: Apache-2.0
"""A first look at a store: ``python -m pyspark_commitlog.demo [STORE] [OPTION=VALUE ...]``.

Reads only; takes no lock. Everything here is meant to be copied: it uses nothing but `format("commitlog")`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_commitlog import MINIMUM_PYSPARK
from pyspark_commitlog.java import quiet_start, require_java
from pyspark_commitlog.options import CommitLogOptions
from pyspark_commitlog.sample import orders_store
from pyspark_commitlog.stored_messages import check_asked_for
from store_core import __version__
from store_core.answers.shown_text import escape_text
from store_core.command.exit_code import ExitCode, exit_code_help, failure_of
from store_core.command.main import ended, watch_standard_output
from store_core.errors import InvalidOptionError, StoreError
from store_core.format.words import counted
from store_core.store.read.read_plan import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row, SparkSession


_SHIPPED: Final = "four hours of a web shop, written by RocketMQ 5.3.3"
_ROWS_SHOWN: Final = 20
_WIDTH: Final = 32
_HEAD_BYTES: Final = 1 << 14
_SETTINGS: Final = {
    "spark.driver.host": "localhost",
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": 4,
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": True,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Show what is in a store.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the command line.

    Returns
    -------
    int
        Exit code, see `store_core.command.exit_code`; an error is one paragraph on standard error.
    """
    parsed = _parser().parse_args(arguments)
    if sys.stdout is sys.__stdout__:  # not in a notebook or a test
        watch_standard_output()
    return ended(lambda: _run(parsed.store, parsed.option), tell)


def tell(error: Exception) -> ExitCode:
    """Say on standard error what is wrong, and return the exit code."""
    code, text = failure_of(error)
    sys.stderr.write("\n".join(escape_text(line) for line in f"error: {text}".split("\n")) + "\n")
    return code


def _run(given: str | None, texts: Sequence[str]) -> ExitCode:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commitlog-demo-")))
        options = _options(texts)
        _say(f"Looking into {given or _SHIPPED}")
        store = given or str(orders_store(scratch))
        head, notes = _plan(store, options)
        check_asked_for(store, options)
        with quiet_start(notes):
            spark = _start_spark()
        stack.callback(spark.stop)
        damaged = _show(spark, store, options, head)
        _say((_AFTER_DAMAGE if damaged else _NEXT_STEPS).format(store=given or "/path/to/store"))
    return ExitCode.DAMAGED if damaged else ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_commitlog.demo",
        description="Shows what is in a RocketMQ store. Nothing is written or locked.",
        epilog=exit_code_help("Without STORE it shows a sample store that ships with the package."),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("store", nargs="?", metavar="STORE", help="store root, commitlog directory or segment file")
    options = "options of the data source, such as topic=orders; times without a zone are in UTC"
    parser.add_argument("option", nargs="*", metavar="OPTION=VALUE", help=options)
    return parser


def _options(texts: Sequence[str]) -> dict[str, str]:
    """Return the options; times without a zone mean UTC, in which all times are shown."""
    given = dict(_option(text) for text in texts)
    return {"timeZone": "UTC", **given} if given else {}


def _option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidOptionError(f"expected OPTION=VALUE, such as topic=orders, found {text!r}")
    if name.lower() == "columns":
        raise InvalidOptionError("option columns: the demo chooses the columns itself; leave the option out")
    return name, value


def _plan(store: str, options: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Plan the read before Spark is started, so that errors appear at once, and print what the store contains.

    Return the options for the first rows, and the notes that were printed. A limit alone would do for the rows, but
    Spark would then close the connection in the middle of a batch, and its Python worker would print an error.
    """
    checked = CommitLogOptions.from_spark({**options, "path": store})
    plan = plan_ranges(checked.paths, checked.read)
    for note in plan.notes:
        _say(f"  note: {note}")
    if plan.end is not None:
        _say(f"  the log ends at offset {plan.end.end_offset}")
    _say(f"  {len(plan.ranges)} partition{'s' * (len(plan.ranges) != 1)} to read")
    if options or not plan.ranges:
        return options, plan.notes
    return {"endingOffsets": str(plan.ranges[0].begin + _HEAD_BYTES)}, plan.notes


def _start_spark() -> SparkSession:
    if find_spec("pyspark") is None:
        raise StoreError(
            f"this command runs on Spark, and PySpark is not installed for {sys.executable}: "
            f"pip install 'pyspark>={MINIMUM_PYSPARK}'"
        )
    from pyspark_commitlog.session import spark_session  # noqa: PLC0415 -- as just checked

    require_java()
    _say("Starting Spark ...")
    begin = time.perf_counter()
    spark = spark_session("commitlog demo", master="local[*]", config=_SETTINGS)
    _say(f"  Spark {spark.version}, {spark.sparkContext.defaultParallelism} cores, {time.perf_counter() - begin:.1f} s")
    return spark


def _show(spark: SparkSession, store: str, options: dict[str, str], head: dict[str, str]) -> int:
    """Print what is in a store, and return how many ranges of it are damaged."""
    messages = spark.read.format("commitlog").options(**options).load(store)
    _say("\nEvery message is a row:\n")
    messages.printSchema()
    lenient = {"mode": "PERMISSIVE"}  # damage is told with the totals, and stops nothing
    options, head = lenient | options, lenient | head
    _say("The first ten:\n")
    _table(_first_rows(spark.read.format("commitlog").options(**head).load(store)))
    _say("What fills the disk:\n")
    begin = time.perf_counter()
    # Only the columns named here are decoded: for a total, name those that it needs.
    narrow = spark.read.format("commitlog").options(**options).option("columns", "topic,store_size,store_timestamp")
    found = _topics(narrow.load(store))
    topics, damage = [row for row in found if row["topic"] is not None], [row for row in found if row["topic"] is None]
    _table(topics)
    _say(f"  {_total(topics)} ({time.perf_counter() - begin:.1f} s)")
    for row in damage:
        _say(f"  damaged: {row['bytes']:,} bytes are no message, in {counted(row['messages'], 'range')}")
    return sum(row["messages"] for row in damage)


def _first_rows(messages: DataFrame) -> list[Row]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- Spark's own convention; it need not be installed

    return (
        messages.select(
            "topic",
            F.col("queue_id").alias("queue"),
            F.col("queue_offset").alias("offset"),
            F.col("store_timestamp").cast("string").alias("stored"),
            "tags",
            F.concat_ws(" ", "keys").alias("keys"),
            F.length("body").alias("bytes"),
            F.substring("body", 1, 24).alias("body"),
        )
        .limit(10)
        .collect()
    )


def _topics(messages: DataFrame) -> list[Row]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return (
        messages.groupBy("topic")
        .agg(
            F.count("*").alias("messages"),
            F.sum("store_size").alias("bytes"),
            F.min("store_timestamp").cast("string").alias("first stored"),
            F.max("store_timestamp").cast("string").alias("last stored"),
        )
        .orderBy(F.desc("bytes"), "topic")
        .collect()
    )


def _total(topics: Sequence[Row]) -> str:
    messages, size = (sum(row[name] for row in topics) for name in ("messages", "bytes"))
    text = f"{messages:,} messages, {size:,} bytes of records"
    if not topics:
        return text
    return f"{text}, stored from {min(row[3] for row in topics)} to {max(row[4] for row in topics)} UTC"


def _table(rows: Sequence[Row]) -> None:
    """Print rows in aligned columns, with numbers to the right."""
    if not rows:
        _say("  (no message)\n")
        return
    shown = rows[:_ROWS_SHOWN]
    cells = [list(rows[0].__fields__), *([_text(value) for value in row] for row in shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [isinstance(value, int) for value in rows[0]]
    for line in cells:
        padded = zip(line, widths, numeric, strict=True)
        _say(
            "  "
            + "  ".join(f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell, width, right in padded).rstrip()
        )
    _say(f"  ... and {len(rows) - len(shown):,} more\n" if len(rows) > len(shown) else "")


def _text(value: object) -> str:
    """Show a value in a few characters that are safe to print: the store may contain any bytes."""
    if isinstance(value, int):
        return f"{value:,}"
    if value is None:
        return "-"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, (bytes, bytearray)) else str(value)
    visible = "".join(character if character.isprintable() else "." for character in text)
    return visible if len(visible) <= _WIDTH else visible[: _WIDTH - 3] + "..."


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


_AFTER_DAMAGE: Final = """
Next steps: this log is damaged
  what is wrong    commitlog check {store}
  what is sound    commitlog salvage {store}
  take that out    commitlog salvage {store} --into NEW
  what to do       docs/incidents/lost-messages.md
"""
_NEXT_STEPS: Final = """
Next steps
  in PySpark   spark.read.format("commitlog").option("topic", "...").load("{store}")
  in SQL       CREATE TEMPORARY VIEW log USING commitlog OPTIONS (path '{store}')
  all options  docs/options.md
"""


if __name__ == "__main__":
    sys.exit(main())
