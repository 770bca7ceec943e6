# SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported when they are first looked up, so that importing the package costs little."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports its names under ``if TYPE_CHECKING``.

    Returns: Runs the import of a name, and keeps what it finds in the package. Raises `AttributeError` for other names.
    """

    def find(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
        module = _homes(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        found = getattr(import_module(module), name)
        setattr(sys.modules[package], name, found)
        return found

    return find


@cache
def _homes(package: str) -> dict[str, str]:
    """Name -> module, as the package's ``from module import name`` say it, those included that never run."""
    from dis import get_instructions  # noqa: PLC0415 -- most programs look no name of a package up

    loader: Any = sys.modules[package].__loader__
    homes, module = {}, ""
    for step in get_instructions(loader.get_code(package)):  # there is code even where there is no source
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname == "IMPORT_FROM":
            homes[step.argval] = module
    return homes
