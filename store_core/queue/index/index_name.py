# SPDX-License-Identifier: Apache-2.0
"""Names of index files: the local time of their creation."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import tzinfo

__all__ = ["index_file_name", "next_index_file_name"]

_NAME: Final = re.compile(r"[0-9]{17}")
_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND_MS: Final = 1000


def index_file_name(timestamp: int, time_zone: tzinfo | None = None) -> str:
    """Return the name of a file created at a time (``UtilAll.timeMillisToHumanString``).

    Parameters
    ----------
    timestamp : int
        Ms since 1970.
    time_zone : datetime.tzinfo, optional
        RocketMQ uses the machine's, which is the default.

    Examples
    --------
    >>> from datetime import UTC
    >>> index_file_name(1_700_000_000_123, UTC)
    '20231114221320123'
    """
    seconds, milliseconds = divmod(timestamp, _SECOND_MS)
    return _name(datetime.fromtimestamp(seconds, time_zone).replace(microsecond=milliseconds * 1000))


def _name(time: datetime) -> str:
    return f"{time.year:04d}{time:%m%d%H%M%S}{time.microsecond // 1000:03d}"


def next_index_file_name(name: str) -> str:
    """Return the name for one millisecond later, so that files created in the same one get different names.

    >>> next_index_file_name("20231231235959999")
    '20240101000000000'
    """
    try:
        return _name(datetime.strptime(f"{name}000", "%Y%m%d%H%M%S%f") + _MILLISECOND)  # noqa: DTZ007 -- local, as names are
    except (ValueError, OverflowError):
        return f"{int(name) + 1:017d}"


def is_index_file_name(name: str) -> bool:
    """Return whether a name is 17 digits, as RocketMQ creates them."""
    return _NAME.fullmatch(name) is not None
