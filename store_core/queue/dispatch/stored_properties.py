# SPDX-License-Identifier: Apache-2.0
"""Properties of many records as dispatching needs them, read from the bytes property by property."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.format.columnar.arrow_slices import binary_parts, take_slices
from store_core.format.columnar.byte_words import rows_with_byte
from store_core.format.columnar.java_hashes import hash_slices, positive_hashes
from store_core.format.columnar.property_columns import split_key_column
from store_core.format.columnar.property_spans import PropertyFinder, PropertySpans
from store_core.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY, PropertyParser
from store_core.format.property_string import DELAY, INNER_BASE, INNER_MULTI_DISPATCH, INNER_NUM
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.dispatch_request import INDEX_TAG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.format.releases.release import Release

__all__ = ["StoredProperties", "property_finder"]

_NAMES: Final = (TAGS, KEYS, UNIQ_KEY, DELAY, INNER_NUM, INNER_BASE, INNER_MULTI_DISPATCH)
_BLANK: Final = ord(KEY_SEPARATOR)
_HASH_FACTOR: Final = np.int32(31)
"""Of Java's ``String.hashCode``."""


def property_finder(release: Release) -> PropertyFinder:
    """Return a finder of the properties that dispatching needs, by a release's rules."""
    return PropertyFinder(_NAMES, PropertyParser.of_release(release))


class StoredProperties:
    """Properties of many records.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous.
    starts, stops : numpy.ndarray
        int64, shape (n,): the property strings ``raw[starts[i]:stops[i]]``, ascending without overlap.
    finder : PropertyFinder
        As returned by `property_finder`.
    """

    def __init__(
        self,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        finder: PropertyFinder,
    ) -> None:
        self._raw = raw
        self._starts = starts
        self._stops = stops
        self._finder = finder

    @cached_property
    def _found(self) -> list[PropertySpans | None]:
        return self._finder.find(self._raw, self._starts, self._stops)

    def span(self, name: str) -> PropertySpans:
        """Return where a property lies; an empty span if it is missing."""
        return self._found[_NAMES.index(name)] or PropertySpans(self._starts, self._starts)

    def rows_with(self, *names: str) -> npt.NDArray[np.int64]:
        """Return the rows that have all of these properties, ascending."""
        spans = [self._found[_NAMES.index(name)] for name in names]
        if None in spans:
            return np.empty(0, np.int64)
        return np.flatnonzero(np.logical_and.reduce([found.present for found in spans if found is not None]))

    def tags_hashes(self) -> npt.NDArray[np.int64]:
        """Hash TAGS; int64, shape (n,), 0 if missing."""
        tags = self.span(TAGS)
        return hash_slices(self._raw, tags.starts, tags.stops).astype(np.int64)

    def index_hashes(
        self,
        before: npt.NDArray[np.int32],
        is_indexed: npt.NDArray[np.bool_] | np.bool_ = np.True_,
        *,
        with_tags: bool,
    ) -> IndexHashes:
        """Hash the keys: UNIQ_KEY, then KEYS split at blanks, then TAGS.

        Parameters
        ----------
        before : numpy.ndarray
            int32, shape (n,): hash of what comes before each record's keys.
        is_indexed : numpy.ndarray
            bool, shape (n,): False for records whose keys are skipped.
        with_tags : bool
            Whether tags are indexed.
        """
        unique, keys = self.span(UNIQ_KEY), self.span(KEYS)
        unique_rows = np.flatnonzero(unique.present & is_indexed)
        unique_hashes = hash_slices(
            self._raw, unique.starts.take(unique_rows), unique.stops.take(unique_rows), before.take(unique_rows)
        )
        key_rows, key_hashes = self._token_hashes(keys, np.flatnonzero(keys.present & is_indexed), before)
        kinds = [(unique_rows, unique_hashes), (key_rows, key_hashes)]
        if with_tags:
            kinds.append(self._tag_hashes(is_indexed, before))
        return _merged(kinds)

    def tagged_rows(self, is_indexed: npt.NDArray[np.bool_] | np.bool_ = np.True_) -> npt.NDArray[np.int64]:
        """Return the rows, ascending, that have tags to be indexed; `is_indexed` as for `index_hashes`."""
        tags = self.span(TAGS)
        return np.flatnonzero((tags.starts < tags.stops) & is_indexed)

    def _tag_hashes(
        self, is_indexed: npt.NDArray[np.bool_] | np.bool_, before: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Hash tags that are not empty; return the row and the hash of each."""
        tags, rows = self.span(TAGS), self.tagged_rows(is_indexed)
        prefixed = before.take(rows)
        for character in INDEX_TAG_PREFIX:
            prefixed = prefixed * _HASH_FACTOR + np.int32(ord(character))  # wraps, as in Java
        return rows, hash_slices(self._raw, tags.starts.take(rows), tags.stops.take(rows), prefixed)

    def _token_hashes(
        self, keys: PropertySpans, rows: npt.NDArray[np.int64], before: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Split KEYS of some rows at blanks; return the row and the hash of each key."""
        raw, starts, stops = self._raw, keys.starts.take(rows), keys.stops.take(rows)
        if not rows_with_byte(raw, stops, stops - starts, _BLANK).size:
            return rows, hash_slices(raw, starts, stops, before.take(rows))
        packed = take_slices(raw, starts, stops)
        lists = split_key_column(pa.Array.from_buffers(pa.string(), len(packed), packed.buffers()))
        bounds = np.frombuffer(lists.buffers()[1], np.int32)[: rows.size + 1]
        offsets, data, _ = binary_parts(lists.values)
        owners = np.repeat(rows, np.diff(bounds))
        ends = offsets.astype(np.int64)
        return owners, hash_slices(data, ends[:-1], ends[1:], before.take(owners))


def _merged(kinds: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]) -> IndexHashes:
    """Merge all kinds of keys in row order, a row's in the order of kinds; a hash that Java can't negate becomes 0."""
    first, _ = kinds[0]
    if all(np.array_equal(first, rows) for rows, _ in kinds[1:]):
        rows, hashes = np.repeat(first, len(kinds)), np.empty(len(kinds) * first.size, np.int32)
        for number, (_, part) in enumerate(kinds):
            hashes[number :: len(kinds)] = part
    else:
        rows, hashes = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, hashes = rows[order], hashes[order]
    return IndexHashes(rows, positive_hashes(hashes))
