# SPDX-License-Identifier: Apache-2.0
"""Whether the release loads all files of a log: it is stricter than a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.errors import SegmentLayoutError
from store_core.files.configured_root import log_directories
from store_core.files.segment_listing import list_for_loading
from store_core.snapshot.log import Log

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.answers.checking.tally import Tally
    from store_core.files.file_system import FileSystem

__all__ = ["add_loading"]


def add_loading(store: Path, release: str, file_system: FileSystem, tally: Tally) -> None:
    """Add why a release would not load a log, or which of its segments it would leave out.

    Parameters
    ----------
    store : Path
        The store's root.
    release : str
    file_system : FileSystem
    tally : Tally
        Also gets notes on what is passed over without harm.
    """
    log = Log.of(store)
    directories = log_directories(store)
    directory = ", ".join(map(str, directories))
    try:
        loaded = list_for_loading(directories, log.usual_size, file_system, release)
    except SegmentLayoutError as error:
        tally.add_all([Finding(FindingKind.LOG_LAYOUT, directory, found=str(error))])
        return
    if {each.path for each in log.segments} <= set(map(str, loaded.paths)):
        tally.notes += loaded.notes
    else:
        tally.add_all([Finding(FindingKind.LOG_LAYOUT, directory, found="; ".join(loaded.notes))])
