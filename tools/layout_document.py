# SPDX-License-Identifier: Apache-2.0
"""The text of ``docs/FORMAT.md``, from the table of the layout."""

from __future__ import annotations

from typing import Final

from store_core.format.layout import (
    MAX_HEAD_SIZE,
    MESSAGE_HEAD,
    STORED_UNITS,
    TIMER_UNITS,
    UNITS,
    Unit,
    field_position,
    head_dtype,
    unit_dtype,
)

_BOTH_V6: Final = -1
"""Flags of a record whose hosts are both IPv6."""


def _rows(unit: Unit, sys_flag: int) -> list[str]:
    dtype = head_dtype(sys_flag) if unit is MESSAGE_HEAD else unit_dtype(unit)
    rows = ["| position | bytes | type | name | RocketMQ | meaning |", "|---:|---:|---|---|---|---|"]
    for field in unit.fields:
        kind, position = dtype[field.name], field_position(dtype, field.name)
        shown = "address, i4 port" if field.v6_flag else field.type.lstrip(">")
        rows.append(f"| {position} | {kind.itemsize} | {shown} | `{field.name}` | {field.java_name} | {field.doc} |")
    return rows


def _section(unit: Unit) -> list[str]:
    lines = [f"## {unit.name} ({unit_dtype(unit).itemsize} bytes)", "", f"{unit.doc} RocketMQ: `{unit.java_name}`.", ""]
    lines += _rows(unit, 0)
    if unit is MESSAGE_HEAD:
        lines += ["", f"With both hosts IPv6 ({MAX_HEAD_SIZE} bytes):", "", *_rows(unit, _BOTH_V6)]
    if unit.tail:
        lines += ["", f"Then: {unit.tail}."]
    return [*lines, ""]


def markdown_document() -> str:
    """Return the text of ``docs/FORMAT.md``: every unit as a table of positions."""
    lines = [
        "<!-- Generated from store_core/format/layout.py by `make docs`; do not edit. -->",
        "# The bytes of RocketMQ's store",
        "",
        "All integers are big-endian and signed. Positions and sizes are in bytes.",
        "",
    ]
    for unit in (*UNITS, *TIMER_UNITS, *STORED_UNITS):
        lines += _section(unit)
    lines += ["```{include} releases.md", ":heading-offset: 1", "```"]
    return "\n".join(lines) + "\n"
