# SPDX-License-Identifier: Apache-2.0
"""Counts that are too small are refused by the names of their options."""

from __future__ import annotations

import pytest

from store_core.errors import InvalidOptionError
from store_core.store.parts import check_least


def test_the_first_value_that_is_too_small_is_named() -> None:
    check_least(0, most_rows=0, older_than=1)

    with pytest.raises(InvalidOptionError, match=r"^older_than: expected 1 or more, found 0$"):
        check_least(1, most_rows=1, older_than=0, top=-1)


def test_what_arrow_has_no_number_for_is_refused() -> None:
    check_least(0, top=2**63 - 1)

    with pytest.raises(InvalidOptionError, match=r"^top: expected 9223372036854775807 or less, found 9{20}$"):
        check_least(0, top=10**20 - 1)
