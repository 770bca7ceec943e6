# SPDX-License-Identifier: Apache-2.0
"""Runs what tests/connector/test_sessions.py checks: each thing that we do with Spark.

As a program it does so in a Connect session, which can't share a process with the tests' classic session. Usage:
session_answers.py STORE DIRECTORY; prints JSON, one line per question, on standard output. Warnings are errors, as in
all tests.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.connector.stores import SMALL, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


ALL_BUT_ONE = re.compile(r"\b3(/| of )4 tasks")
"""The text with tqdm, and without."""


class Questions:
    """Each method is a question; its result is the answer."""

    def __init__(self, spark: SparkSession, store: str, directory: Path) -> None:
        self.spark = spark
        self.store = store
        self.directory = directory

    def kind(self) -> str:
        return type(self.spark).__module__

    def rows(self) -> list[list[Any]]:
        frame = self._read(columns="physical_offset,topic,body")
        return [[row.physical_offset, row.topic, bytes(row.body).hex()] for row in frame.collect()]

    def default_columns(self) -> list[str]:
        return list(self._read().columns)

    def chosen(self) -> list[int]:
        options = {
            "topic": "orders",
            "queueId": "1",
            "filter": "TAGS = 'B'",
            "filterType": "SQL92",
            "minPartitions": "3",
        }
        return [row[0] for row in self._read(columns="physical_offset", **options).collect()]

    def local_times(self) -> int:
        """Count the rows from the sixth row's store time on, as the session shows that time."""
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        self.spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
        times = self._read(columns="store_timestamp").selectExpr("cast(store_timestamp AS string)").collect()
        found = self._read(startingTimestamp=times[5][0]).count()
        self.spark.conf.set("spark.sql.session.timeZone", str(zone))
        return int(found)

    def pruned(self) -> list[str]:
        frame = self.spark.read.format("commitlog").schema("body binary, topic string").load(self.store)
        row = frame.first()
        return [*frame.columns, "" if row is None else row.topic]

    def sql(self) -> int:
        self.spark.sql(f"CREATE TEMPORARY VIEW log USING commitlog OPTIONS (path '{self.store}')")
        found = self.spark.sql("SELECT count(*) AS n FROM log").collect()[0]["n"]
        self.spark.catalog.dropTempView("log")
        return int(found)

    def unknown_option(self) -> str:
        return error_of(lambda: self._read(colums="topic").count())

    def appended(self) -> int:
        frame = self.spark.range(0, 40, 1, 2).selectExpr("concat('t', id % 3) AS topic", "concat('b', id) AS body")
        root = str(self.directory / "appended")
        frame.write.format("commitlog").mode("append").options(**SMALL).save(root)
        return self.spark.read.format("commitlog").load(root).count()

    def streamed(self) -> int:
        source, root = self.directory / "source", str(self.directory / "streamed")
        source.mkdir()
        (source / "lines").write_text("one\ntwo\n")
        lines = self.spark.readStream.format("text").load(str(source)).selectExpr("'lines' AS topic", "value AS body")
        stream = lines.writeStream.format("commitlog").options(**SMALL).trigger(availableNow=True)
        stream.option("checkpointLocation", str(self.directory / "checkpoint")).start(root).awaitTermination()
        return self.spark.read.format("commitlog").load(root).count()

    def read_stream(self) -> list[Any]:
        """Copy a store by a stream, in several batches where PySpark can limit them."""
        from pyspark_commitlog.stream import HAS_LIMITS  # noqa: PLC0415 -- as a user's session would

        root, limits = str(self.directory / "followed"), {"maxOffsetsPerTrigger": "20"}
        source = self.spark.readStream.format("commitlog").option("columns", "topic,body")
        if HAS_LIMITS:
            source = source.options(**limits)
        # A broker refuses other letters in a topic of a new message.
        renamed = source.load(self.store).selectExpr("replace(topic, 'ü', 'ue') AS topic", "body")
        stream = renamed.writeStream.format("commitlog").options(**SMALL).trigger(availableNow=True)
        stream.option("checkpointLocation", str(self.directory / "followed-checkpoint")).start(root).awaitTermination()
        wrong = self.spark.readStream.format("commitlog").option("endingOffsets", 5).load(self.store)
        refusal = error_of(lambda: wrong.writeStream.format("noop").start().awaitTermination())
        return [self.spark.read.format("commitlog").load(root).count(), refusal]

    def rebuilt(self) -> list[Any]:
        from pyspark_commitlog.command import main  # noqa: PLC0415 -- as a user's session would

        arguments = [self.store, "--output", str(self.directory / "rebuilt"), "--hash-slot-num", "100"]
        code, _, errors = self._command(lambda: main(["rebuild", "both", *arguments, "--index-num", "400"]))
        queues = (self.directory / "rebuilt" / "consumequeue").glob("*/*")
        return [code, errors, sorted(f"{queue.parent.name}/{queue.name}" for queue in queues)]

    def command_appended(self) -> list[Any]:
        from pyspark_commitlog.command import main  # noqa: PLC0415

        options = [f"--write-option={name}={value}" for name, value in SMALL.items()]
        target = str(self.directory / "commanded")
        arguments = [target, "--from-store", self.store, "--to-topic", "copied", *options]
        return self._command(lambda: main(["append", *arguments]))

    def progress(self) -> list[Any]:
        """Hold back the last of four tasks until the others are shown as done."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- Spark's own custom

        from pyspark_commitlog.progress import spark_progress  # noqa: PLC0415

        gate = self.directory / "gate"
        os.mkfifo(gate)
        path = str(gate)

        def wait(number: int) -> int:
            if number == 3:
                with open(path) as pipe:  # noqa: PTH123 -- runs in a worker
                    pipe.read()
            return number

        # Without Arrow, for which PySpark wants pandas.
        waiting = F.udf(wait, "long", useArrow=False)
        terminal = Terminal(gate)
        with spark_progress(self.spark, stream=terminal):
            rows = self.spark.range(0, 4, 1, 4).select(waiting("id")).collect()
        threads = [thread.name for thread in threading.enumerate() if "progress" in thread.name]
        return [len(rows), ALL_BUT_ONE.search(terminal.getvalue()) is not None, threads]

    def _read(self, **options: str) -> Any:  # noqa: ANN401 -- a DataFrame of either kind
        return self.spark.read.format("commitlog").options(**options).load(self.store)

    @staticmethod
    def _command(run: Callable[[], int]) -> list[Any]:
        out, err, sys.stdout, sys.stderr = sys.stdout, sys.stderr, io.StringIO(), io.StringIO()
        try:
            return [run(), sys.stdout.getvalue(), sys.stderr.getvalue()]
        finally:
            sys.stdout, sys.stderr = out, err


class Terminal(io.StringIO):
    """A terminal that records everything written, and opens a gate, a named pipe, when all tasks but one are done."""

    def __init__(self, gate: Path | None = None, is_terminal: bool = True) -> None:
        super().__init__()
        self._gate = gate
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        if self._gate is not None and ALL_BUT_ONE.search(text):
            gate, self._gate = self._gate, None
            gate.write_text("go")
        return super().write(text)

    @property
    def screen(self) -> str:
        """The final content of the current line."""
        line: list[str] = []
        column = 0
        for character in self.getvalue().replace("\x1b[2K", "\0"):
            if character == "\0":  # the line is erased
                line.clear()
                continue
            if character == "\r":
                column = 0
                continue
            line[column : column + 1] = [character]
            column += 1
        return "".join(line).rstrip()


def answers_of(spark: SparkSession, store: str, directory: Path) -> Iterator[tuple[str, Any]]:
    """Ask all questions in a session; yield the name and the answer of each."""
    questions = Questions(spark, store, directory)
    for name in vars(Questions):
        if not name.startswith("_"):
            yield name, getattr(questions, name)()


def main() -> None:
    """Start a session, and print the answers."""
    warnings.simplefilter("error")
    from pyspark import __version__  # noqa: PLC0415 -- its warnings count, too
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if __version__.startswith("4.1."):  # leaves the closing of its sockets to the garbage collector
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)

    store, directory = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    for answer in answers_of(spark, store, Path(directory)):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
