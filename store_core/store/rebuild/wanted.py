# SPDX-License-Identifier: Apache-2.0
"""Checking that the topics and the queue requested of a rebuild exist in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.snapshot.queues import Queues
from store_core.store.read.stored_topics import hint_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.store.rebuild.report import RebuildReport
    from store_core.store.rebuild.rules import RebuildRules

__all__ = ["check_wanted"]

_MOST_IDS: Final = 20
"""Maximum queue ids shown in an error."""


def check_wanted(report: RebuildReport, store: Path, rules: RebuildRules, file_system: FileSystem) -> None:
    """Refuse topics and a queue id that are neither in the log nor in the store's queues and configuration.

    Parameters
    ----------
    report : RebuildReport
        Report on the log's contents.
    store : Path
    rules : RebuildRules
        Rules with the requested topics and queue id.
    file_system : FileSystem

    Raises
    ------
    InvalidOptionError
        If a topic is unknown, or no requested topic has the queue.
    """
    if rules.topics is None and rules.queue_id is None:
        return
    in_log = {(queue.topic, queue.queue_id) for queue in report.queues}
    queues = in_log | report.passed_over | {queue.name for queue in Queues(store, file_system=file_system).in_files()}
    where = f"neither in the log of {store}{_read_part(report, rules)} nor among its queues"
    topics = {topic for topic, _ in queues} | stored_topics([store])
    unknown = sorted((rules.topics or frozenset()) - topics)
    if unknown:
        told = "; ".join(f"{topic!r}: {hint_of(topic, topics)}" for topic in unknown)
        raise InvalidOptionError(f"--topic: {where} nor in config/topics.json: {told}")
    _check_queue_id(queues, where, rules)


def _check_queue_id(queues: Collection[tuple[str, int]], where: str, rules: RebuildRules) -> None:
    """Refuse a queue id that none of the requested topics has, unless these have no queues at all."""
    ids = sorted({number for topic, number in queues if rules.topics is None or topic in rules.topics})
    if rules.queue_id is None or rules.queue_id in ids or not ids:
        return
    topics = f" of {', '.join(map(repr, sorted(rules.topics)))}" if rules.topics is not None else ""
    shown = ", ".join(map(str, ids[:_MOST_IDS])) + (f" and {len(ids) - _MOST_IDS} more" if len(ids) > _MOST_IDS else "")
    raise InvalidOptionError(f"--queue-id: queue {rules.queue_id}{topics} is {where}; the ids are {shown}")


def _read_part(report: RebuildReport, rules: RebuildRules) -> str:
    """Return which part of the log was read, if not all of it."""
    begin = f" from offset {rules.since_offset} on" if rules.since_offset else ""
    return begin + (
        f" up to offset {report.end_offset}, where it is damaged,"
        if report.is_damaged and not rules.is_salvaged
        else ""
    )
