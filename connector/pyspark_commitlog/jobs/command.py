# SPDX-License-Identifier: Apache-2.0
"""Runs a command: turns whatever goes wrong into an exit code and one paragraph on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from pyspark_commitlog import MINIMUM_PYSPARK
from pyspark_commitlog.spark_errors import quoted_error, spark_words
from store_core import __version__
from store_core.command.exit_code import ExitCode
from store_core.command.failure import ERROR_CODES, INTERRUPTED, NO_READER, bug_words, system_words
from store_core.command.standard_output import let_output_go, watch_standard_output
from store_core.errors import StoreError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

__all__ = ["add_version", "end_of_spark", "error_end", "run_command"]

_NO_PATH: Final = "PATH_NOT_FOUND"
"""Spark's name for an error that corresponds to `StoreNotFoundError`."""

_SPARK: Final = ("pyspark", "py4j")
_OF_SPARK: Final = ("PySparkException", "Py4JError")


def run_command(name: str, run: Callable[[], ExitCode], *refused: type[StoreError]) -> int:
    """Run a command, and write to standard error why it failed, if it does.

    Parameters
    ----------
    name : str
        What the paragraph begins with.
    run : callable
    *refused : type of StoreError
        Further errors by which this command refuses to go on.

    Returns
    -------
    int
        The exit code. An unexpected error is shown with its traceback and is `ExitCode.FAILED`, because Python's own
        exit code, 1, stands for findings. As of the program `commitlog`, ^C and a closed pipe have codes of their own.
    """
    if sys.stdout is sys.__stdout__:  # not in a notebook or a test
        watch_standard_output()
    logging.getLogger("store_core").addHandler(logging.NullHandler())  # what it logs is in the report
    try:
        code = run()
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        let_output_go()
        return NO_READER
    except Exception as error:  # noqa: BLE001 -- a bug is not a finding
        code, text = _end(error, *refused)
        sys.stderr.write(f"{name}: {text}\n")
        return int(code)


def _end(error: Exception, *refused: type[StoreError]) -> tuple[ExitCode, str]:
    """Choose the exit code and the message for whatever a command raised."""
    if isinstance(error, (StoreError, OSError)):
        return error_end(error, *refused)
    return end_of_spark(error, *refused) or (ExitCode.FAILED, bug_words(error))


def end_of_spark(error: Exception, *refused: type[StoreError]) -> tuple[ExitCode, str] | None:
    """Choose the exit code and the message for an error of Spark, or if PySpark is missing; None for others."""
    if _is_of_spark(error):
        return error_end(error, *refused)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _SPARK:
        return ExitCode.FAILED, (
            f"this command runs on Spark, and PySpark is not installed for {sys.executable}: "
            f"pip install 'pyspark>={MINIMUM_PYSPARK}'"
        )
    return None


def _is_of_spark(error: Exception) -> bool:
    """Return whether an error comes from PySpark or Py4J, which need not be installed."""
    return any(kind.__name__ in _OF_SPARK and kind.__module__.split(".")[0] in _SPARK for kind in type(error).__mro__)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add ``--version`` to a command."""
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")


def error_end(error: Exception, *refused: type[StoreError]) -> tuple[ExitCode, str]:
    """Choose the exit code and the message for an error; Spark's errors, or their causes, quote ours as text.

    Parameters
    ----------
    error : Exception
    *refused : type of StoreError
        As for `run_command`.
    """
    codes = {kind.__name__: code for kind, code in {**ERROR_CODES, **dict.fromkeys(refused, ExitCode.REFUSED)}.items()}
    codes[_NO_PATH] = ExitCode.USAGE
    name, text = type(error).__name__, str(error)
    if _is_of_spark(error):
        from pyspark_commitlog.write.typed_rows import wrong_row  # noqa: PLC0415 -- PySpark need not be installed

        row = wrong_row("\n".join(str(each) for each in _causes(error)))
        if row is not None:
            return ExitCode.USAGE, row
        quoted = next((found for each in _causes(error) if (found := quoted_error(str(each)))), None)
        name, text = quoted or (_condition(error), spark_words(error))
    return codes.get(name, ExitCode.FAILED), system_words(text)


def _condition(error: Exception) -> str:
    """Return Spark's name for an error; empty if it has none."""
    condition = getattr(error, "getCondition", None)  # of a PySparkException
    return (condition() or "") if callable(condition) else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes: for a failed commit, Spark's own error says only that the job was aborted."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "_cause", None)  # where PySpark keeps the cause that Java reported
