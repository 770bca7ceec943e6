# SPDX-License-Identifier: Apache-2.0
"""The settings by which a broker deletes, those that nobody can mean, and from when deletions are foreseen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Self

from store_core.errors import InvalidOptionError
from store_core.format.release import DEFAULT_RELEASE
from store_core.store.clean import DiskLimits, parse_delete_when
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.read.store_time import check_calendar_time, parse_zone, store_time

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from datetime import date, tzinfo

    from store_core.format.release import Release


__all__ = ["RetentionOptions", "refuse_strange", "strange_settings"]


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

    * `given`: Fields of `MessageStoreConfig`; a value that is not of the field's type is for that class to refuse.
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


_UNITS: Final = "KMGTPE"
_BYTES: Final = re.compile(rf"(-?[0-9]{{1,19}}(?:\.[0-9]{{1,9}})?)\s*(?:([{_UNITS}])(i?B)?|B)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """The settings of a broker, and the time from which its deletions are foreseen; made by `of`.

    * `disk_size`, `disk_used`: Bytes of the broker's disk, and of all that is on it; None is those of the file system
      that the store is on.
    """

    now: int  # ms
    config: MessageStoreConfig = field(default_factory=MessageStoreConfig)  # what the broker deletes by
    days: int = 14  # how many days are foreseen
    time_zone: tzinfo | None = None  # that of the broker's machine, for ``deleteWhen``; None is this machine's
    disk_size: int | None = None
    disk_used: int | None = None
    daily_growth: int | None = None
    """Bytes that are added to the log in a day; None is what the log's own store times say."""

    @classmethod
    def of(  # noqa: PLR0913 -- an argument for each option
        cls,
        now: int | str | date,
        *,
        broker_config: str | os.PathLike[str] | None = None,
        release: Release = DEFAULT_RELEASE,
        days: int = 14,
        time_zone: str | tzinfo | None = None,
        disk_size: int | str | None = None,
        disk_used: int | str | None = None,
        daily_growth: int | str | None = None,
        **settings: Any,  # noqa: ANN401 -- those of MessageStoreConfig
    ) -> Self:
        """Make options of what a user gives.

        * `now`: ms since 1970, or ISO 8601.
        * `broker_config`: The broker's configuration file; without it RocketMQ's defaults.
        * `release`: RocketMQ that serves the store.
        * `days`: As the attribute.
        * `disk_size`, `disk_used`, `daily_growth`: As the attributes; text may have a unit: ``10GB`` is 10 * 1000**3
          bytes, ``10GiB`` and ``10G`` 10 * 1024**3.
        * `time_zone`: As the attribute, and for `now`.
        * `settings`: Fields of `MessageStoreConfig` in place of those of the file, such as `file_reserved_time`; None
          means "not given".
        """
        zone = None if time_zone is None else parse_zone("time_zone", time_zone)
        config = MessageStoreConfig(release=release)
        if broker_config is not None:
            config = MessageStoreConfig.from_properties(broker_config, release)
        given = {name: value for name, value in settings.items() if value is not None}
        refuse_strange(given)
        config = replace(config, **given)
        parse_delete_when(
            config.delete_when, "delete_when" if broker_config is None else f"{broker_config}: deleteWhen"
        )
        began = store_time("now", now, zone)
        check_calendar_time("now", began)
        size, used = _bytes_of("disk_size", disk_size), _bytes_of("disk_used", disk_used)
        growth = _bytes_of("daily_growth", daily_growth)
        bounds = (
            ("disk_size", size, 1, 2**62),
            ("disk_used", used, 0, 2**62),
            ("daily_growth", growth, 0, 2**50),
        )
        for name, value, least, most in bounds:
            if value is not None and not least <= value <= most:
                raise InvalidOptionError(f"{name}: expected {least} to {most}, found {value}")
        if size is not None and used is not None and used > size:
            raise InvalidOptionError(f"disk_used: expected at most disk_size, {size:,} bytes, found {used:,} bytes")
        return cls(began, config, days, zone, size, used, growth)


def _bytes_of(name: str, value: int | str | None) -> int | None:
    """Return a number of bytes that may be text with a unit, as other programs for disks read it."""
    if not isinstance(value, str):
        return value
    found = _BYTES.fullmatch(value.strip())
    if found is None:
        raise InvalidOptionError(f"{name}: expected bytes such as 10000000000, 10GB or 10GiB, found {value!r}")
    number, unit, suffix = found[1], (found[2] or "").upper(), (found[3] or "").lower()
    return int(Decimal(number) * (1000 if suffix == "b" else 1024) ** (_UNITS.index(unit) + 1 if unit else 0))
