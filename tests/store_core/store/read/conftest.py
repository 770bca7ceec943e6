# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.files import remote_bytes, url_path
from store_core.snapshot import queues

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def few_bytes() -> Iterator[None]:
    """Load from elsewhere just what is asked for, so that what is read without being loaded is zeros."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_bytes, "NEAR", 0)
        patch.setattr(url_path, "_READ_WHOLE", 0)
        patch.setattr(queues, "_BLOCK", 64)
        patch.setattr(remote_bytes, "_BLOCK", 1 << 8)
        patch.setattr(remote_bytes, "_AHEAD", 1 << 9)
        yield
