# SPDX-License-Identifier: Apache-2.0
"""What an answer found, in one word."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What an answer found; `store_core.command.exit_code.ExitCode.of` is the code of a command.

    Attributes
    ----------
    CLEAN
        Nothing was found; or the work is done, and nothing was lost.
    FINDINGS
        Something differs or is wrong; the tables list it.
    DAMAGED
        The work is done, but the log is damaged.
    REFUSED
        Nothing is done: a broker would refuse the store.
    """

    CLEAN = "clean"
    FINDINGS = "findings"
    DAMAGED = "damaged"
    REFUSED = "refused"

    @classmethod
    def of(cls, *, has_findings: bool, is_damaged: bool) -> Verdict:
        """Return the verdict of an answer that may find both: what is to act on first."""
        if has_findings:
            return cls.FINDINGS
        return cls.DAMAGED if is_damaged else cls.CLEAN
