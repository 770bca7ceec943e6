# SPDX-License-Identifier: Apache-2.0
"""The option ``--engine`` of commands that work in this process or on Spark, with the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    import argparse

__all__ = ["EngineName", "add_engine"]

EngineName: TypeAlias = Literal["auto", "local", "spark"]

_ENGINES: Final = ("auto", "local", "spark")


def add_engine(parser: argparse.ArgumentParser, small: str) -> None:
    """Add ``--engine`` to a command.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    small : str
        What is done in this process by default.
    """
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default="auto",
        help=f"where the work is done: in this process (local), or on Spark; auto, the default, starts no Spark for "
        f"{small}, and uses a Spark that runs already",
    )
