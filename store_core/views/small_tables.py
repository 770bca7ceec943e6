# SPDX-License-Identifier: Apache-2.0
"""The views of one small file: ``subscription_groups``, ``delay_offsets`` and ``checkpoint``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from store_core.errors import CorruptRecordError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.store_parts import CHECKPOINT_FILE
from store_core.format.layout import CHECKPOINT, unit_dtype
from store_core.snapshot.config import DELAY_OFFSETS, SUBSCRIPTION_GROUPS, check_is_file
from store_core.store.state.store_checkpoint import checkpoint_fields
from store_core.views.config_table import read_table, without_file
from store_core.views.store_root import root_of
from store_core.views.view_columns import VIEWS
from store_core.views.view_part import row_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from store_core.files.store_path import StorePaths
    from store_core.snapshot.config import ConfigFile
    from store_core.snapshot.config_tables import SubscriptionGroupConfig
    from store_core.views.view_options import ViewOptions

__all__ = ["RowsPart", "plan_checkpoint", "plan_delay_offsets", "plan_subscription_groups"]

Row: TypeAlias = "dict[str, object]"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Rows that planning has read: the whole file is one small part.

    Attributes
    ----------
    rows : tuple of dict
        By column, with all columns of the view.
    """

    rows: tuple[Row, ...]

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return row_batches(options, self.rows)


def plan_subscription_groups(paths: StorePaths, options: ViewOptions) -> list[RowsPart]:
    """Read ``config/subscriptionGroup.json``. Errors as of `store_core.views.config_table.read_table`."""
    found = read_table(root_of(paths), SUBSCRIPTION_GROUPS, options)
    if found is None:
        return []
    return [_rows_of(found, (_group(group) for _, group in sorted(found.value.items(), key=lambda item: item[0])))]


def plan_delay_offsets(paths: StorePaths, options: ViewOptions) -> list[RowsPart]:
    """Read ``config/delayOffset.json``. Errors as of `store_core.views.config_table.read_table`."""
    found = read_table(root_of(paths), DELAY_OFFSETS, options)
    if found is None:
        return []
    return [_rows_of(found, ({"delay_level": level, "offset": at} for level, at in sorted(found.value.items())))]


def _rows_of(found: ConfigFile[T], rows: Iterable[Row]) -> RowsPart:
    return RowsPart(tuple(row | {"config_file": found.file} for row in rows))


def plan_checkpoint(paths: StorePaths, options: ViewOptions) -> list[RowsPart]:
    """Read the file ``checkpoint``.

    Raises
    ------
    StoreNotFoundError
        If it is missing, unless `fail_on_data_loss` is off.
    CorruptRecordError
        If it is too short for the fields of the release.
    """
    path = root_of(paths) / CHECKPOINT_FILE
    fields = checkpoint_fields(options.read.release)
    with explained_access(path.parent):
        check_is_file(path)
        data = _beginning(path)
    if data is None:
        without_file(_no_checkpoint(path), options)
        return []
    values = dict(zip(unit_dtype(CHECKPOINT).names or (), _integers(path, data, len(fields)), strict=False))
    return [RowsPart(tuple({"name": field.name, "value": values[field.name]} for field in fields))]


def _beginning(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(unit_dtype(CHECKPOINT).itemsize)
    except FileNotFoundError:
        return None


def _integers(path: Path, data: bytes, count: int) -> list[int]:
    size = unit_dtype(CHECKPOINT).itemsize // len(CHECKPOINT.fields)
    if len(data) < count * size:
        raise CorruptRecordError(
            "checkpoint too short", str(path), 0, f"{count * size} bytes or more", f"{len(data)} bytes", data,
            "Compare it with another copy of the store; option release says which fields there are",
        )  # fmt: skip
    numbers: list[int] = np.frombuffer(data[: count * size], ">i8").tolist()
    return numbers


def _no_checkpoint(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"{path} is missing: expected the file that a store keeps there; without it a broker takes all its fields for "
        f"0. With failOnDataLoss=false there are no rows"
    )


def _group(group: SubscriptionGroupConfig) -> Row:
    """Return a group's row: each column is the field of that name, null if the file lacks it."""
    row: Row = {"group_name": group.group_name}
    for column in VIEWS["subscription_groups"].columns[1:-1]:
        first, *others = column.name.split("_")
        member = first + "".join(map(str.capitalize, others))
        value = getattr(group, column.name) if member in group.given else None
        row[column.name] = list(value.items()) if isinstance(value, dict) else value
    return row
