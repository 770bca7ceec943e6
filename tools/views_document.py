# SPDX-License-Identifier: Apache-2.0
"""Generates ``docs/views.md``: every view with its columns and options, and a query that shows what it is good for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_commitlog.reader import spark_type
from store_core.store.read.option_table import READ_OPTIONS
from store_core.views.view_columns import VIEWS, View
from store_core.views.view_names import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Example(NamedTuple):
    """A question, the SQL that answers it, and what it prints for a store of the documents."""

    question: str
    sql: str
    printed: str
    store: str = "/data/rocketmq/store"


_SPARK_NAMES: Final = {option.field: option.name for option in READ_OPTIONS}

_INTRODUCTION: Final = """<!-- Generated from the table of views by `make docs`; do not edit. -->
# Views

A view is a table of what a store holds besides its messages: queues, index, offsets, a broker's configuration. Option
`view` selects it in Spark, and `store_core.read_view` reads it as Arrow, without Spark:

```python
from store_core import read_view

reader = read_view("/data/rocketmq/store", "topics", columns=["topic", "queue_id", "messages"], topic="payments")
for row in reader.read_all().to_pylist():
    print(row)
```

```text
{'topic': 'payments', 'queue_id': 0, 'messages': 72}
{'topic': 'payments', 'queue_id': 1, 'messages': 72}
```
"""

_RULES: Final = (
    (
        "Name the columns that you need, by option `columns` or by a schema: only these are computed. Unless "
        "`messages`, `data_end`, `stop_reason` or `last_store_timestamp` is among them, `segments` reads at most the "
        "first record of each file. Of the log, `topics` and `consumer_offsets` read first and last records of queues, "
        "and walk its last file only if a last one is not there."
    ),
    (
        "Every view takes the options ALWAYS. Others are those of [messages](options.md) that have a meaning for the "
        "view; the rest is refused by name, with what works instead."
    ),
    (
        "The work is cut into partitions of bounded size: small queue files are read together, a large index file in "
        "pieces. With `maxPartitionBytes` the size is yours."
    ),
    (
        "The files are listed once, when the view is planned. A file that a broker deletes before it is read is "
        "an error that names `failOnDataLoss`; with `failOnDataLoss=false` a warning says what is missing."
    ),
    (
        "A broker's files are read as the JSON library of its release takes them, so NUL bytes that power loss left "
        "after one do no harm; a release that is not named takes what any does. Where one is missing, empty or broken "
        "its `.bak` is read, which is older: the column `config_file` and a warning say so. If both are broken the "
        "error names file and place. If neither is there, the view is an error, too, since no rows would look like an "
        "empty file; with `failOnDataLoss=false` there are no rows. "
        "`topics` needs no `topics.json`: `in_config` is then null."
    ),
    (
        "Queues that are kept [in a RocksDB](guides/store-kinds.md#queues-in-a-rocksdb) are shown like those in files. "
        "Views can't be written, nor read as a stream."
    ),
)
"""What holds for all views; ALWAYS stands for the options that all take."""

_EXAMPLES: Final = {
    "consumequeue": _Example(
        "Which queues take most of the log?",
        """SELECT topic, queue_id, count(*) AS units, sum(store_size) AS bytes
FROM consumequeue WHERE NOT is_filler
GROUP BY ALL ORDER BY bytes DESC LIMIT 3""",
        """+------+--------+-----+-----+
|topic |queue_id|units|bytes|
+------+--------+-----+-----+
|orders|2       |150  |30120|
|orders|0       |150  |30105|
|orders|1       |144  |28902|
+------+--------+-----+-----+""",
    ),
    "index": _Example(
        "How many keys share a slot, so that a search has to follow a chain?",
        """SELECT count(*) AS entries, count(DISTINCT key_hash) AS keys, count(DISTINCT segment, slot) AS slots
FROM index""",
        """+-------+----+-----+
|entries|keys|slots|
+-------+----+-----+
|1788   |1205|1205 |
+-------+----+-----+""",
    ),
    "segments": _Example(
        "In which files do the records end too early?",
        """SELECT segment, data_end, stop_reason, messages
FROM segments WHERE stop_reason NOT IN ('END_OF_FILE', 'UNWRITTEN')""",
        """+--------------------+--------+-----------+--------+
|segment             |data_end|stop_reason|messages|
+--------------------+--------+-----------+--------+
|00000000000000000000|58951   |TORN       |300     |
+--------------------+--------+-----------+--------+""",
        "/data/damaged/store",
    ),
    "topics": _Example(
        "Which topics have how many messages, and until when?",
        """SELECT topic, count(*) AS queues, sum(messages) AS messages, max(newest_store_timestamp) AS newest
FROM topics GROUP BY topic ORDER BY messages DESC""",
        """+------------+------+--------+---------------------+
|topic       |queues|messages|newest               |
+------------+------+--------+---------------------+
|orders      |3     |444     |2023-11-14 22:18:19  |
|payments    |2     |144     |2023-11-14 22:18:17.5|
|%DLQ%billing|1     |12      |2023-11-14 22:18:19.5|
+------------+------+--------+---------------------+""",
    ),
    "consumer_offsets": _Example(
        "Which groups are behind, and where is an offset wrong?",
        """SELECT consumer_group, topic, queue_id, committed_offset, max_offset, behind, state
FROM consumer_offsets ORDER BY behind DESC""",
        """+--------------+------+--------+----------------+----------+------+--------+
|consumer_group|topic |queue_id|committed_offset|max_offset|behind|state   |
+--------------+------+--------+----------------+----------+------+--------+
|my-group      |orders|2       |12              |150       |138   |ok      |
|my-group      |orders|0       |30              |150       |120   |ok      |
|my-group      |orders|1       |40              |144       |104   |ok      |
|my-group      |orders|3       |0               |NULL      |NULL  |no_queue|
+--------------+------+--------+----------------+----------+------+--------+""",
    ),
    "subscription_groups": _Example(
        "Which groups may not consume?",
        "SELECT group_name, consume_enable, retry_max_times FROM subscription_groups WHERE NOT consume_enable",
        """+----------+--------------+---------------+
|group_name|consume_enable|retry_max_times|
+----------+--------------+---------------+
|billing   |false         |16             |
+----------+--------------+---------------+""",
    ),
    "delay_offsets": _Example(
        "How far has each delay level been delivered?",
        "SELECT delay_level, offset FROM delay_offsets",
        """+-----------+------+
|delay_level|offset|
+-----------+------+
|3          |120   |
|5          |7     |
+-----------+------+""",
    ),
    "checkpoint": _Example(
        "Until when were the queues safely on disk?",
        "SELECT name, timestamp_millis(value) AS time FROM checkpoint WHERE name = 'logics_msg_timestamp'",
        """+--------------------+---------------------+
|name                |time                 |
+--------------------+---------------------+
|logics_msg_timestamp|2023-11-14 22:18:19.5|
+--------------------+---------------------+""",
    ),
    "timerlog": _Example(
        "How many messages are pending, by the minute in which they are due?",
        """SELECT date_trunc('minute', due_timestamp) AS due, count(*) AS timers, sum(store_size) AS bytes
FROM timerlog WHERE is_pending AND NOT is_cancelling
GROUP BY due ORDER BY due""",
        """+-------------------+------+-----+
|due                |timers|bytes|
+-------------------+------+-----+
|2023-11-14 22:13:00|1     |100  |
|2023-11-14 22:14:00|6     |600  |
|2023-11-14 22:15:00|6     |600  |
|2023-11-14 22:16:00|4     |400  |
+-------------------+------+-----+""",
        "/data/timers/store",
    ),
    "timerwheel": _Example(
        "Which slots disagree with the log of timers, so that their timers may not be delivered?",
        """SELECT slot, due_timestamp, timers, units, state
FROM timerwheel WHERE is_pending AND state <> 'ok'""",
        """+------+-------------------+------+-----+-----------+
|slot  |due_timestamp      |timers|units|state      |
+------+-------------------+------+-----+-----------+
|512100|2023-11-14 22:15:00|9     |1    |wrong_count|
+------+-------------------+------+-----+-----------+""",
        "/data/timers/store",
    ),
    "rocksdbstore": _Example(
        "For which messages is the outcome of a transaction missing, and how often was it asked for?",
        """SELECT topic, unique_key AS transaction_id, physical_offset, check_times
FROM rocksdbstore WHERE kind = 'half' ORDER BY check_times DESC""",
        """+--------+--------------------------------+---------------+-----------+
|topic   |transaction_id                  |physical_offset|check_times|
+--------+--------------------------------+---------------+-----------+
|payments|0A010203000018B4AAC2000000000007|4096           |3          |
|orders  |0A010203000018B4AAC2000000000008|4352           |0          |
+--------+--------------------------------+---------------+-----------+""",
        "/data/timers/store",
    ),
}
"""By view; the tests of the documents execute them."""


def markdown_document() -> str:
    """Return the text of the document."""
    always = ", ".join(f"`{_SPARK_NAMES[name]}`" for name in ALWAYS)
    lines = [_INTRODUCTION, *(f"* {rule.replace('ALWAYS', always)}" for rule in _RULES), ""]
    for view in VIEWS.values():
        lines += _section(view, _EXAMPLES[view.name])
    return "\n".join([*lines, ""])


def _section(view: View, example: _Example) -> Iterator[str]:
    yield f"## {view.name}\n\n{view.doc} {example.question}\n"
    given = f"path '{example.store}', view '{view.name}'"
    yield f"```sql\nCREATE TEMPORARY VIEW {view.name} USING commitlog OPTIONS ({given});\n"
    yield f"{example.sql}\n```\n\n```text\n{example.printed}\n```\n"
    own = ", ".join(f"`{_SPARK_NAMES[name]}`" for name in view.own_options)
    yield f"Options besides those that every view takes: {own or 'none'}.\n"
    yield "| column | Spark type | null | meaning |\n|---|---|---|---|"
    for column in view.columns:
        null = "yes" if column.nullable else ""
        yield f"| `{column.name}` | `{spark_type(column.type).simpleString()}` | {null} | {column.doc} |"
    yield ""
