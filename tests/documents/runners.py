# SPDX-License-Identifier: Apache-2.0
"""Runs a block of a document by its language, in an environment that the document's blocks share."""

from __future__ import annotations

import io
import json
import os
import re
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from store_core import MessageStoreConfig, sql
from store_core.views.view_names import VIEW_PLANS
from tests.documents.commands import commands_of, run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.documents.blocks import Block


def run_block(block: Block, world: World) -> None:
    """Run a block; it has to do what the document says, and to raise only what a block of output shows."""
    if block.language != "text":
        check_no_error_is_left(world)
    try:
        RUNNERS[block.language](block, world)
    except BaseException as error:
        error.add_note(f"in the block at {block}")
        raise


def check_no_error_is_left(world: World) -> None:
    """Fail if a block raised an error that the document does not show."""
    assert not world.error_at, f"{world.error_at} raised, and no output shows it: {world.printed}"


def _run_python(block: Block, world: World) -> None:
    """Execute the block; an error must be shown by the next block, which is its output."""
    source = "\n" * block.line + world.inside(block.text)
    code = compile(source, block.document, "exec")
    with world.listening():
        try:
            exec(code, world.namespace)  # noqa: S102 -- that is what executing the documents means
        except Exception as error:  # noqa: BLE001 -- whatever it is, the document has to show it
            failure = error
        else:
            return
    world.printed = world.outside("".join(traceback.format_exception_only(failure)))
    world.error_at = str(block)


def _run_shell(block: Block, world: World) -> None:
    """Run each command line; everything printed is the block's output."""
    printed = []
    for command in commands_of(block.text):
        world.printed = ""
        run_command(command, world)
        printed.append(world.printed)
    world.printed = "".join(printed)


_TABLES: Final = re.compile(r"\b(?:FROM|JOIN|VIEW) (\w+)")
_BOTH: Final = {"messages", *VIEW_PLANS}
"""Tables that a store has in Spark, where a document makes them, and without."""


def _run_sql(block: Block, world: World) -> None:
    """Run each statement; the last one's rows are the block's output."""
    world.printed = ""
    for statement in filter(str.strip, world.inside(block.text).split(";")):
        result = world.spark.sql(statement)
        if "store" in world.namespace and {*_TABLES.findall(statement)} <= _BOTH:
            result = result.cache()  # compared and shown: Spark answers it once
            _check_without_spark(statement, result, world)
        with world.listening():
            if result.columns:
                result.show(truncate=False)
        result.unpersist()


def _check_without_spark(statement: str, result: DataFrame, world: World) -> None:
    """Check that the same query has the same rows without Spark, by `store_core.sql`."""
    found = sql(statement, world.namespace["store"]).read_all()
    assert result.toArrow().to_pylist() == found.to_pylist(), statement


def _compare_output(block: Block, world: World) -> None:
    """Compare with the output of the previous block, or with the error that it raised."""
    assert world.printed is not None, "this is the output of no block"
    shown, printed = block.text, world.printed
    assert matches(shown, printed, somewhere=bool(world.error_at)), (
        f"the document has\n{shown}\nand what comes is\n{printed}"
    )
    world.printed, world.error_at = None, ""


def _read_broker_config(block: Block, world: World) -> None:
    """Read the block as a broker's file, and save it for the next blocks."""
    path = world.directory / "broker.conf"
    path.write_text(block.text, encoding="utf-8")
    MessageStoreConfig.from_properties(path)
    world.printed = None


def _check_spark_conf(block: Block, world: World) -> None:
    """Check that every setting is one of Spark's."""
    settings = [line.split(None, 1) for line in block.text.splitlines() if line and not line.startswith("#")]
    known = {row[0] for row in world.spark.sql("SET -v").collect()}
    for name, _ in settings:
        assert name in known or name.startswith(_OF_SPARK_CORE), f"{name} is no setting that Spark tells of"
    world.printed = None


def _read_json(block: Block, world: World) -> None:
    json.loads(block.text)
    world.printed = None


_OF_SPARK_CORE: Final = (
    "spark.driver.", "spark.executor.", "spark.master", "spark.python.", "spark.pyspark.", "spark.ui.", "spark.cores.",
    "spark.task.", "spark.speculation",
)  # fmt: skip
"""Settings of Spark's core, which `SET -v` does not list."""

RUNNERS: Final[dict[str, Callable[[Block, World], None]]] = {
    "python": _run_python,
    "sh": _run_shell,
    "sql": _run_sql,
    "text": _compare_output,
    "properties": _read_broker_config,
    "conf": _check_spark_conf,
    "json": _read_json,
}
"""How a block is run, by its language. A block in any other language fails the test."""


_ROOTS: Final = ("/data/", "/mnt/", "/tmp/first-look")  # noqa: S108 -- nothing is made there
_ELLIPSIS: Final = "..."


@dataclass(slots=True)
class World:
    """What the blocks of one document share.

    * `directory`: Where the blocks run; it stands for the paths ``/data`` and ``/mnt`` in the documents.
    * `namespace`: Of the Python blocks; it has `spark`, as in a notebook.
    * `printed`: Output of the previous block, or the text of its error; None if it has been compared already.
    * `error_at`: Place of the block that raised `printed`, until a block of output shows it; else empty.
    * `replaced`: Other names in the documents, and what stands for them here, such as the address of a server.
    """

    directory: Path
    spark: SparkSession
    namespace: dict[str, Any] = field(default_factory=dict)
    printed: str | None = None
    error_at: str = ""
    replaced: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.namespace |= {"__name__": "document", "spark": self.spark}

    def inside(self, text: str) -> str:
        """Replace the paths of a document by those of the test."""
        for shown, found in self.replaced.items():
            text = text.replace(shown, found)
        for root in _ROOTS:
            text = text.replace(root, f"{self.directory}{root}")
        return text

    def outside(self, text: str) -> str:
        """Replace the paths of the test by those of the document."""
        return text.replace(f"file:{self.directory}", "file:").replace(str(self.directory), "")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Work in the directory, and capture output."""
        before, output = os.getcwd(), io.StringIO()  # noqa: PTH109 -- to go back to
        os.chdir(self.directory)
        try:
            with redirect_stdout(output), redirect_stderr(output):
                yield
        finally:
            os.chdir(before)
            self.printed = self.outside(output.getvalue())


def matches(shown: str, printed: str, *, somewhere: bool = False) -> bool:
    """Return whether a document's text matches the output; ``...`` stands for anything.

    Trailing blanks, and empty lines at the beginning and end, are ignored.
    """
    wanted, found = _lines(shown), _lines(printed)
    pieces = wanted.split(_ELLIPSIS)
    position = found.find(pieces[0]) if somewhere else (0 if found.startswith(pieces[0]) else -1)
    for piece in pieces:
        position = found.find(piece, position) if position >= 0 else -1
        if position < 0:
            return False
        position += len(piece)
    return somewhere or not pieces[-1] or (found.endswith(pieces[-1]) and (len(pieces) > 1 or wanted == found))


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
