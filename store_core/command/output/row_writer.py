# SPDX-License-Identifier: Apache-2.0
"""The interface of what writes rows in one format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowWriter"]


class RowWriter(Protocol):
    """Writes rows in one format to a stream that it does not close."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; text of them is handed on before this returns."""
        ...

    def close(self) -> None:
        """Write what ends the format."""
        ...
