# SPDX-License-Identifier: Apache-2.0
"""The result of a rebuild or a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from store_core.store.rebuild.report import as_json, as_text

if TYPE_CHECKING:
    from store_core.store.rebuild.report import RebuildReport

__all__ = ["RebuildOutcome", "RebuildResult"]


class RebuildOutcome(Enum):
    """How a rebuild ended.

    Attributes
    ----------
    DONE
        The work is done; of a comparison, nothing differs.
    FINDINGS
        The existing files differ from the log.
    REFUSED
        Nothing was replaced, because the log is damaged.
    DAMAGED
        The work is done, up to the damage or across it; but the log is damaged.
    """

    DONE = "done"
    FINDINGS = "findings"
    REFUSED = "refused"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """How a rebuild ended, and its report.

    Attributes
    ----------
    outcome : RebuildOutcome
    report : RebuildReport
    actions : tuple of str
        Further actions, in order: what was replaced, what was deleted, and where the new files are.
    is_comparison : bool
        Whether queues and index were compared with the log.
    """

    outcome: RebuildOutcome
    report: RebuildReport
    actions: tuple[str, ...] = ()
    is_comparison: bool = False

    def to_json(self, **more: object) -> dict[str, Any]:
        """Return the result as values for JSON, after `more`; the commands write it for ``--json``."""
        return as_json(self.report, **more, actions=list(self.actions))

    def to_text(self) -> str:
        """Return the result as a few lines for an operator; long lists are cut."""
        return as_text(self.report, is_comparison=self.is_comparison)
