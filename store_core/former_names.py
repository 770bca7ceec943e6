# SPDX-License-Identifier: Apache-2.0
"""Documented modules under the names they had before they moved into folders, for code that still imports them so."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

__all__ = ["FORMER_NAMES", "find_former_names"]

FORMER_NAMES: Final = {
    "store_core.format.encode": "store_core.format.record.encode",
    "store_core.format.message_selector": "store_core.format.filter.message_selector",
    "store_core.format.sql92_expression": "store_core.format.filter.sql92_expression",
    "store_core.store.read_options": "store_core.store.read.read_options",
    "store_core.store.store_queues": "store_core.store.query.store_queues",
    "store_core.store.store_reading": "store_core.store.query.store_reading",
}
"""Former name of a module of this package -> its name now."""


class _FormerName(Loader):
    """Loads the module that a former name stands for: the very same object, so that its classes are the same, too."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {self._name}; import that", DeprecationWarning, stacklevel=2)
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Put back what `import` has just overwritten; the module was executed under its own name."""
        module.__spec__ = self._spec


class _FormerNames(MetaPathFinder):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target  # the name alone decides
        name = self._names.get(fullname)
        return ModuleSpec(fullname, _FormerName(name)) if name is not None else None


def find_former_names(names: Mapping[str, str]) -> None:
    """Have ``import`` find modules under these former names, too, with a `DeprecationWarning`.

    It is asked last, so a module that exists under such a name comes first.
    """
    sys.meta_path.append(_FormerNames(names))
