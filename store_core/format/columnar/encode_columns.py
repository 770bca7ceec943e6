# SPDX-License-Identifier: Apache-2.0
"""Columns of bytes that are joined into encoded records, among them the properties strings.

Rows with the same names in the same order share one order of the Java map, which is computed once for them. Nearly
always that is one group, the whole batch. Rows in small groups, and rows with anything unusual, are left to the scalar
encoder, which is the definition of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.arrow_slices import table_rows
from store_core.format.columnar.spans import body_crcs
from store_core.format.java import hash_map_capacity, hash_map_order
from store_core.format.layout import HOST_V6, head_dtype
from store_core.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_NUM,
    KEYS,
    PROPERTY_CRC,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
)
from store_core.format.record.delayed import TIMERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.format.columnar.input_columns import MessageColumns
    from store_core.format.record.encode import EncodeRules


Part: TypeAlias = "bytes | pa.Array"

HeadValue: TypeAlias = "int | npt.NDArray[np.integer] | HostColumn"


def item_lengths(items: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return each item's length in a binary or string array, in bytes; int32, shape (n,). Undefined for null."""
    return np.diff(item_borders(items))


def item_borders(items: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return where each item begins in the array's data, and where the last one ends; int32, shape (n + 1,)."""
    offsets = items.buffers()[1]
    if offsets is None or not len(items):
        return np.zeros(len(items) + 1, np.int32)
    return np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1]


def in_row_order(pieces: Sequence[tuple[npt.NDArray[np.int64], pa.Array]]) -> pa.Array:
    """Return the items of groups of rows in the order of the rows."""
    rows = np.concatenate([rows for rows, _ in pieces])
    return pa.concat_arrays([items for _, items in pieces]).take(pa.array(np.argsort(rows)))


def join_items(parts: Sequence[Part]) -> pa.BinaryArray:
    """Join columns and constants row by row; at least one part is a column."""
    constants = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in merge_constants(parts)]
    return pc.binary_join_element_wise(*constants, pa.scalar(b"", pa.binary()))


def merge_constants(parts: Sequence[Part]) -> list[Part]:
    """Merge consecutive constants and drop empty ones, since each part costs time in every row."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        elif not isinstance(part, bytes) or part:
            merged.append(part)
    return merged


def lengths_before(lengths: npt.NDArray[np.int64], parts: Sequence[Part]) -> list[Part]:
    """Return parts preceded by their two-byte length; a leading constant is merged into the same items."""
    merged = merge_constants(parts)
    constant = merged.pop(0) if merged and isinstance(merged[0], bytes) else b""
    items = np.empty(lengths.size, [("length", ">i2"), ("constant", "u1", (len(constant),))])
    items["length"] = lengths
    items["constant"] = np.frombuffer(constant, np.uint8)
    return [table_rows(items), *merged]


def head_items(values: Mapping[str, HeadValue], v6_bits: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the heads of records.

    * `values`: Field name to one value for all records, or a column of shape (n,); a host is a `HostColumn`. Other
      fields are 0.
    * `v6_bits`: uint8, shape (n,): host bits of each sys_flag.
    """
    distinct = np.flatnonzero(np.bincount(v6_bits)).tolist()
    if len(distinct) <= 1:
        return table_rows(_heads(values, None, sum(distinct), v6_bits.size))
    groups = [(np.flatnonzero(v6_bits == bits), bits) for bits in distinct]
    return in_row_order([(rows, table_rows(_heads(values, rows, bits, rows.size))) for rows, bits in groups])


def _heads(
    values: Mapping[str, HeadValue], rows: npt.NDArray[np.int64] | None, v6_bits: int, count: int
) -> npt.NDArray[np.void]:
    """Return heads of one width: first the shared values, written at once, then the columns."""
    kind = head_dtype(v6_bits)
    shared = np.zeros(1, kind)
    for name, value in values.items():
        if isinstance(value, int):
            shared[name] = value
        elif isinstance(value, HostColumn) and len(value.packed) == 1:
            shared[name] = value.items(None, kind[name])
    heads = np.empty(count, f"V{kind.itemsize}")
    heads[:] = shared.view(heads.dtype)
    fields = heads.view(kind)
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            fields[name] = value if rows is None else value[rows]
        elif isinstance(value, HostColumn) and len(value.packed) > 1:
            fields[name] = value.items(rows, kind[name])
    return fields


@dataclass(frozen=True, slots=True)
class HostColumn:
    """The distinct packed hosts of a column, and for each row the number of its host."""

    packed: tuple[bytes, ...]  # 8 bytes each, or 20 for IPv6
    index: npt.NDArray[np.int32]  # int32, shape (n,)

    @property
    def is_v6(self) -> npt.NDArray[np.bool_]:
        """Which rows have an IPv6 host; bool, shape (n,)."""
        wide = np.array([len(host) == HOST_V6.itemsize for host in self.packed], bool)
        return wide[self.index]

    def items(self, rows: npt.NDArray[np.int64] | None, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """Return the hosts of some rows, all of the width of `kind`; a single one if there is only one."""
        cut = [host[: kind.itemsize].ljust(kind.itemsize, b"\0") for host in self.packed]
        table = np.frombuffer(b"".join(cut), kind)
        if table.size == 1:
            return table
        return table[self.index if rows is None else self.index[rows]]


def item_crcs(items: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the checksum of each item, as `store_core.format.record.scan.body_crc` does for one; int64, shape (n,)."""
    borders = item_borders(items).astype(np.int64)
    raw = np.frombuffer(items.buffers()[2] or b"", np.uint8)
    return body_crcs(raw, borders[:-1], borders[1:])


_SMALL_GROUP: Final = 8
"""Number of rows below which a group costs more than its rows one by one."""

_MANY_PAIRS: Final = 512
_WHOLE_STRING: Final = "\x02"
"""Name of the source that holds the whole properties string; no property can have this name."""

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class PropertyGroup:
    """Rows whose properties are joined together."""

    rows: npt.NDArray[np.int64] | None  # int64, ascending; None means all rows
    parts: tuple[Part, ...]
    """Constants, and arrays with one item per row of the group; joined they are the properties fields."""


@dataclass(frozen=True, slots=True)
class DelayedRows:
    """The delayed rows of a batch."""

    is_delayed: npt.NDArray[np.bool_]  # bool, shape (n,): rows that go to the schedule topic
    levels: pa.StringArray  # property DELAY, clamped for these rows; null for rows without one
    queue_ids: pa.StringArray  # property REAL_QID


@dataclass(frozen=True, slots=True)
class _Source:
    """A column that holds at most one property per row."""

    name: str
    values: pa.Array
    present: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _FlatMaps:
    """The property maps of all rows, flattened: row i has ``counts[i]`` pairs from ``starts[i]`` on.

    If all rows repeat the first row's names (`is_uniform`), `codes` are only those of the first row.
    """

    names: list[str]
    codes: npt.NDArray[np.int64]
    values: pa.Array
    starts: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    is_uniform: bool = False

    @classmethod
    def of(cls, column: pa.MapArray | None, rows: int) -> _FlatMaps:
        if column is None:
            nothing = np.zeros(0, np.int64)
            return cls([], nothing, pa.array([], pa.string()), np.zeros(rows, np.int64), np.zeros(rows, np.int64))
        offsets = np.asarray(column.offsets, np.int64)
        counts = np.diff(offsets)
        if column.null_count:
            counts[np.asarray(column.is_null())] = 0
        names = _repeated_names(column, counts)
        if names is not None:
            values = column.items.slice(offsets[0], offsets[-1] - offsets[0])
            return cls(names, np.arange(len(names)), values, offsets[:-1] - offsets[0], counts, is_uniform=True)
        encoded = column.keys.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(encoded.dictionary.to_pylist(), codes, column.items, offsets[:-1], counts)

    def odd_rows(self, special_names: set[str]) -> npt.NDArray[np.bool_]:
        """Return which rows have a null value, a name with special rules, or too many names for a group."""
        special = [code for code, name in enumerate(self.names) if name in special_names]
        odd = self.counts > (0 if special and self.is_uniform else _MANY_PAIRS)
        if not special and not self.values.null_count:
            return odd
        strange = np.asarray(self.values.is_null(), bool)
        if special and not self.is_uniform:
            strange |= np.isin(self.codes, special)
        if strange.any():
            before = np.concatenate([[0], np.cumsum(strange)])
            odd |= before[self.starts + self.counts] > before[self.starts]
        return odd

    def signatures(self) -> npt.NDArray[np.uint64]:
        """Return a hash of each row's sequence of names; equal sequences have equal hashes, others rarely do."""
        result = self.counts.astype(np.uint64) * _ODD
        if self.is_uniform:
            return result
        for place in range(min(int(self.counts.max(initial=0)), _MANY_PAIRS)):
            rows = np.flatnonzero(self.counts > place)
            codes = self.codes[self.starts[rows] + place].astype(np.uint64)
            result[rows] = (result[rows] ^ (codes + np.uint64(1))) * _ODD
        return result

    def have_names_of(self, row: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which rows really have the same sequence of names as `row`."""
        same: npt.NDArray[np.bool_] = self.counts[rows] == self.counts[row]
        if self.is_uniform:
            return same
        for place in range(int(self.counts[row])):
            at = np.minimum(self.starts[rows] + place, max(self.codes.size - 1, 0))
            same &= self.codes[at] == self.codes[self.starts[row] + place]
        return same


def group_properties(
    columns: MessageColumns, rules: EncodeRules, delays: DelayedRows | None
) -> tuple[list[PropertyGroup], npt.NDArray[np.int64]]:
    """Group the rows of a batch by the names of their properties.

    * `delays`: None if delayed messages stay in their topics.

    Returns: int64, ascending: the rows in no group.
    """
    pairs = _FlatMaps.of(columns.properties, len(columns))
    sources = _sources(columns, delays)
    special = _special_names(rules, delays)
    odd = pairs.odd_rows(special | {_WHOLE_STRING}) | _odd_strings(columns, rules, special, delays)
    signatures = pairs.signatures()
    for number, source in enumerate(sources):
        signatures ^= source.present.astype(np.uint64) << np.uint64(number)
    groups, others = [], [np.flatnonzero(odd)]
    for members in _members(signatures, odd):
        first = int(members[0])
        alike = pairs.have_names_of(first, members) & _have_sources_of(sources, first, members)
        names = _names(sources, pairs, first)
        if len(set(names)) < len(names) or np.count_nonzero(alike) < min(_SMALL_GROUP, len(columns)):
            others.append(members)
            continue
        others.append(members[~alike])
        rows = None if alike.all() and members.size == len(columns) else members[alike]
        there = {source.name: source.values for source in sources if source.present[first]}
        groups.append(PropertyGroup(rows, _parts(there, pairs, rows, names, rules)))
    return groups, np.sort(np.concatenate(others))


def _special_names(rules: EncodeRules, delays: DelayedRows | None) -> set[str]:
    """Return the names that leave a row to the scalar encoder."""
    features = rules.features
    return {
        *([PROPERTY_CRC] if rules.append_property_crc else []),
        *([DELAY] if delays is not None else []),
        *(TIMERS if delays is not None and features.has_timer_messages else []),
        *([INNER_NUM] if features.has_inner_batches else []),
        *([INNER_MULTI_DISPATCH] if rules.enable_lmq else []),
    }


def _sources(columns: MessageColumns, delays: DelayedRows | None) -> list[_Source]:
    """Return the columns that hold properties, in the order in which they enter a Java map; the string is last."""
    given = [(TAGS, columns.tags), (KEYS, columns.keys)]
    if delays is None:
        levels = columns.delay_levels
        given.append((DELAY, None if levels is None else levels.cast(pa.string())))
    else:
        given.append((DELAY, delays.levels))
    sources = [_Source(name, values, _is_valid(values)) for name, values in given if values is not None]
    if delays is not None:
        sources.append(_Source(REAL_TOPIC, columns.topics, delays.is_delayed))
        sources.append(_Source(REAL_QID, delays.queue_ids, delays.is_delayed))
    strings = columns.properties_strings
    if strings is not None:
        sources.append(_Source(_WHOLE_STRING, strings, _is_valid(strings)))
    return sources


def _is_valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.is_valid(), bool)


def _odd_strings(
    columns: MessageColumns, rules: EncodeRules, special_names: set[str], delays: DelayedRows | None
) -> npt.NDArray[np.bool_]:
    """Return which rows have a properties string that must be parsed."""
    strings = columns.properties_strings
    odd = np.zeros(len(columns), bool)
    if strings is None:
        return odd
    given = strings.fill_null(b"") if strings.null_count else strings
    for name in _names_within(given, special_names):
        odd |= np.asarray(pc.match_substring(given, name), bool)
    if delays is not None:
        odd |= delays.is_delayed & _is_valid(strings)
    if rules.append_property_crc:
        odd |= ~np.asarray(pc.or_(pc.ends_with(given, "\x02"), pc.equal(given, b"")), bool)
    return odd


def _names_within(strings: pa.BinaryArray, names: set[str]) -> list[str]:
    """Return the names that occur anywhere: one search of all bytes is much faster than one per row."""
    borders, data = item_borders(strings), strings.buffers()[2]
    if data is None:
        return []
    content = np.frombuffer(data, np.uint8)[borders[0] : borders[-1]]
    absent: list[str] = []
    for name in sorted(names, key=len):
        if any(part in name for part in absent) or not _occurs(name.encode(), content):
            absent.append(name)
    return [name for name in names if name not in absent]


def _occurs(name: bytes, content: npt.NDArray[np.uint8]) -> bool:
    """Return whether a name occurs; searches for it only if its first and last byte occur at their distance."""
    width = len(name) - 1
    both = content[: max(content.size - width, 0)] == name[0]
    both &= content[width:] == name[width]
    return bool(both.any()) and name in content.tobytes()


def _members(signatures: npt.NDArray[np.uint64], odd: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """Split the rows by signature, each part ascending."""
    rows = np.flatnonzero(~odd)
    chosen = signatures[rows]
    if not rows.size or (chosen == chosen[0]).all():
        return [rows] if rows.size else []
    order = np.argsort(chosen, kind="stable")
    borders = np.flatnonzero(np.diff(chosen[order])) + 1
    return np.split(rows[order], borders)


def _have_sources_of(sources: list[_Source], row: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    same = np.ones(rows.size, bool)
    for source in sources:
        same &= source.present[rows] == source.present[row]
    return same


def _names(sources: list[_Source], pairs: _FlatMaps, row: int) -> list[str]:
    """Return the names of a row's properties in the order in which they enter a Java map."""
    there = [source.name for source in sources if source.present[row]]
    if _WHOLE_STRING in there:
        return [_WHOLE_STRING]
    start, count = 0 if pairs.is_uniform else int(pairs.starts[row]), int(pairs.counts[row])
    mapped = [pairs.names[code] for code in pairs.codes[start : start + count]]
    leading = [name for name in there if name in (TAGS, KEYS)]
    return leading + mapped + [name for name in there if name not in (TAGS, KEYS)]


def _parts(
    columns: dict[str, pa.Array],
    pairs: _FlatMaps,
    rows: npt.NDArray[np.int64] | None,
    names: list[str],
    rules: EncodeRules,
) -> tuple[Part, ...]:
    """Return constants and values, of columns and of the property map, in the order of the Java map."""
    places = {name: place for place, name in enumerate(name for name in names if name not in columns)}
    parts: list[Part] = []
    separator = b""
    for name in hash_map_order(tuple(names), hash_map_capacity(names)):
        if name in places:
            values = _mapped_values(pairs, rows, places[name])
        else:
            values = columns[name] if rows is None else columns[name].take(pa.array(rows))
        if name == _WHOLE_STRING:
            return (values,)
        parts += [separator + name.encode() + b"\x01", values.cast(pa.binary())]
        separator = b"\x02"
    return (*parts, separator) if parts and rules.features.ends_properties_with_separator else tuple(parts)


def _mapped_values(pairs: _FlatMaps, rows: npt.NDArray[np.int64] | None, place: int) -> pa.StringArray:
    if rows is None and pairs.is_uniform and len(pairs.names) == 1:
        return pairs.values
    starts = pairs.starts if rows is None else pairs.starts[rows]
    return pairs.values.take(pa.array(starts + place))


def _repeated_names(column: pa.MapArray, counts: npt.NDArray[np.int64]) -> list[str] | None:
    """Return the names of the first row if all rows have exactly these in the same order; else None."""
    rows, width = counts.size, int(counts[0]) if counts.size else 0
    if not width or (counts != width).any():
        return None
    keys = column.keys.slice(column.offsets[0].as_py(), rows * width)
    _, offsets, data = keys.buffers()
    borders = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + rows * width + 1]
    lengths = np.diff(borders).reshape(rows, width)
    if (lengths != lengths[0]).any():
        return None
    content = np.frombuffer(data or b"", np.uint8)[borders[0] : borders[-1]].reshape(rows, int(lengths[0].sum()))
    return None if (content != content[0]).any() else [key.as_py() for key in keys[:width]]
