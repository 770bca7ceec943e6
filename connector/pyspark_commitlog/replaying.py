# SPDX-License-Identifier: Apache-2.0
"""Replaying messages in a session: chosen and edited by SQL, and appended through the writer, once."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from pyspark_commitlog.write.undelivered import undelivered
from store_core.answers.life.message_reads import (
    REPLAY_ID,
    REPLAY_ORIGIN_MESSAGE_ID,
    REPLAY_ORIGIN_TOPIC,
)
from store_core.answers.life.replay import WAITING_TOPICS, ReplayFacts, ReplayReport, TargetQueues, check_targets
from store_core.answers.store_replay import check_read, sender_of
from store_core.errors import InvalidOptionError
from store_core.format.columns import DEFAULT_COLUMNS
from store_core.format.properties import REAL_TOPIC, RETRY_TOPIC
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from store_core.answers.store_replay import ReplayOptions

__all__ = ["replay_report"]

_WRITTEN: Final = ("topic", "body", "flag", "sys_flag", "born_host", "properties")
_BORN: Final = "born_timestamp_ms"
_EDITED: Final = ("topic", "body", "flag", "properties")
_ORIGIN: Final = "_origin_topic"
_PLACES: Final = frozenset({"config", "storepathcommitlog"})
"""Options that say where the log of a store is, for reading and for writing."""


def replay_report(  # noqa: PLR0913 -- what is chosen, and how it is changed
    spark: SparkSession,
    source: str | os.PathLike[str],
    into: str | os.PathLike[str],
    options: ReplayOptions,
    where: str | None,
    edit: Mapping[str, str],
    read: Mapping[str, str],
) -> ReplayReport:
    """Replay messages; see `pyspark_commitlog.answers.replay`."""
    options.check()
    check_read({name.lower(): text for name, text in read.items()})
    for name in edit.keys() - set(_EDITED):
        hint = did_you_mean(name, _EDITED) or f"the columns are {', '.join(_EDITED)}"
        raise InvalidOptionError(f"edit: {name!r} can't be edited; {hint}")
    columns = ",".join([*DEFAULT_COLUMNS, "msg_id", "unique_key", _BORN])
    reader = spark.read.format("commitlog").options(release=options.release, columns=columns)
    found = reader.options(**dict(read)).load(str(source))
    frame = _as_new(found if where is None else found.where(where), options, edit)
    counts = frame.groupBy(_ORIGIN, "topic").count().orderBy(_ORIGIN, "topic").collect()
    topics = [{"origin_topic": row[0], "topic": row[1], "messages": row[2]} for row in counts]
    targets = {row[1] for row in counts if row[1] is not None}
    queues = TargetQueues(Path(into), options.queues)
    check_targets(targets, queues, options.release)
    written = frame.select(*_WRITTEN, F.col(_BORN).alias("born_timestamp"))
    is_source = Path(source).resolve() == Path(into).resolve()
    places = {name: text for name, text in read.items() if is_source and name.lower() in _PLACES}
    facts = _appended(written, source, into, replace(options, queues=queues.least_of(targets)), places)
    return ReplayReport.of(facts, {} if facts.is_repeat and not options.dry_run else {"topics": topics})


def _as_new(frame: DataFrame, options: ReplayOptions, edit: Mapping[str, str]) -> DataFrame:
    """Return messages as new ones, edited, with what says where they come from."""
    waiting = F.when(F.col("topic").isin(*WAITING_TOPICS), F.col("properties")[REAL_TOPIC])
    first = F.coalesce(F.col("properties")[RETRY_TOPIC], waiting, F.col("topic"))
    topic = first if options.to_topic is None else F.lit(options.to_topic)
    new = undelivered(frame.withColumns({_ORIGIN: F.col("topic"), "topic": topic}))
    edited = new.withColumns({name: F.expr(text) for name, text in edit.items()})
    names = (REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC)
    values = (F.lit(options.replay_id), F.col("msg_id"), F.col(_ORIGIN))
    added = F.create_map(*(part for pair in zip(map(F.lit, names), values, strict=True) for part in pair))
    others = F.map_filter("properties", lambda name, _: ~name.isin(*names))
    return edited.withColumn("properties", F.map_concat(others, added))


def _appended(
    frame: DataFrame,
    source: str | os.PathLike[str],
    into: str | os.PathLike[str],
    options: ReplayOptions,
    places: Mapping[str, str],
) -> ReplayFacts:
    with tempfile.TemporaryDirectory(prefix="commitlog-replay-") as directory:
        report = Path(directory) / "report.json"
        given = {
            "commitId": sender_of(options.replay_id),
            "queueNums": str(options.queues),
            "dryRun": str(options.dry_run).lower(),
            "release": options.release,
            "report": str(report),
        }
        frame.write.format("commitlog").mode("append").options(**given, **places).save(str(into))
        done = json.loads(report.read_text(encoding="utf-8"))
    return ReplayFacts(
        source=str(source),
        into=str(into),
        replay_id=options.replay_id,
        messages=done["records"],
        bytes=done["bytes"],
        is_repeat=done["is_repeat"],
        is_dry_run=options.dry_run,
        begin_offset=done["begin_offset"],
        end_offset=done["end_offset"],
    )
