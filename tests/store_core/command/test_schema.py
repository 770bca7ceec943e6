# SPDX-License-Identifier: Apache-2.0
"""The command schema."""

from __future__ import annotations

from store_core.format.columns import COLUMNS
from tests.store_core.command.calls import call


def test_every_column_of_a_message_is_listed_with_its_type() -> None:
    rows = call("schema", "--format=jsonl").rows

    assert [(column.name, str(column.type)) for column in COLUMNS] == [(row["column"], row["type"]) for row in rows]
