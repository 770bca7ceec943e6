# SPDX-License-Identifier: Apache-2.0
"""What is kept of a store as values that can be written as JSON, and back: nothing in it is trusted to have its type.

Each function that reads raises `NotPlainError` for anything but what its counterpart makes.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from store_core.format.record.scan import StopReason
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.store.config.index_listing import ListedIndexFile
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.index_survey import IndexSurvey, Stretch
from store_core.store.read.lookup.survey import FileSurvey, Share, TilingSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy.typing as npt

    from store_core.store.read.lookup.survey import Span

__all__ = [
    "FACTS",
    "NotPlainError",
    "Plain",
    "array_of",
    "index_survey_of",
    "is_name",
    "name_of",
    "plain_array",
    "plain_index_survey",
    "plain_survey",
    "state_of",
    "survey_of",
]

Plain: TypeAlias = object
"""A value of JSON: None, a truth value, an integer, a float, a text, or a list of such."""

_WORD: Final = 2**64
_STATE_SIZE: Final = len(FileState._fields)


class NotPlainError(Exception):
    """A value is not what it was written as."""


# ------------------------------------------------------------------------------------------------------------- elements


def _items(value: Plain, count: int | None = None) -> list[Plain]:
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise NotPlainError
    return value


def _number(value: Plain) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_WORD < value < _WORD:
        raise NotPlainError
    return value


def _numbers(value: Plain, count: int | None = None) -> tuple[int, ...]:
    return tuple(map(_number, _items(value, count)))


def _span(value: Plain) -> Span:
    begin, end = _numbers(value, 2)
    return begin, end


def _text(value: Plain) -> str:
    if not isinstance(value, str):
        raise NotPlainError
    return value


def _flag(value: Plain) -> bool:
    if not isinstance(value, bool):
        raise NotPlainError
    return value


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unpacked(value: Plain) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise NotPlainError from None


def name_of(value: Plain) -> Hashable:
    """Return a name: JSON has lists where names have tuples."""
    if isinstance(value, list):
        return tuple(map(name_of, value))
    if value is None or isinstance(value, str | int | float):
        return value
    raise NotPlainError


def is_name(name: object) -> bool:
    """Return whether a name can be written: it has nothing but tuples, texts, numbers and None."""
    return all(map(is_name, name)) if isinstance(name, tuple) else name is None or type(name) in {str, int, float, bool}


def state_of(value: Plain) -> FileState | None:
    """Return the state of a file; None is that of one that is not there."""
    return None if value is None else FileState(*_numbers(value, _STATE_SIZE))


def plain_array(found: npt.NDArray[np.int64]) -> Plain:
    """Return integers as their shape and their bytes."""
    return [list(found.shape), _packed(np.ascontiguousarray(found, "<i8").tobytes())]


def array_of(value: Plain) -> npt.NDArray[np.int64]:
    """Return what `plain_array` wrote."""
    shape, data = _items(value, 2)
    found = np.frombuffer(_part(_unpacked(data), 8), "<i8").astype(np.int64)
    sizes = _numbers(shape)
    if min(sizes, default=-1) < 0 or np.prod(sizes, dtype=object) != found.size:
        raise NotPlainError
    return found.reshape(sizes)


def _part(data: bytes, size: int) -> bytes:
    if len(data) % size:
        raise NotPlainError
    return data


# --------------------------------------------------------------------------------------------------------- queue files


def plain_survey(found: FileSurvey) -> Plain:
    """Return what a file of a queue says."""
    shares = [[*span, each.balance, each.starts, each.last_start, each.last_end] for span, each in found.shares.items()]
    counts = [found.last_index, found.count, found.lowest]
    covered = [[*span, lead] for span, lead in found.covered]
    return [found.before, shares, found.first, found.last, counts, found.after, found.is_ended, covered]


def survey_of(value: Plain) -> FileSurvey:
    """Return what `plain_survey` wrote."""
    before, shares, first, last, counts, after, is_ended, covered = _items(value, 8)
    found = {}
    for share in _items(shares):
        begin, end, *rest = _numbers(share, 6)
        found[begin, end] = Share(*rest)
    last_index, count, lowest = _numbers(counts, 3)
    leads = (_numbers(each, 3) for each in _items(covered))
    return FileSurvey(
        before=_span(before),
        shares=found,
        first=_edge(first),
        last=_edge(last),
        last_index=last_index,
        count=count,
        after=_span(after),
        is_ended=_flag(is_ended),
        lowest=lowest,
        covered=tuple(((begin, end), lead) for begin, end, lead in leads),
    )


def _edge(value: Plain) -> tuple[int, int, int] | None:
    if value is None:
        return None
    start, size, index = _numbers(value, 3)
    return start, size, index


# --------------------------------------------------------------------------------------------------------- index files


def plain_index_survey(found: IndexSurvey) -> Plain:
    """Return what a file of the index says."""
    file = found.file
    listed = [str(file.path), file.size, _packed(file.header.to_bytes()), file.slots, file.most_entries]
    stretches = [
        [*span, each.first, each.last, each.digest, each.begin, each.stop] for span, each in found.stretches.items()
    ]
    return [listed, stretches, [found.first, found.last], _packed(found.samples.tobytes()), found.covered]


def index_survey_of(value: Plain) -> IndexSurvey:
    """Return what `plain_index_survey` wrote."""
    listed, stretches, edges, samples, covered = _items(value, 5)
    path, size, header, slots, most_entries = _items(listed, 5)
    head = _unpacked(header)
    if len(head) != INDEX_HEADER_SIZE:
        raise NotPlainError
    counts = _number(size), IndexHeader.from_bytes(head), _number(slots), _number(most_entries)
    found = {}
    for stretch in _items(stretches):
        begin, end, *rest = _numbers(stretch, 7)
        found[begin, end] = Stretch(*rest)
    entries = np.frombuffer(_part(_unpacked(samples), INDEX_DTYPE.itemsize), INDEX_DTYPE)
    spans = tuple(map(_span, _items(covered)))
    return IndexSurvey(ListedIndexFile(Path(_text(path)), *counts), found, *_span(edges), entries, spans)


# --------------------------------------------------------------------------------------------------------------- facts


def _place(value: Plain) -> Plain:
    return _numbers(value, 2)


def _end(value: Plain) -> Plain:
    reason, position, stale, covered, tail_end, is_unfinished, is_foreign = _items(value, 7)
    if _text(reason) not in StopReason.__members__:
        raise NotPlainError
    numbers = map(_number, (position, stale, covered, tail_end))
    return reason, *numbers, _flag(is_unfinished), _flag(is_foreign)


def _starts(value: Plain) -> Plain:
    if value is None:
        return None
    starts = list(_numbers(value))
    if any(not 0 <= start < _WORD // 2 for start in starts):
        raise NotPlainError
    return starts


def _summary(value: Plain) -> Plain:
    units, shares, topics, notes = _items(value, 4)
    texts = [list(map(_text, _items(each))) for each in (topics, notes)]
    return TilingSummary(_count(units), _count(shares), *texts)


def _count(value: Plain) -> int:
    count = _number(value)
    if count < 0:
        raise NotPlainError
    return count


FACTS: Final[dict[str, Callable[[Plain], Plain]]] = {
    "known end": _place,
    "end": _end,
    "release": lambda value: None if value is None else _text(value),
    "others": _starts,
    "wrong queues": lambda value: list(_numbers(value)),
    "cost of queues": lambda value: None if value is None else _count(value),
    "tiling summary": _summary,
}
"""The facts that can be written, by the first word of their names, and what reads their values."""
