# SPDX-License-Identifier: Apache-2.0
"""The table of the format has no gaps, and every field of it is documented."""

from __future__ import annotations

import pytest

from store_core.format import layout
from store_core.format.layout import unit_dtype
from tools import layout_document


@pytest.mark.parametrize("unit", layout.UNITS, ids=lambda unit: unit.name)
def test_fields_follow_each_other_without_gaps_in_stored_order(unit: layout.Unit) -> None:
    dtype = unit_dtype(unit)

    assert dtype.itemsize == sum(dtype[name].itemsize for name in dtype.names or ())
    assert all(field.v6_flag is not None or field.type.startswith(">i") for field in unit.fields)


def test_every_field_is_documented() -> None:
    document = layout_document.markdown_document()

    for unit in layout.UNITS:
        assert f"## {unit.name} ({unit_dtype(unit).itemsize} bytes)" in document
        assert all(f"`{field.name}` | {field.java_name} | {field.doc} |" in document for field in unit.fields)
