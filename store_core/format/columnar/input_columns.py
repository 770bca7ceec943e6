# SPDX-License-Identifier: Apache-2.0
"""Columns of messages to be written: which a batch may have, and their rows as `Message` values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import InvalidOptionError
from store_core.format.columnar.arrow_slices import fixed_array
from store_core.format.message import Message
from store_core.format.properties import KEY_SEPARATOR
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    import numpy.typing as npt


INPUT_COLUMNS: Final = {
    "topic": "string, required",
    "body": "binary or string, required; null is rejected, unless `nullBody` says otherwise",
    "queue_id": "int; where it is missing or null, queues are taken in turn",
    "tags": "string: property TAGS",
    "keys": "list of strings, or one string: property KEYS",
    "properties": "map of strings: further properties",
    "flag": "int",
    "sys_flag": "int; the bits of the host widths are added",
    "born_timestamp": "timestamp with a time zone, or epoch ms; the store's clock if missing",
    "born_host": "string ip:port, IPv6 as [ip]:port",
    "store_host": "string ip:port; the store's own if missing",
    "reconsume_times": "int",
    "prepared_transaction_offset": "bigint",
    "delay_level": "int: property DELAY",
    "properties_string": "binary or string: the properties exactly as a client sent them",
}
"""The columns that a batch may have, and their content. Other names are refused."""

INT32_COLUMNS: Final = ("queue_id", "flag", "sys_flag", "reconsume_times", "delay_level")
UNKNOWN_HOST: Final = ("127.0.0.1", 0)
"""The born host of messages without one."""

_LONGEST_PORT: Final = 5
_LONGEST_SHOWN: Final = 100
"""Most characters of a text that an error quotes."""


def parse_host(text: str) -> tuple[str, int]:
    """Split ``ip:port`` or ``[ip]:port``.

    >>> parse_host("[2001:db8::1]:1000")
    ('2001:db8::1', 1000)
    """
    ip, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= _LONGEST_PORT):
        raise InvalidOptionError(f"a host is written ip:port or [ip]:port, found {text[:_LONGEST_SHOWN]!r}")
    return ip.removeprefix("[").removesuffix("]"), int(port)


class MessageColumns:
    """A batch of messages, checked column by column.

    * `batch`: With columns of `INPUT_COLUMNS`; names are matched case-insensitively.
    * `born_timestamp`: For messages without one, ms.
    * `first_row`: Number of the first row, for errors.
    * `born_host`: For messages without one.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        born_timestamp: int = 0,
        first_row: int = 0,
        born_host: tuple[str, int] = UNKNOWN_HOST,
    ) -> None:
        self.batch = batch
        self.born_host = born_host
        self.default_born_timestamp = born_timestamp
        self._integers: dict[str, npt.NDArray[np.int64]] = {}
        self._check_names([name.lower() for name in batch.schema.names])
        if self._raw("topic").null_count:
            row = pc.index(pc.is_null(self._raw("topic")), True).as_py()
            raise InvalidOptionError(f"row {first_row + row}: a message needs a topic")

    @staticmethod
    def _check_names(names: list[str]) -> None:
        for name in names:
            if name not in INPUT_COLUMNS:
                hint = did_you_mean(name, INPUT_COLUMNS) or f"the columns are {', '.join(INPUT_COLUMNS)}"
                raise InvalidOptionError(f"a message can't have a column {name!r}; {hint}")
            if names.count(name) > 1:
                raise InvalidOptionError(f"column {name!r} is there twice: rename or drop one")
        missing = [name for name in ("topic", "body") if name not in names]
        if missing:
            raise InvalidOptionError(f"messages need a column {missing[0]!r}; found {', '.join(names) or 'none'}")

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def has(self, name: str) -> bool:
        """Return whether a column is present."""
        return any(name == other.lower() for other in self.batch.schema.names)

    def _raw(self, name: str) -> pa.Array:
        index = next(i for i, other in enumerate(self.batch.schema.names) if other.lower() == name)
        return self.batch.column(index)

    def _cast(self, name: str, kind: pa.DataType) -> pa.Array:
        column = self._raw(name)
        try:
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = f"column {name!r} of type {column.type} can't be {kind}: {INPUT_COLUMNS[name]}. {error}"
            raise InvalidOptionError(reason) from error

    @cached_property
    def topics(self) -> pa.StringArray:
        """Column topic."""
        return self._cast("topic", pa.string())

    @cached_property
    def bodies(self) -> pa.BinaryArray:
        """Column body, with null as empty."""
        return self._without_nulls(self._bytes("body"))

    @cached_property
    def tags(self) -> pa.StringArray | None:
        """Column tags."""
        return self._cast("tags", pa.string()) if self.has("tags") else None

    @cached_property
    def keys(self) -> pa.StringArray | None:
        """Column keys, joined with blanks."""
        if not self.has("keys"):
            return None
        column = self._raw("keys")
        if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
            return self._cast("keys", pa.string())
        joined = pc.binary_join(self._cast("keys", pa.list_(pa.string())), KEY_SEPARATOR)
        if joined.null_count != column.null_count:
            raise InvalidOptionError("column 'keys' holds a list with a null in it")
        return joined

    @cached_property
    def properties(self) -> pa.MapArray | None:
        """Column properties."""
        return self._cast("properties", pa.map_(pa.string(), pa.string())) if self.has("properties") else None

    @cached_property
    def properties_strings(self) -> pa.BinaryArray | None:
        """Column properties_string."""
        return self._bytes("properties_string") if self.has("properties_string") else None

    @cached_property
    def delay_levels(self) -> pa.Int32Array | None:
        """Column delay_level."""
        return self._cast("delay_level", pa.int32()) if self.has("delay_level") else None

    def _bytes(self, name: str) -> pa.BinaryArray:
        column = self._raw(name)
        if pa.types.is_string(column.type):
            return column.view(pa.binary())
        return self._cast(name, pa.binary())

    @staticmethod
    def _without_nulls(column: pa.Array) -> pa.Array:
        return column.fill_null(b"") if column.null_count else column

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return an integer column as int64, with null and missing as 0."""
        if name not in self._integers:
            kind = pa.int32() if name in INT32_COLUMNS else pa.int64()
            given = self.has(name)
            self._integers[name] = self._numbers(self._cast(name, kind), 0) if given else np.zeros(len(self), np.int64)
        return self._integers[name]

    @cached_property
    def born_timestamps(self) -> npt.NDArray[np.int64]:
        """Column born_timestamp, in ms."""
        if not self.has("born_timestamp"):
            return np.full(len(self), self.default_born_timestamp, np.int64)
        column = self._raw("born_timestamp")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        else:
            column = self._cast("born_timestamp", pa.int64())
        return self._numbers(column, self.default_born_timestamp)

    @staticmethod
    def _numbers(column: pa.Array, default: int) -> npt.NDArray[np.int64]:
        filled = column.fill_null(default) if column.null_count else column
        return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)

    def hosts(self, name: str, default: tuple[str, int]) -> tuple[list[tuple[str, int]], pa.Array]:
        """Return the distinct hosts of a column, and for each row the number of its host."""
        if not self.has(name):
            return [default], fixed_array(np.zeros(len(self), np.int32))
        encoded = self._cast(name, pa.string()).dictionary_encode(null_encoding="encode")
        texts = encoded.dictionary.to_pylist()
        return [default if text is None else parse_host(text) for text in texts], encoded.indices

    def message(self, row: int) -> Message:
        """Return one row as a message, for the scalar encoder, which is the definition."""
        queue_id, flag, sys_flag, times = (int(self.integers(name)[row]) for name in INT32_COLUMNS[:4])
        return Message(
            self.topics[row].as_py(),
            self.bodies[row].as_py(),
            queue_id,
            tags=self.tags[row].as_py() if self.tags is not None else None,
            keys=self.keys[row].as_py() if self.keys is not None else None,
            properties=self._property_dict(row),
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=int(self.born_timestamps[row]),
            born_host=self._host("born_host", row) or self.born_host,
            store_host=self._host("store_host", row),
            reconsume_times=times,
            prepared_transaction_offset=int(self.integers("prepared_transaction_offset")[row]),
            delay_level=self.delay_levels[row].as_py() if self.delay_levels is not None else None,
            properties_string=self.properties_strings[row].as_py() if self.properties_strings is not None else None,
        )

    def _property_dict(self, row: int) -> dict[str, str | None] | None:
        pairs = None if self.properties is None else self.properties[row].as_py()
        return None if pairs is None else dict(pairs)

    def _host(self, name: str, row: int) -> tuple[str, int] | None:
        text = self._raw(name)[row].as_py() if self.has(name) else None
        return None if text is None else parse_host(text)
