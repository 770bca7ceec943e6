# SPDX-License-Identifier: Apache-2.0
"""An answer says which command asks the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from store_core import MessageStoreConfig
from store_core.answers import Bill, Check, Export, Recover, Redact, Replay

if TYPE_CHECKING:
    from store_core.answers import Answer


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (Bill(rows=3), "commitlog bill /s --rows 3"),
        (Check(), "commitlog check /s"),
        (Check(check_crc=False, topic=("a b",)), "commitlog check /s --no-bodies --topic 'a b'"),
        (Redact("/new", text="jane@example.org"), "commitlog redact /s --into /new --text ..."),
        (Recover(release=("4.9", "5.3")), "commitlog recover /s --release 4.9 --release 5.3 --dry-run"),
        (Export("/lake", kind="delta", prove=True), "commitlog export /s --into /lake --format delta --prove"),
        (
            Replay.of("T-1", edit={"body": "x"}, into_config=MessageStoreConfig(), queue_id=3),
            "commitlog replay /s --id T-1 --edit body=x --queue-id 3",
        ),
    ],
)
def test_a_command_line_has_what_is_no_default(asked: Answer[Any], command: str) -> None:
    assert command == asked.command_line("/s")
    assert f"{command} --config b.conf" == asked.command_line("/s", "b.conf")
