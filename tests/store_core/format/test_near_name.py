# SPDX-License-Identifier: Apache-2.0
"""Suggestions for mistyped names."""

from __future__ import annotations

from store_core.format.words import did_you_mean, known_names


def test_the_nearest_name_is_asked_for_whatever_its_case() -> None:
    assert "did you mean 'Orders'?" == did_you_mean("ordres", ["payments", "Orders"])
    assert "did you mean 'queueNums'?" == did_you_mean("QUEUENUM", ["queueNums"])


def test_nothing_is_asked_if_no_name_is_near() -> None:
    assert not did_you_mean("xyz", ["payments", "orders"])
    assert not did_you_mean("xyz", [])


def test_of_many_names_the_first_are_shown() -> None:
    assert "a, b" == known_names({"b", "a"})
    assert "a, b, c, d, e and 2 more" == known_names("abcdefg")
