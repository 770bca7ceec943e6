# SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported when they are first looked up, so that importing the package costs little."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names live in other modules.

    * `package`: The package's ``__name__``.
    * `modules`: Module -> the names in the package that it has, under the same names.

    Returns: Imports what a name stands for and keeps it in the package. Raises `AttributeError` for other names.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
        if name not in homes:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        found = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
