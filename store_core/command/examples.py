# SPDX-License-Identifier: Apache-2.0
"""Examples at the end of a command's help."""

from __future__ import annotations

from typing import Final

__all__ = ["examples"]

_AS_IT_IS: Final = "\b"
"""Tells click not to fill the paragraph."""


def examples(*lines: str) -> str:
    """Return the paragraph of examples for a command's help, one command line each."""
    return "\n".join([_AS_IT_IS, "Examples:", *(f"  {line}" for line in lines)])
