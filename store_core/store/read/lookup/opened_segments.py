# SPDX-License-Identifier: Apache-2.0
"""The segments of which a look-up reads records: those on another machine are opened once, and keep what was read."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from store_core.files.remote.picked_bytes import PickedBytes
from store_core.files.segment_source import open_picks
from store_core.format.columnar.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.files.segment_source import PagedBytes, Segment

__all__ = ["OpenedSegments", "threads_for"]

_MOST_OPEN: Final = 64
"""Segments that stay open; one that is mapped takes a file descriptor."""

_MOST_KEPT: Final = 64 << 20
"""Bytes of records that stay loaded."""

_THREADS: Final = 2
"""More than one processor helps, because numpy converts and adds without the interpreter's lock."""

_REMOTE_THREADS: Final = 12
"""Files of another machine that are read at a time, each of which waits for its answers."""


def threads_for(segments: Sequence[Segment]) -> int:
    """Return how many files of a store are worth reading at a time."""
    return _REMOTE_THREADS if any(segment.remote is not None for segment in segments) else _THREADS


class OpenedSegments:
    """Opens segments, and keeps what the reader of the records that are found would have to load again.

    Attributes
    ----------
    chains : dict of Segment to Chain
        Segments that are mapped, or whose pages have records.
    """

    def __init__(self) -> None:
        self.chains: dict[Segment, Chain] = {}
        self._pages: dict[Segment, PickedBytes] = {}
        self._kept: dict[Segment, int] = {}
        self._lock = Lock()

    @contextmanager
    def opened(self, segment: Segment) -> Iterator[PagedBytes]:
        """Open a segment; what is read of it has to be loaded. No two threads do so with one segment.

        Raises
        ------
        SegmentVanishedError, StoreAccessError
            As `open_picks`.
        """
        known = self._pages.get(segment)
        if known is not None:
            yield known
            self._limit(segment, known)
            return
        with ExitStack() as closing:
            pages = closing.enter_context(open_picks(segment))
            yield pages
            if isinstance(pages, PickedBytes) and len(self._pages) < _MOST_OPEN:
                closing.pop_all()
                self._pages[segment] = pages
                self._limit(segment, pages)

    def close(self) -> None:
        """Close what is open; what was loaded stays, and its reader opens the file again if it needs more."""
        for pages in self._pages.values():
            pages.__exit__(None, None, None)

    def keep(self, segment: Segment, opened: PagedBytes) -> None:
        """Keep an open segment whose records were checked, for their reader."""
        is_useful = segment.is_mapped or isinstance(opened, PickedBytes)
        with self._lock:
            if is_useful and len(self.chains) < _MOST_OPEN:
                self.chains[segment] = Chain(segment.view(opened))

    def _limit(self, segment: Segment, pages: PickedBytes) -> None:
        """Drop what was loaded of a segment if all together is too much."""
        with self._lock:
            self._kept[segment] = pages.kept
            if sum(self._kept.values()) > _MOST_KEPT:
                pages.drop_all()
                self._kept[segment] = 0
