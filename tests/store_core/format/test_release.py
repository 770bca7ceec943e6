# SPDX-License-Identifier: Apache-2.0
"""The table of releases is complete and documented, and no other module knows the name of a release."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from store_core.errors import InvalidOptionError
from store_core.format.record.encode import EncodeRules
from store_core.format.release import (
    DEFAULT_RELEASE,
    LIKELIEST_FIRST,
    RELEASE_RULES,
    RELEASES,
    Release,
    rules_of,
)
from store_core.format.release_rules import ReleaseRules
from store_core.queue.queue_path import QueueRules
from tools.release_document import Feature, release_features

_ROOT = Path(__file__).parents[3]
_PRODUCT = ("store_core", "connector", "jobs")
_TABLE = _ROOT / "store_core/format/release.py"
_SOURCE = re.compile(r"[A-Z]\w+(\.\w+)*, .*\d\.\w")
_FEATURES = tuple(release_features())


def _modules() -> list[Path]:
    return [path for folder in _PRODUCT for path in sorted(_ROOT.joinpath(folder).rglob("*.py")) if path != _TABLE]


def _release_literals(source: str) -> list[int]:
    """Return the lines of string constants that are the name of a release, docstrings left out."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in texts)
    return [node.lineno for node in constants if node.value in RELEASES]


def _compares_releases(source: str) -> list[int]:
    """Return the lines that compare a release; asking whether there is one, or it is one of `RELEASES`, is allowed."""
    comparisons = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare))
    return [
        node.lineno
        for node in comparisons
        if any(_name(side) in {"release", "_release"} for side in (node.left, *node.comparators))
        and _name(node.comparators[-1]) != "RELEASES"
        and not isinstance(node.ops[-1], (ast.Is, ast.IsNot))
    ]


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# ---- one table


def test_only_the_table_knows_the_names_of_releases() -> None:
    """A rule of a release is a feature with a name: see docs/adr and CONTRIBUTING."""
    lines = [
        f"{path.relative_to(_ROOT)}:{line}"
        for path in _modules()
        for source in [path.read_text(encoding="utf-8")]
        for line in (*_release_literals(source), *_compares_releases(source))
    ]

    assert [] == lines


@pytest.mark.parametrize(
    ("source", "literals", "comparisons"),
    [
        ('is_new = rules.release == "5.3"', [1], [1]),
        ('is_old = release in ("4.3", "4.9")', [1, 1], [1]),
        ('def open_store(release: str = "5.3") -> None: ...', [1], []),
        ('choices = {"4.9": 1}', [1], []),
        ('match release:\n    case "4.3": pass', [2], []),
        ("is_new = rules.release != OLD", [], [1]),
        ("is_new = release in (OLD, NEW)", [], [1]),
        ("is_new = RELEASES[1] <= self._release", [], [1]),
        ("is_known = release in RELEASES", [], []),
        ('def f() -> None:\n    """4.3"""\n\nVERSION = 1\n"""5.3"""', [], []),
    ],
)
def test_names_and_comparisons_of_releases_are_found_in_code_and_not_in_docstrings(
    source: str, literals: list[int], comparisons: list[int]
) -> None:
    assert (literals, comparisons) == (_release_literals(source), _compares_releases(source))


def test_every_feature_decides_something() -> None:
    """A feature that is not used would be a claim without code."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in _modules()]
    asked_for = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert [] == [feature.name for feature in _FEATURES if feature.name not in asked_for]


# ---- the table


@pytest.mark.parametrize("feature", _FEATURES, ids=lambda feature: feature.name)
def test_every_feature_is_documented(feature: Feature) -> None:
    assert feature.meaning
    assert not feature.meaning.endswith(".")
    assert feature.area
    assert _SOURCE.fullmatch(feature.source), "expected a Java method, a comma and a version"


def test_every_field_but_the_names_is_a_feature() -> None:
    assert {"release", "judge"} == {each.name for each in fields(ReleaseRules)} - {each.name for each in _FEATURES}


@pytest.mark.parametrize("feature", _FEATURES, ids=lambda feature: feature.name)
def test_every_feature_tells_releases_apart(feature: Feature) -> None:
    assert len({getattr(rules, feature.name) for rules in RELEASE_RULES.values()}) > 1


def test_releases_are_named_once_in_their_order() -> None:
    assert get_args(Release) == RELEASES == tuple(rules.release for rules in RELEASE_RULES.values())
    assert DEFAULT_RELEASE in RELEASES
    numbers = [tuple(map(int, rules.judge.split("."))) for rules in RELEASE_RULES.values()]
    assert all(older < newer for older, newer in pairwise(numbers))
    assert all(f"{rules.judge}.".startswith(f"{name}.") for name, rules in RELEASE_RULES.items())


def test_patch_releases_are_less_likely_than_others_of_their_series() -> None:
    assert sorted(RELEASES) == sorted(LIKELIEST_FIRST)
    assert LIKELIEST_FIRST[0] == DEFAULT_RELEASE
    assert LIKELIEST_FIRST.index("5.4") < LIKELIEST_FIRST.index("5.3") < LIKELIEST_FIRST.index("5.3.4")


# ---- asking for a release


@pytest.mark.parametrize("name", RELEASES)
def test_the_rules_of_a_release_are_found_by_its_name(name: Release) -> None:
    assert rules_of(name).release == name
    assert repr(rules_of(name)) == f"ReleaseRules({name!r})"
    assert QueueRules(release=name).features is EncodeRules(name).features is rules_of(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("4.9.7", "; RocketMQ 4.9.7 is served by the rules of 4.9, so give 4.9"),
        ("5.3.2", "; RocketMQ 5.3.2 is served by the rules of 5.3, so give 5.3"),
        ("5.3.5", "; RocketMQ 5.3.5 is served by the rules of 5.3.4, so give 5.3.4"),
        ("5.5.9", "; RocketMQ 5.5.9 is served by the rules of 5.5.1, so give 5.5.1"),
        ("5.5.0", "; RocketMQ 5.5.0 is served by the rules of 5.5, so give 5.5"),
        ("4.9.0", "; docs/releases.md says in which version each rule changed"),
        ("5.2", "; docs/releases.md says in which version each rule changed"),
        ("v5.3", "; did you mean '5.3'?"),
        ("RocketMQ", ""),
    ],
)
def test_an_unknown_release_is_refused_with_the_names_of_those_known(name: str, hint: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        rules_of(name)
    assert str(refused.value) == f"release: expected one of {', '.join(RELEASES)}, found {name!r}{hint}"


@pytest.mark.parametrize("name", [None, 5.3, ["5.3"]])
def test_what_is_no_name_is_refused_alike(name: object) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(f"found {name!r}")):
        rules_of(name)  # type: ignore[arg-type]  # what an untyped caller may do


def test_rules_made_for_another_release_get_its_features() -> None:
    assert replace(EncodeRules(RELEASES[0]), release=RELEASES[1]).features is rules_of(RELEASES[1])


def test_rules_go_to_tasks_by_the_name_of_their_release() -> None:
    rules = QueueRules(release=RELEASES[0])
    copied = pickle.loads(pickle.dumps(rules))  # noqa: S301 -- our own bytes
    assert copied == rules
    assert copied.features is rules.features
    assert len(pickle.dumps(rules_of(RELEASES[0]))) < 100
