# SPDX-License-Identifier: Apache-2.0
"""Commands on Spark: the connector is imported by its name if ``--spark`` asks for it, as PySpark may be missing."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.console import Console
from store_core.command.main import LeanImports
from store_core.errors import StoreError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from store_core.store.parts import Engine

__all__ = ["connector", "is_on_spark", "spark_engine", "with_spark"]

_HELP: Final = "Run on Spark: the one that runs already, as below spark-submit, or one on this machine."
_ASKED: Final = "store_core.spark"


def _keep(context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 -- click's signature
    context.meta[_ASKED] = value


with_spark: Final = click.option("--spark", is_flag=True, expose_value=False, callback=_keep, help=_HELP)
"""Gives a command the option that makes it run on Spark, of which `is_on_spark` knows."""


def is_on_spark() -> bool:
    """Return whether the command that is run was given ``--spark``, or is below ``spark-submit``."""
    context = click.get_current_context()
    return bool(context.meta.get(_ASKED)) or Console.of(context).is_on_spark


def connector(module: str) -> Any:  # noqa: ANN401 -- a module whose types this package can't know
    """Return a module of the connector, by its name there."""
    if find_spec("pyspark") is None:
        minimum = import_module("pyspark_commitlog").MINIMUM_PYSPARK
        raise StoreError(
            f"--spark: PySpark is not installed for {sys.executable}: pip install 'pyspark>={minimum}', or leave "
            f"--spark out"
        )
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, LeanImports)]
    return import_module(f"pyspark_commitlog.{module}")


def spark_engine(name: str) -> AbstractContextManager[Engine]:
    """Provide the engine whose parts are Spark's tasks, with a progress bar; a session made for it ends with it."""
    engine: AbstractContextManager[Engine] = connector("engine").job_engine(name)
    return engine
