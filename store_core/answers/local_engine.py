# SPDX-License-Identifier: Apache-2.0
"""The engine for a number of processes on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from store_core.store.parts import InProcess

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from store_core.store.parts import LocalEngine, ProgressSink

__all__ = ["local_engine"]


def local_engine(processes: int, on_progress: ProgressSink | None = None) -> AbstractContextManager[LocalEngine]:
    """Return the engine that runs parts in this process alone, or in several."""
    if processes == 1:
        return nullcontext(InProcess(on_progress))
    from store_core.store.process_pool import ProcessPool

    return ProcessPool(processes, on_progress)
