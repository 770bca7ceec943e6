# SPDX-License-Identifier: Apache-2.0
"""Documented modules under their former names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

from store_core.former_names import FORMER_NAMES


@pytest.mark.parametrize(("former", "now"), FORMER_NAMES.items())
def test_a_former_name_is_the_module_of_today_with_a_warning(
    former: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(import_module("sys").modules, former, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{former} is now {now}"):
        module = import_module(former)

    assert module is import_module(now)
    assert module.__name__ == now
    assert module.__spec__ is not None
    assert module.__spec__.name == now


def test_other_names_are_still_not_found() -> None:
    assert find_spec("store_core.format.nosuch") is None
