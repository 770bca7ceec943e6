# SPDX-License-Identifier: Apache-2.0
"""Replaying messages in a session: chosen and edited by SQL, and appended through the writer, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from pyspark_commitlog.write.writer import reported
from store_core.answers.answer import one_root
from store_core.answers.message_reads import REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC
from store_core.answers.replayed_rows import OF_DELIVERY, OF_RECORD, WAITING_TOPICS, TargetQueues, check_targets
from store_core.answers.store_replay import Replay, ReplayFacts, ReplayReport, sender_of
from store_core.errors import InvalidOptionError
from store_core.format.columns import DEFAULT_COLUMNS
from store_core.format.properties import REAL_TOPIC, RETRY_TOPIC
from store_core.format.record.delayed import OF_WAITING
from store_core.format.words import did_you_mean
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.read.option_table import READ_OPTIONS, pairs_of
from store_core.store.store_layout import chosen_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from store_core.files.store_path import StorePaths


_WRITTEN: Final = ("topic", "body", "flag", "sys_flag", "born_host", "properties")
_BORN: Final = "born_timestamp_ms"
_EDITED: Final = ("topic", "body", "flag", "properties")
_ORIGIN: Final = "_origin_topic"


def replay_report(spark: SparkSession, asked: Replay, store: StorePaths, into: Path) -> ReplayReport:
    """Replay messages; both stores must be seen by every worker."""
    source = str(one_root(store))
    edit = pairs_of("edit", tuple(asked.edit))
    for name in edit.keys() - set(_EDITED):
        hint = did_you_mean(name, _EDITED) or f"the columns are {', '.join(_EDITED)}"
        raise InvalidOptionError(f"edit: {name!r} can't be edited; {hint}")
    columns = ",".join([*DEFAULT_COLUMNS, "msg_id", "unique_key", _BORN])
    places = _places(asked, store)
    reader = spark.read.format("commitlog").options(**spark_options(asked.read), **places)
    found = reader.options(release=asked.release, columns=columns).load(source)
    frame = _as_new(found if asked.where is None else found.where(asked.where), asked, edit)
    counts = frame.groupBy(_ORIGIN, "topic").count().orderBy(_ORIGIN, "topic").collect()
    topics = [{"origin_topic": row[0], "topic": row[1], "messages": row[2]} for row in counts]
    targets = {row[1] for row in counts if row[1] is not None}
    queues = TargetQueues(into, asked.queues)
    check_targets(targets, queues, asked.release)
    written = frame.select(*_WRITTEN, F.col(_BORN).alias("born_timestamp"))
    of_target = places if Path(source).resolve() == into.resolve() else {}
    if asked.into_config is not None:
        of_target = {**of_target, "config": _text(asked.into_config)}
    facts = _appended(written, source, into, asked, of_target | {"queueNums": str(queues.least_of(targets))})
    return ReplayReport.of(facts, {} if facts.is_repeat and not asked.dry_run else {"topics": topics})


def _places(asked: Replay, store: StorePaths) -> dict[str, str]:
    """Return the options that say where the log of the source is."""
    chosen = asked.read.get("store_path_commit_log") or chosen_log(one_root(store), asked.config)
    found = {"config": asked.config, "storePathCommitLog": chosen}
    return {name: _text(value) for name, value in found.items() if value is not None}


def spark_options(read: Mapping[str, object]) -> dict[str, str]:
    """Return options of the reader as those of the data source."""
    names = {option.field: option.name for option in READ_OPTIONS}
    return {names.get(name, name): _text(value) for name, value in read.items() if value is not None}


def _text(value: object) -> str:
    """Return the value of an option as Spark passes it on."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, MessageStoreConfig):
        raise InvalidOptionError("config, into_config: expected a broker's file, which Spark's tasks can read")
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _as_new(frame: DataFrame, asked: Replay, edit: Mapping[str, str]) -> DataFrame:
    """Return messages as new ones, edited, with what says where they come from."""
    waiting = F.when(F.col("topic").isin(*WAITING_TOPICS), F.col("properties")[REAL_TOPIC])
    first = F.coalesce(F.col("properties")[RETRY_TOPIC], waiting, F.col("topic"))
    topic = first if asked.to_topic is None else F.lit(asked.to_topic)
    new = undelivered(frame.withColumns({_ORIGIN: F.col("topic"), "topic": topic}))
    edited = new.withColumns({name: F.expr(text) for name, text in edit.items()})
    names = (REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC)
    values = (F.lit(asked.replay_id), F.col("msg_id"), F.col(_ORIGIN))
    added = F.create_map(*(part for pair in zip(map(F.lit, names), values, strict=True) for part in pair))
    others = F.map_filter("properties", lambda name, _: ~name.isin(*names))
    return edited.withColumn("properties", F.map_concat(others, added))


def _appended(frame: DataFrame, source: str, into: Path, asked: Replay, options: Mapping[str, str]) -> ReplayFacts:
    given = {"commitId": sender_of(asked.replay_id), "dryRun": str(asked.dry_run).lower(), "release": asked.release}
    writer = frame.write.format("commitlog").mode("append")
    done = reported(lambda every: writer.options(**every).save(str(into)), {**given, **options})
    return ReplayFacts(
        source=str(source),
        into=str(into),
        replay_id=asked.replay_id,
        messages=done["records"],
        bytes=done["bytes"],
        is_repeat=done["is_repeat"],
        is_dry_run=asked.dry_run,
        begin_offset=done["begin_offset"],
        end_offset=done["end_offset"],
    )


# ---- messages as new ones


def copied(frame: DataFrame) -> DataFrame:
    """Return messages as `store_core.answers.replayed_rows.copied_batch` does."""
    real = F.when(F.col("topic").isin(*WAITING_TOPICS), F.col("properties")[REAL_TOPIC])
    queue_id = F.when(real.isNull(), F.col("queue_id"))
    named = frame.withColumns({"topic": F.coalesce(real, "topic"), "queue_id": queue_id})
    return undelivered(named, OF_WAITING)


def undelivered(frame: DataFrame, left_out: tuple[str, ...] = OF_DELIVERY) -> DataFrame:
    """Return messages as `store_core.answers.replayed_rows.undelivered` does; the writer drops checksums itself."""
    kept = F.map_filter("properties", lambda name, _: ~name.isin(*left_out))
    return frame.withColumns({"properties": kept, "sys_flag": F.col("sys_flag").bitwiseAND(F.lit(~OF_RECORD))})
