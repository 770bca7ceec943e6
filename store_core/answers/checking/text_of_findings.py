# SPDX-License-Identifier: Apache-2.0
"""Findings on a terminal: few of each kind, in few columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.answers.text.message_column import message_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["text_of_findings"]

_MOST_OF_A_KIND: Final = 3
_SCHEMA: Final = pa.schema({"kind": pa.string(), "message": pa.string(), "offset": pa.int64(), "what": pa.string()})


def text_of_findings(findings: pa.Table) -> pa.Table:
    """Return the first findings of each kind: the message as ``TOPIC/QUEUE/OFFSET``, its place in the log, and what."""
    shown: Counter[str] = Counter()
    rows = []
    for row in findings.to_pylist():
        shown[row["kind"]] += 1
        if shown[row["kind"]] <= _MOST_OF_A_KIND:
            message = message_name(row["topic"], row["queue_id"], row["queue_offset"])
            rows.append({"kind": row["kind"], "message": message, "offset": row["begin"], "what": _what(row)})
    return pa.Table.from_pylist(rows, _SCHEMA)


def _what(row: Mapping[str, Any]) -> str:
    end = "" if row["end"] is None else f"to {row['end']}: "
    expected = "" if row["expected"] is None else f"; expected {row['expected']}"
    return f"{end}{row['found']}{expected}"
