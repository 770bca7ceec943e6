# SPDX-License-Identifier: Apache-2.0
"""The entry point of the program `commitlog`, which says what to install where its library is missing."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from store_core.command.exit_code import ExitCode
from store_core.command.standard_output import StandardOutputError, watch_standard_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["WithoutPandas", "main"]

_LIBRARY: Final = "click"
_MINIMUM: Final = "8.2"


class WithoutPandas(MetaPathFinder):
    """Finds no pandas: PyArrow imports it with the first array, if it can, and that takes longer than all the rest."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas, and leave all else to others."""
        del path, target  # the name alone decides
        if fullname == "pandas":
            raise ModuleNotFoundError("commitlog does not use pandas", name=fullname)
        return None


def main() -> int:
    """Run the program, and return its exit code."""
    sys.meta_path.insert(0, WithoutPandas())
    if find_spec(_LIBRARY) is None:
        where = f"the package {_LIBRARY} is not installed for {sys.executable}"
        sys.stderr.write(f"commitlog: {where}: pip install '{_LIBRARY}>={_MINIMUM}'\n")
        return ExitCode.FAILED
    watch_standard_output()
    try:
        import_module("store_core.command.program").program(prog_name="commitlog")
    except StandardOutputError as error:  # of --help and --version, which end before a command is run
        import_module(_LIBRARY).echo(f"commitlog: {error}", err=True)
        return ExitCode.FAILED
    return ExitCode.DONE  # not reached: click exits by itself
