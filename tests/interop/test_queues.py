# SPDX-License-Identifier: Apache-2.0
"""We and RocketMQ agree on which message is in which queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.queues import answer_queues, queues_of

if TYPE_CHECKING:
    from tests.interop.written import WrittenStore


def test_consumers_get_the_messages_that_the_log_says(written: WrittenStore) -> None:
    light = "enableLmq" in written.scenario.settings

    assert written.answer["dispatchBehindBytes"] == 0
    assert written.answer["chainEnd"] == written.answer["bounds"]["max"]
    if written.scenario.plain_queues:
        assert answer_queues(written.answer) == queues_of(written.rows, written.release, light=light)
