# SPDX-License-Identifier: Apache-2.0
"""Short forms of `read_view` for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from store_core import StoreError, read_view

if TYPE_CHECKING:
    from pathlib import Path

Rows = list[dict[str, Any]]


def rows(path: Path, view: str, columns: str | None = None, **options: Any) -> Rows:  # noqa: ANN401 -- as of `read_view`
    """Return all rows."""
    found: Rows = read_view(path, view, columns, **options).read_all().to_pylist()
    return found


def column(path: Path, view: str, name: str, **options: Any) -> list[Any]:  # noqa: ANN401 -- as of `read_view`
    """Return the values of one column."""
    return [row[name] for row in rows(path, view, name, **options)]


def refusal(path: Path | str, view: str, columns: str | None = None, **options: Any) -> StoreError:  # noqa: ANN401 -- as of `read_view`
    """Return the error with which a view is refused."""
    with pytest.raises(StoreError) as refused:
        read_view(path, view, columns, **options).read_all()
    return refused.value


def refusal_if_any(path: Path, view: str, otherwise: str) -> str:
    """Return the text of the error with which a view is refused, or another text; only errors of a store are caught."""
    try:
        read_view(path, view).read_all()
    except StoreError as error:
        return str(error)
    return otherwise
