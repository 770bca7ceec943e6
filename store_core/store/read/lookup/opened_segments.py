# SPDX-License-Identifier: Apache-2.0
"""The segments of which planning reads records: those on another machine are opened once, for their reader, too."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from store_core.files.remote.remote_bytes import RemoteBytes
from store_core.files.segment_source import open_picks
from store_core.format.columnar.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.segment_source import PagedBytes, Segment

__all__ = ["OpenedSegments"]

_MOST_OPEN: Final = 64
"""Segments of which what was loaded is kept."""


class OpenedSegments:
    """Opens segments, and keeps what the reader of the records that are found would have to load again.

    Attributes
    ----------
    chains : dict of Segment to Chain
        Segments on another machine whose pages have records.
    """

    def __init__(self) -> None:
        self.chains: dict[Segment, Chain] = {}
        self._pages: dict[Segment, RemoteBytes] = {}

    @contextmanager
    def opened(self, segment: Segment) -> Iterator[PagedBytes]:
        """Open a segment; what is read of it has to be loaded. Errors as of `open_picks`."""
        known = self._pages.get(segment)
        if known is not None:
            yield known
            return
        pages = open_picks(segment)
        if isinstance(pages, RemoteBytes) and len(self._pages) < _MOST_OPEN:
            self._pages[segment] = pages
            self.chains[segment] = Chain(segment.view(pages))
            yield pages
            return
        with pages:
            yield pages

    def close(self) -> None:
        """Close what is open; what was loaded stays, and its reader opens the file again if it needs more."""
        for pages in self._pages.values():
            pages.__exit__(None, None, None)
