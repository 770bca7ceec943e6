# SPDX-License-Identifier: Apache-2.0
"""Selecting the rows that the options request, from a few columns, before the others are decoded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.arrow_slices import fixed_array, numbers, texts, true_mask
from store_core.format.filter.sql92_columns import evaluate_maps
from store_core.format.filter.sql92_expression import failure_of
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from store_core.format.words import counted
from store_core.store.read.option_values import checked_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from store_core.format.columnar.records import Records
    from store_core.format.filter.message_selector import MessageSelector
    from store_core.format.filter.sql92_expression import Sql92Expression
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.stored_topics import TopicWatch

    _Mask = npt.NDArray[np.bool_]
    _Predicate = Callable[[pa.RecordBatch], _Mask]

__all__ = ["RowFilter", "has_message_named"]

_UNIQUE_KEYS: Final = ("unique_key", "uniq_msg_id")
_FIRST: Final = np.iinfo(np.int64).min
_LAST: Final = np.iinfo(np.int64).max


class RowFilter:
    """Filters rows by topic, queue, tag, key, id, position, queue offset, and a consumer's filter.

    * `watch`: Is told the topics of all rows examined.

    * `columns`: Columns that `select` needs; empty if every row is requested.
    * `error_count`: Rows that pass all other filters, but on which the consumer's SQL92 expression failed; they are
      left out.
    * `first_error`: Where and why the first of these failed; empty if there is none.
    """

    def __init__(self, options: ReadOptions, watch: TopicWatch | None = None) -> None:
        selector = options.selector
        self._rules = tuple(_rules(options, selector))
        self._sql = None if selector is None else selector.sql
        names = [name for names, _ in self._rules for name in names]
        self.columns = tuple(dict.fromkeys([*names, "properties"] if self._sql else names))
        self.error_count = 0
        self.first_error = ""
        self._watch = watch

    def select(self, batch: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> _Mask:
        """Return a mask of the requested rows, shape (rows,).

        * `batch`: Rows with the filter's columns.
        * `offsets`: int64, shape (rows,): physical offsets of the rows.
        """
        mask = np.ones(batch.num_rows, np.bool_)
        if self._watch is not None and self._watch.unseen:
            self._watch.see(batch.column("topic"))
        for _, rule in self._rules:
            mask &= rule(batch)
        return mask if self._sql is None else self._evaluated(self._sql, batch, mask, offsets)

    def error_text(self, where: str) -> str:
        """Return a message about the rows that the expression failed on."""
        return (
            f"the filter failed on {counted(self.error_count, 'message')} {where}, which therefore do not match, as in "
            f"RocketMQ's broker; the first "
            f"is {self.first_error}"
        )

    def _evaluated(
        self, sql: Sql92Expression, batch: pa.RecordBatch, mask: _Mask, offsets: npt.NDArray[np.int64]
    ) -> _Mask:
        """Evaluate an expression on the rows that pass all other rules."""
        properties = batch.column("properties")
        verdicts = evaluate_maps(sql, properties if mask.all() else properties.filter(pa.array(mask)))
        self.error_count += verdicts.error_count
        if verdicts.error_count and not self.first_error:
            row = int(np.flatnonzero(mask)[verdicts.first_error])
            reason = failure_of(sql, dict(properties[row].as_py() or ()))
            self.first_error = f"at offset {offsets[row]}, {reason}"
        mask[mask] = verdicts.matches
        return mask


def _rules(options: ReadOptions, selector: MessageSelector | None) -> Iterator[tuple[tuple[str, ...], _Predicate]]:
    """Yield each rule with the columns it needs."""
    if options.topic:
        yield ("topic",), _one_of("topic", texts([checked_text("topic", topic) for topic in options.topic]))
    if options.topics_pattern is not None:
        yield ("topic",), _topic_matches(re.compile(options.topics_pattern))
    if options.queue_id:
        yield ("queue_id",), _one_of("queue_id", fixed_array(np.array(options.queue_id, np.int32)))
    if options.tag:
        yield ("tags",), _one_of("tags", texts(options.tag))
    yield from _identity_rules(options)
    if selector is not None:
        yield ("sys_flag",), _is_queued
        if not selector.is_all and selector.sql is None:
            yield ("tags",), _one_of("tags", texts(sorted(selector.tags.tags)))
    if options.start.queues or options.end.queues:
        yield ("topic", "queue_id", "queue_offset"), _QueueBounds(options)


def _identity_rules(options: ReadOptions) -> Iterator[tuple[tuple[str, ...], _Predicate]]:
    """Yield the rules that name single messages."""
    if options.key is not None:
        yield ("keys", *_UNIQUE_KEYS), _has_key(options.key)
    if options.unique_key is not None:
        yield _UNIQUE_KEYS, _has_unique_key(options.unique_key)
    if options.msg_id is not None:
        yield ("msg_id",), _one_of("msg_id", texts([options.msg_id]))
    if options.physical_offset is not None:
        yield (
            ("physical_offset",),
            _one_of("physical_offset", fixed_array(np.array([options.physical_offset], np.int64))),
        )


def _one_of(column: str, values: pa.Array) -> _Predicate:
    """Make the rule that a column has one of some values; null never matches."""
    return lambda batch: true_mask(pc.is_in(batch.column(column), value_set=values))


def _is_queued(batch: pa.RecordBatch) -> _Mask:
    """Return which records are in a queue, the only ones a consumer gets: not prepared and rolled-back ones."""
    kinds = numbers(batch.column("sys_flag")) & TRANSACTION_MASK
    mask: _Mask = np.isin(kinds, [kind.value for kind in TransactionType if kind.is_queued])
    return mask


def _topic_matches(pattern: re.Pattern[str]) -> _Predicate:
    """Make the rule that a pattern matches the whole topic; each distinct topic is tested once per batch."""

    def rule(batch: pa.RecordBatch) -> _Mask:
        topics = batch.column("topic").dictionary_encode()
        matches = [pattern.fullmatch(topic) is not None for topic in topics.dictionary.to_pylist()]
        mask: _Mask = np.array(matches, np.bool_)[numbers(topics.indices)]
        return mask

    return rule


def _has_key(key: str) -> _Predicate:
    """Make the rule that a message has a key, as RocketMQ indexes keys: each word of KEYS, and UNIQ_KEY."""
    unique, (wanted,) = _has_unique_key(key), texts([key])

    def rule(batch: pa.RecordBatch) -> _Mask:
        mask = unique(batch)
        keys = batch.column("keys")
        hits = true_mask(pc.equal(pc.list_flatten(keys), wanted))
        mask[numbers(pc.list_parent_indices(keys))[hits]] = True
        return mask

    return rule


def _has_unique_key(key: str) -> _Predicate:
    """Make the rule that a message has a key as UNIQ_KEY: as the last one, or the first, in a client's batch."""
    (wanted,) = texts([key])
    return lambda batch: np.any([true_mask(pc.equal(batch.column(name), wanted)) for name in _UNIQUE_KEYS], axis=0)


def has_message_named(records: Records, options: ReadOptions) -> bool:
    """Return whether one of some sound records is named by the options that name single messages."""
    for columns, rule in _identity_rules(options):
        arrays = [records.column(name) for name in columns]
        if rule(pa.RecordBatch.from_arrays(arrays, list(columns))).any():
            return True
    return False


class _QueueBounds:
    """The rule that queue offsets lie within the bounds of each named queue, both ends inclusive."""

    def __init__(self, options: ReadOptions) -> None:
        self._bounds: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, queue, offset in options.start.queues:
            self._bounds.setdefault(topic, {})[queue] = (offset, _LAST)
        for topic, queue, offset in options.end.queues:
            queues = self._bounds.setdefault(topic, {})
            queues[queue] = (queues.get(queue, (_FIRST, _LAST))[0], offset - 1)

    def __call__(self, batch: pa.RecordBatch) -> _Mask:
        topics = batch.column("topic").dictionary_encode()
        codes = numbers(topics.indices)
        mask = np.ones(batch.num_rows, np.bool_)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            if topic in self._bounds:
                rows = np.flatnonzero(codes == code)
                mask[rows] = self._within(topic, batch, rows)
        return mask

    def _within(self, topic: str, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> _Mask:
        queue_ids = numbers(batch.column("queue_id"))[rows]
        offsets = numbers(batch.column("queue_offset"))[rows]
        mask = np.ones(rows.size, np.bool_)
        for queue, (first, last) in self._bounds[topic].items():
            mask &= (queue_ids != queue) | ((offsets >= first) & (offsets <= last))
        return mask
