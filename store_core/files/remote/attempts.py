# SPDX-License-Identifier: Apache-2.0
"""Requests to a storage, tried again where that may help: a bounded number of times, and each time with a warning."""

from __future__ import annotations

import logging
import re
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from store_core.errors import StoreAccessError, StoreError
from store_core.files.clock import SystemClock
from store_core.files.remote.storage_settings import SETTING_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from store_core.files.clock import Clock
    from store_core.files.remote.storage_settings import StorageSettings

    _T = TypeVar("_T")

__all__ = ["Attempts"]

_log: Final = logging.getLogger("store_core")

_MOST: Final = 8
"""Attempts. The client of S3 makes none of its own, so that each is counted and seen."""

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds before the second attempt, doubled each time, and the bound of that: 16 seconds in all."""

_HINTS: Final = {
    "HTTP status 301": "The bucket is in another region: give it by the setting region.",
    "wrong version number": "The server does not speak TLS there: give the setting scheme=http, or its other port.",
}
"""What helps where another attempt does not, by what a client says."""

_DENIED: Final = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|NO_SUCH_BUCKET"
    rf"|HTTP status 40[0-57]|{'|'.join(_HINTS)}"
    r"|PERMISSION_DENIED|UNAUTHENTICATED|AuthenticationFailed|AuthorizationFailure"
)
"""What clients say where the same request can't have another answer."""

_GONE: Final = re.compile(r"RESOURCE_NOT_FOUND|NO_SUCH_KEY|BlobNotFound|HTTP status 404")


class Attempts(NamedTuple):
    """How often something is tried, and what errors say of it.

    Attributes
    ----------
    url : str
        What is asked for; it holds no setting.
    settings : StorageSettings
        Their values are hidden in the errors of clients.
    clock : Clock
        Pauses between attempts.
    seconds : float
        How long after the first attempt another may begin, for what nobody waits longer for.
    """

    url: str
    settings: StorageSettings
    clock: Clock = SystemClock()
    seconds: float = inf

    def make(self, what: str, act: Callable[[], _T]) -> _T:
        """Do something until it works.

        Parameters
        ----------
        what : str
            Completes "could not".
        act : callable
            May raise an error of this package, which is passed on, or one of the storage's client.

        Raises
        ------
        FileNotFoundError
            If the storage says that the file is gone.
        PermissionError
            As the storage's client raises it.
        StoreAccessError
            If all attempts failed, or one with a reason that will not go away.
        """
        pause, end = _FIRST_PAUSE, self.clock.monotonic() + self.seconds
        for attempt in range(1, _MOST + 1):
            try:
                return act()
            except (StoreError, FileNotFoundError, PermissionError):
                raise
            except (OSError, pa.ArrowException) as error:
                text = self.settings.hidden_in(str(error))
                if attempt == _MOST or self.clock.monotonic() > end or _DENIED.search(text):
                    raise self._error(what, text, attempt) from None
                if _GONE.search(text):
                    raise FileNotFoundError(text) from None
                _log.warning("%s: could not %s: %s; attempt %d of %d follows", self.url, what, text, attempt + 1, _MOST)
                self.clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("unreachable")

    def _error(self, what: str, text: str, attempt: int) -> StoreAccessError:
        often = f", after {attempt} attempts" if attempt > 1 else ""
        hint = next((f" {way_on}" for sign, way_on in _HINTS.items() if sign in text), "")
        return StoreAccessError(
            f"{self.url}: could not {what}{often}: {text.rstrip('. ')}.{hint} Check the URL, the settings "
            f"{SETTING_PREFIX}* and the environment's credentials, or try again when the storage answers; nothing was "
            f"changed"
        )
