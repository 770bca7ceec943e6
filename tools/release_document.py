# SPDX-License-Identifier: Apache-2.0
"""``docs/releases.md``: what each release does, generated from the table that the code uses."""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.format.release import DEFAULT_RELEASE, RELEASE_RULES, RELEASES
from store_core.format.release_rules import ReleaseRules

if TYPE_CHECKING:
    from collections.abc import Iterator


class Feature(NamedTuple):
    """A feature as documents show it."""

    name: str  # the attribute of `ReleaseRules`
    area: str  # the part of RocketMQ it belongs to
    meaning: str  # A clause without a full stop
    source: str  # Java method, and the RocketMQ version of the rule


def release_features() -> Iterator[Feature]:
    """Yield the features in the order of the table."""
    for each in fields(ReleaseRules):
        if each.metadata:
            yield Feature(each.name, **each.metadata)


def markdown_document() -> str:
    """Return the text of ``docs/releases.md``."""
    lines = [*_INTRODUCTION, *_judge_lines(), *_EXPLANATION]
    for area, features in groupby(release_features(), lambda feature: feature.area):
        lines += ["", f"## {area}", "", *_table(features)]
    return "\n".join([*lines, ""])


def _judge_lines() -> Iterator[str]:
    for name, rules in RELEASE_RULES.items():
        yield f"| `{name}`{' (default)' if name == DEFAULT_RELEASE else ''} | {rules.judge} |"


def _table(features: Iterator[Feature]) -> Iterator[str]:
    yield f"| what it does | {' | '.join(RELEASES)} | feature, and where RocketMQ has it |"
    yield f"|---|{':---:|' * len(RELEASES)}---|"
    for feature in features:
        values = " | ".join(_shown(getattr(rules, feature.name)) for rules in RELEASE_RULES.values())
        yield f"| {feature.meaning} | {values} | `{feature.name}`: {feature.source} |"


def _shown(value: bool | int) -> str:  # noqa: FBT001 -- a value of the table
    if isinstance(value, bool):
        return "yes" if value else ""
    return str(value)


_INTRODUCTION: Final = (
    "<!-- Generated from the table of releases by `make docs`; do not edit. -->",
    "# Releases of RocketMQ",
    "",
    "The option `release` (`--release` on the command line) names the RocketMQ whose rules are followed. Each name",
    "stands for one version, whose answers the tests compare with:",
    "",
    "| `release` | RocketMQ |",
    "|---|---|",
)
_EXPLANATION: Final = (
    "",
    "Of 5.3.4 and 5.5.1 store and broker are published, and were run beside the other parts of 5.4.0 and 5.5.0. What",
    "5.3.4 does in those parts (topics of retries, files in `config/`) is by its source and by what its broker calls.",
    "",
    "The tables below list every rule on which these releases differ here. What is not listed is the same in all of",
    "them. If your broker is of another version, choose by the versions in the last column, which say when RocketMQ",
    "changed; `5.x` stands for some version from 5.0.0 on, `4.9.x` for one of 4.9. A patch release has a name of its",
    "own where it differs from the one before. The default is the newest series",
    "([why](adr/0029-the-newest-judged-release-is-the-default.md)): name the one that serves the store if it is",
    "another.",
    "",
    "Reading depends on very few of them: on how a property with the byte 1 is parsed",
    "([how to choose](guides/read.md#choose-the-release)), and on three words of SQL92. The others matter to writing,",
    "recovery, consuming and rebuilding. The versions of Spark and Python are a different matter: see",
    "[Compatibility](about.md#compatibility).",
)
