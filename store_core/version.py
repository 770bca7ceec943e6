# SPDX-License-Identifier: Apache-2.0
"""The release of this package, where every module may read it."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.1.0"
"""Version of the distribution, whose metadata reads it from here."""
