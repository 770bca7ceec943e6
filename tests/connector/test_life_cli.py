# SPDX-License-Identifier: Apache-2.0
"""The jobs that tell what became of messages end as the commands do, and print what they print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.command import main
from store_core import read_messages
from tests.life_logs import LifeLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_replay_is_chosen_and_edited_by_sql_and_made_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # the job uses the running session
    log = LifeLog()
    for key, group in (("a", "billing"), ("b", "billing"), ("c", "other")):
        log.dead(log.send(key, body=b"broken"), key, group)
    store, new = str(log.write(tmp_path / "store")), str(tmp_path / "new")
    edits = ("--edit", "body=encode(concat('mended ', properties['KEYS']), 'UTF-8')")
    words = ["replay", store, "--id", "T-1", "--into", new, "--topic", "%DLQ%billing", *edits]

    assert 0 == main([*words, "--where", "array_contains(keys, 'b')"])
    assert "1 message of" in capsys.readouterr().out
    assert 0 == main(words)
    assert "is in the store already: nothing was appended" in capsys.readouterr().out
    assert 0 == main([*words, "--dry-run"])
    assert "is in the store already: nothing would be appended" in capsys.readouterr().out
    (row,) = read_messages(new).read_all().to_pylist()
    assert ("orders", b"mended b", 0) == (row["topic"], row["body"], row["reconsume_times"])
    expected = {"REPLAY_ID": "T-1", "REPLAY_ORIGIN_TOPIC": "%DLQ%billing", "UNIQ_KEY": "U-b"}
    assert expected.items() <= dict(row["properties"]).items()
    assert "RETRY_TOPIC" not in dict(row["properties"])
    assert 2 == main(["replay", store, "--id", "T-2", "--edit", "bodi='x'"])
    for option in ("--decompress", "--mode=PERMISSIVE", "--columns=body"):
        assert 2 == main(["replay", store, "--id", "T-2", option])
    capsys.readouterr()


def test_a_replay_sends_a_delayed_message_to_its_own_topic_and_a_half_one_nowhere(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # as above
    log = LifeLog()
    log.append(b"later", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3", "REAL_TOPIC": "mail", "REAL_QID": "0"})
    log.append(b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "mail", "TRAN_MSG": "true"})
    store, new = str(log.write(tmp_path / "store")), str(tmp_path / "new")

    assert 2 == main(["replay", store, "--id", "T-1", "--into", new])
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in capsys.readouterr().err
    assert 0 == main(["replay", store, "--id", "T-1", "--into", new, "--topic", "SCHEDULE_TOPIC_XXXX"])
    assert [("mail", b"later")] == [(row["topic"], row["body"]) for row in read_messages(new).read_all().to_pylist()]
