# SPDX-License-Identifier: Apache-2.0
"""Checked access to the values of a configuration file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.errors import CorruptRecordError
from store_core.format.near_name import without_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.broker.config_json import JsonKey, JsonObject, JsonValue

__all__ = ["ConfigFields", "ConfigValueError"]

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_UNSET: Final = (None, "", "null")
"""Values that leave a member at its default, unless it is an offset."""
_FLAGS: Final = {"true": True, "false": False, "1": True, "0": False, "y": True, "n": False}
_I32: Final = range(-(1 << 31), 1 << 31)
_I64: Final = range(-(1 << 63), 1 << 63)
_ADVICE: Final = "Correct the file by hand"


class ConfigValueError(CorruptRecordError):
    """A value of a configuration file, or a key, is not as required; its offset in the file is not known."""

    def __str__(self) -> str:
        text = f"{self.problem} in {self.file}: expected {self.expected}, found {self.found}"
        return f"{text}. {self.advice}" if self.advice else text


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """One object of a configuration file.

    A member that is missing or null has the given default, as in Java. A value of another type is converted where
    fastjson converts it; else every method raises `CorruptRecordError`, naming file and member.

    Attributes
    ----------
    members : mapping
    file : str
    name : str
        Path of the object in the file, e.g. ``"topicConfigTable.orders"``; empty for the whole file.
    """

    members: Mapping[JsonKey, JsonValue]
    file: str
    name: str = ""

    def error(self, key: JsonKey, expected: str) -> CorruptRecordError:
        """Return the error for a member that is not as expected."""
        found = repr(self.members.get(key))
        return ConfigValueError(
            f"bad value of {without_controls(self._path(key))}", self.file, 0, expected, found[:100], b"", _ADVICE
        )

    def _path(self, key: JsonKey) -> str:
        return f"{self.name}.{key}" if self.name else str(key)

    def integer(self, key: JsonKey, default: int = 0, bounds: range = _I64) -> int:
        """Return an integer within Java's bounds; it may be quoted, true or false, or have a fraction."""
        value = self.members.get(key)
        if value in _UNSET:
            return default
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and math.isfinite(value):
            value = int(value)
        if not isinstance(value, int) or value not in bounds:
            raise self.error(key, f"an integer from {bounds.start} to {bounds.stop - 1}")
        return int(value)

    def small_integer(self, key: JsonKey, default: int = 0) -> int:
        """Return a 32-bit integer."""
        return self.integer(key, default, _I32)

    def flag(self, key: JsonKey, *, default: bool) -> bool:
        """Return a boolean; it may be quoted, or a number, of which only 1 is true."""
        value = self.members.get(key)
        if value in _UNSET:
            return default
        found = _FLAGS.get(value.lower()) if isinstance(value, str) else value == 1
        if found is None or isinstance(value, Mapping | list):
            raise self.error(key, "true or false")
        return found

    def text(self, key: JsonKey, default: str) -> str:
        """Return a string; it may be a number, true or false."""
        value = self.members.get(key)
        if value is None:
            return default
        if isinstance(value, Mapping | list):
            raise self.error(key, "a string")
        return value if isinstance(value, str) else json.dumps(value)

    def object(self, key: JsonKey) -> ConfigFields:
        """Return an object, empty if it is missing."""
        value = self.members.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.error(key, "an object")
        return ConfigFields(value, self.file, self._path(key))

    def table(self, key: JsonKey) -> ConfigFields:
        """Return an object that a broker adds to its own: empty if it is missing, and refused if it is null."""
        if key in self.members and self.members[key] is None:
            raise self.error(key, "an object")
        return self.object(key)

    def objects(self) -> Iterator[tuple[str, ConfigFields]]:
        """Yield all members by name; each must be an object."""
        for key, value in self.members.items():
            if value is None:  # Java's concurrent maps hold no null
                raise self.error(key, "an object")
            yield str(key), self.object(key)

    def offsets(self) -> dict[int, int]:
        """Return all members as 32-bit integers (queues or levels) to 64-bit offsets; either may be quoted."""
        return {self._index(key): self.offset(key) for key in self.members}

    def offset(self, key: JsonKey) -> int:
        """Return a 64-bit offset, which has no default; it may be quoted."""
        if self.members.get(key) in _UNSET:
            raise self.error(key, "an offset")
        return self.integer(key)

    def integers(self, key: JsonKey) -> tuple[int, ...]:
        """Return a list of 32-bit integers, empty if it is missing."""
        value = self.members.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.error(key, "a list of integers of 32 bits")
        items = ConfigFields(dict(enumerate(value)), self.file, self._path(key))
        return tuple(items.small_integer(index) for index in items.members)

    def texts(self) -> dict[str, str]:
        """Return all members; each must be a string."""
        return {str(key): self.text(key, "") for key in self.members}

    def _index(self, key: JsonKey) -> int:
        value = int(key) if isinstance(key, int) or _INTEGER.fullmatch(key) else None
        if value is None or value not in _I32:
            raise ConfigValueError(
                f"bad key of {without_controls(self.name)}",
                self.file,
                0,
                "an integer of 32 bits",
                repr(key)[:100],
                b"",
                _ADVICE,
            )
        return value

    def others(self, known: frozenset[str]) -> JsonObject:
        """Return the unknown members unchanged, so that writing preserves them; they have names.

        Raises
        ------
        CorruptRecordError
            If one has a number in place of its name.
        """
        number = next((key for key in self.members if isinstance(key, int)), None)
        if number is not None:
            raise self.error(number, "a member with a name")
        return {key: value for key, value in self.members.items() if key not in known}
