# SPDX-License-Identifier: Apache-2.0
"""Settings that RocketMQ accepts and that delete nothing, or everything: what a broker makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from store_core.errors import InvalidOptionError
from store_core.store.clean.disk_space import DiskLimits
from store_core.store.clean.log_cleaner import parse_delete_when

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["refuse_strange", "strange_settings"]

_HOURS: Final = range(24)
_PERCENTS: Final = range(101)
_RATIOS: Final = {
    "disk_max_used_space_ratio": "delete",
    "disk_space_clean_forcibly_ratio": "forcible",
    "disk_space_warning_level_ratio": "warning",
}
"""Settings, and what they are in `DiskLimits`."""


def refuse_strange(given: Mapping[str, Any]) -> None:
    """Refuse settings that nobody can mean.

    Parameters
    ----------
    given : mapping of str to object
        Fields of `MessageStoreConfig`; a value that is not of the field's type is for that class to refuse.

    Raises
    ------
    InvalidOptionError
        If hours are none of a day or negative, or a ratio is no percentage.
    """
    hours, hour = given.get("file_reserved_time"), given.get("delete_when")
    if isinstance(hours, int) and hours < 0:
        raise InvalidOptionError(
            f"file_reserved_time: expected 0 hours or more, found {hours}: RocketMQ would delete each file but the "
            f"last one as soon as it may"
        )
    if isinstance(hour, str):
        wrong = sorted(parse_delete_when(hour, "delete_when") - set(_HOURS))
        if wrong:
            raise InvalidOptionError(
                f"delete_when: expected hours of the day, 0 to 23, separated by semicolons, found {wrong[0]} in "
                f"{hour!r}: RocketMQ takes it, and that hour never comes"
            )
    for name in _RATIOS:
        ratio = given.get(name)
        if isinstance(ratio, int) and ratio not in _PERCENTS:
            raise InvalidOptionError(f"{name}: expected a percentage, 0 to 100, found {ratio}")


def strange_settings(config: MessageStoreConfig) -> Iterator[str]:
    """Yield what a broker makes of settings that its operator can't have meant."""
    hours = parse_delete_when(config.delete_when)
    never = sorted(hours - set(_HOURS))
    if never:
        also = "" if hours - set(never) else ", so that old files go only when the disk fills up"
        yield f"deleteWhen is {config.delete_when}: the hour {never[0]} never comes{also}"
    if config.file_reserved_time < 0:
        yield (
            f"fileReservedTime is {config.file_reserved_time} hours: each file but the last one goes as soon as it may"
        )
    limits = DiskLimits.of(config)
    for name, limit in _RATIOS.items():
        ratio, used = getattr(config, name), getattr(limits, limit)
        if ratio != used:
            yield f"{name} is {ratio} %: RocketMQ takes {used} % for it, its nearest bound"
