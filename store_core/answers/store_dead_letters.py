# SPDX-License-Identifier: Apache-2.0
"""The answer `deadletters`: which messages consumers gave up, why, and what they were at first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from store_core.answers.life.dead_letter_report import DeadLettersFacts, DeadLettersReport
from store_core.answers.life.dead_letter_rows import (
    DEAD_LETTER_COLUMNS,
    DEAD_LETTER_PATTERN,
    dead_letter_rows,
    known_groups,
    origin_of,
    origin_offset,
)
from store_core.answers.life.message_read import read_of
from store_core.answers.life.message_reads import ReadJob
from store_core.answers.life.record_look_up import RecordLookUp
from store_core.answers.local_engine import local_engine
from store_core.answers.text.message_column import message_name
from store_core.broker.topic_kind import DEAD_LETTER_PREFIX
from store_core.errors import InvalidOptionError
from store_core.format.near_name import did_you_mean, known_names
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.format.table_time import table_time
from store_core.snapshot.config import SUBSCRIPTION_GROUPS, Config
from store_core.snapshot.log import Log
from store_core.store.configured_store import configured_paths
from store_core.store.least_value import check_least
from store_core.views.store_root import root_of

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["DeadLettersOptions", "dead_letters", "dead_letters_by"]

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersOptions:
    """Which dead letters.

    Attributes
    ----------
    group : sequence of str
        Only of these consumer groups; empty for all.
    most_rows : int
        Letters that are listed; all are counted.
    release : str
        RocketMQ release that serves the store.
    """

    group: tuple[str, ...] = ()
    most_rows: int = 1000
    release: str = DEFAULT_RELEASE


def dead_letters(
    paths: StorePaths,
    options: DeadLettersOptions | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> DeadLettersReport:
    """Tell which messages consumers gave up, by group and topic, and join them to their first messages.

    Only the topics of dead letters are read, through their queues where these prove complete, and the records that they
    name. Nothing is written, and no lock is taken. Damage is left out.

    Parameters
    ----------
    paths : path or sequence of paths
        As of `store_core.read_messages`.
    options : DeadLettersOptions, optional
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Raises
    ------
    StoreError
        If an option is invalid, a group is not known, or the path has nothing to read.

    Examples
    --------
    >>> from store_core.answers import dead_letters
    >>> print(dead_letters("/data/store").to_text())  # doctest: +SKIP
    """
    paths = configured_paths(paths, config)
    with local_engine(processes, on_progress) as engine:
        return dead_letters_by(engine, paths, options)


def dead_letters_by(engine: Engine, paths: StorePaths, options: DeadLettersOptions | None = None) -> DeadLettersReport:
    """Tell which messages consumers gave up, on an engine; see `dead_letters`."""
    chosen = options or DeadLettersOptions()
    check_least(0, most_rows=chosen.most_rows)
    root, extent = root_of(paths), Log.for_reading(paths)
    topics: dict[str, Any] = {"topics_pattern": DEAD_LETTER_PATTERN}
    if chosen.group:
        topics = {"topic": tuple(f"{DEAD_LETTER_PREFIX}{group}" for group in chosen.group)}
    read = read_of(DEAD_LETTER_COLUMNS, dead_letter_rows, release=chosen.release, **topics)
    found = engine.run(ReadJob(paths, {"letters": read}))
    rows = found.tables["letters"].to_pylist()
    _check_groups(root, chosen.group, {str(row["topic"]) for row in rows})
    offsets = (origin_offset(row) for row in rows)
    origins = engine.run(RecordLookUp(extent.segments, (at for at in offsets if at is not None), chosen.release))
    what = "after how many attempts groups give up"
    groups, notes = Config(root, chosen.release).known(SUBSCRIPTION_GROUPS, what)
    limits = {name: group.retry_max_times for name, group in (groups or {}).items() if "retryMaxTimes" in group.given}
    letters = [_letter(row, origins, extent.begin, limits) for row in rows]
    facts = replace(_facts(root, letters, (*found.notes, *notes)), missing_bytes=extent.missing_bytes)
    return DeadLettersReport.of(
        facts, {"groups": list(_groups(letters, limits)), "letters": letters[: chosen.most_rows]}
    )


def _check_groups(root: Path, asked: Sequence[str], found: Collection[str]) -> None:
    """Refuse groups without dead letters that nothing in the store knows, if it knows any: they are mistyped.

    Raises
    ------
    InvalidOptionError
        If there is one.
    """
    missing = [group for group in asked if f"{DEAD_LETTER_PREFIX}{group}" not in found]
    known = known_groups(root) if missing else frozenset[str]()
    for group in missing:
        if known and group not in known:
            hint = did_you_mean(group, known) or f"the groups are {known_names(known)}"
            raise InvalidOptionError(f"no consumer group {group!r} in {root}; {hint}")


def _letter(row: _Row, origins: Mapping[int, _Row], begin: int, limits: Mapping[str, int]) -> _Row:
    """Return a row of the report."""
    group = str(row["topic"]).removeprefix(DEAD_LETTER_PREFIX)
    state = origin_of(row, origins, begin)
    origin = origins[origin_offset(row) or 0] if state == "here" else None
    seconds = None if origin is None else row["store_timestamp"] / 1000 - origin["store_timestamp"] / 1_000_000
    names = ("topic", "queue_id", "queue_offset")
    return row | {
        "group": group,
        "failures": row["reconsume_times"],
        "why": _why(row["reconsume_times"], limits.get(group)),
        "origin": state,
        "origin_topic": row["origin_topic"] or (origin and origin["topic"]),
        "origin_offset": origin_offset(row),
        "origin_message": None if origin is None else message_name(*(origin[name] for name in names)),
        "store_timestamp": table_time(row["store_timestamp"]),
        "seconds": seconds,
    }


def _why(failures: int, limit: int | None) -> str:
    if limit is None:
        return "unknown"
    return "exhausted" if failures > limit else "early"


def _facts(root: Path, letters: Sequence[_Row], notes: tuple[str, ...]) -> DeadLettersFacts:
    origins = Counter(letter["origin"] for letter in letters)
    reasons = Counter(letter["why"] for letter in letters)
    return DeadLettersFacts(
        store=str(root),
        letters=len(letters),
        groups=len({letter["group"] for letter in letters}),
        bytes=sum(letter["store_size"] for letter in letters),
        exhausted=reasons["exhausted"],
        early=reasons["early"],
        notes=notes,
        **{name: origins[name] for name in ("here", "deleted", "elsewhere", "missing", "unknown")},
    )


def _groups(letters: Sequence[_Row], limits: Mapping[str, int]) -> Iterator[_Row]:
    """Yield totals by group and topic, the most letters first."""
    found: dict[tuple[str, str], list[_Row]] = {}
    for letter in letters:
        found.setdefault((letter["group"], letter["origin_topic"] or ""), []).append(letter)
    for (group, topic), those in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        failures = [letter["failures"] for letter in those]
        times = [letter["store_timestamp"] for letter in those]
        yield {
            "group": group,
            "origin_topic": topic or None,
            "letters": len(those),
            "bytes": sum(letter["store_size"] for letter in those),
            "retry_max_times": limits.get(group),
            "least_failures": min(failures),
            "most_failures": max(failures),
            "here": sum(letter["origin"] == "here" for letter in those),
            "first_timestamp": min(times),
            "last_timestamp": max(times),
        }
