# SPDX-License-Identifier: Apache-2.0
"""The names of tar archives, and the error for what needs the directory of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.errors import UnsupportedStoreError
from store_core.files.compressed_bytes import CODECS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["archive_codec", "archive_error"]

_ENDS: Final = {".tar": None, ".tgz": "gzip", **{f".tar{end}": codec for end, codec in CODECS.items()}}
"""How the names of archives end, and the codecs."""


def archive_codec(name: str) -> tuple[str | None] | None:
    """Return the codec of an archive by the end of its name, None for a plain one; None for other files.

    Examples
    --------
    >>> archive_codec("store.tar"), archive_codec("store.tar.zst"), archive_codec("store.zip")
    ((None,), ('zstd',), None)
    """
    return next(((codec,) for end, codec in _ENDS.items() if name.endswith(end)), None)


def archive_error(place: Path) -> UnsupportedStoreError:
    """Return the error for an archive where the files of a store are needed."""
    return UnsupportedStoreError(
        f"{place} is an archive: expected a store's directory, whose files this needs. Nothing was changed. Unpack it, "
        f"and give the directory. As it is, its messages can be read and counted, and explain, bill, producers and "
        f"export accept it"
    )
