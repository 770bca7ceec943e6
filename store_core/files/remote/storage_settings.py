# SPDX-License-Identifier: Apache-2.0
"""Settings of an object store or another file system: text by name, and never shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import InvalidOptionError
from store_core.format.near_name import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NO_SETTINGS", "SETTING_PREFIX", "StorageSettings"]

SETTING_PREFIX: Final = "storage."
"""What the names of these settings begin with in Spark and on the command line."""

_HIDDEN: Final = "***"
_OPEN: Final = frozenset({"region", "endpoint_override", "scheme", "anonymous", "project_id"})
"""Settings whose values are no secrets, and needed to understand an error."""

_SHORTEST_SECRET: Final = 4
"""Values below this many characters are not searched for in errors: they are parts of ordinary words."""

_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, repr=False)
class StorageSettings:
    """Settings by name; hashable, and picklable for tasks. Neither ``repr`` nor an error shows a value.

    Attributes
    ----------
    values : tuple of (str, str)
        In the order of their names, which are those of the file system's own arguments, in lower case.
    """

    values: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Check settings as given in Python or by options without their prefix.

        Raises
        ------
        InvalidOptionError
            If a name or a value is not text, a number or a truth value. The value is not shown.
        """
        return cls(tuple(sorted((_name(name), _text(name, value)) for name, value in settings.items())))

    def __repr__(self) -> str:
        """Return the names without the values."""
        return f"StorageSettings({', '.join(name for name, _ in self.values)})"

    def __bool__(self) -> bool:
        """Return whether there is any setting."""
        return bool(self.values)

    def arguments(self, types: Mapping[str, type]) -> dict[str, object]:
        """Return the settings as arguments of a file system.

        Parameters
        ----------
        types : mapping of str to type
            The names that the file system knows, with ``str``, ``bool`` or ``float``.

        Raises
        ------
        InvalidOptionError
            If a name is unknown (the nearest is suggested), or a value has another type.
        """
        self.check_names(types)
        return {name: _typed(name, text, types[name]) for name, text in self.values}

    def check_names(self, known: Iterable[str]) -> None:
        """Refuse settings that a file system does not know."""
        names = list(known)
        for name, _ in self.values:
            if name not in names:
                hint = did_you_mean(name, names) or f"the settings are {', '.join(names) or 'none'}"
                raise InvalidOptionError(f"unknown setting {SETTING_PREFIX}{name}; {hint}")

    def hidden_in(self, text: str) -> str:
        """Return a text, such as another library's error, without the values of secret settings."""
        for name, value in self.values:
            if name not in _OPEN and len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, _HIDDEN)
        return text


NO_SETTINGS: Final = StorageSettings()
"""What a storage is opened with if nothing is set: the environment and its usual chain of credentials."""


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidOptionError(f"storage: expected names of settings such as 'region', found {name!r}")
    return name.lower()


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidOptionError(f"{SETTING_PREFIX}{name}: expected text, found a value of type {type(value).__name__}")


def _typed(name: str, text: str, wanted: type) -> object:
    if wanted is bool:
        if text.lower() not in _TRUTHS:
            raise InvalidOptionError(f"{SETTING_PREFIX}{name}: expected true or false")
        return _TRUTHS[text.lower()]
    if wanted is float:
        if not _NUMBER.fullmatch(text):
            raise InvalidOptionError(f"{SETTING_PREFIX}{name}: expected a number of seconds")
        return float(text)
    return text
