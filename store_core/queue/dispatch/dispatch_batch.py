# SPDX-License-Identifier: Apache-2.0
"""What queues and index need of records: of one, and of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.format.java import hash_code, positive_hash
from store_core.format.layout import TRANSACTION_MASK, TransactionType
from store_core.format.properties import INNER_MULTI_DISPATCH, TAGS, split_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt


class QueueNumbering:
    """Mapping between queues (topic and queue id) and numbers.

    * `queues`: Queues with the first numbers; each once.

    * `queues`: By number.

    >>> numbers = QueueNumbering([("orders", 0)])
    >>> numbers.number(("orders", 1)), numbers.number(("orders", 0))
    (1, 0)
    """

    def __init__(self, queues: Iterable[tuple[str, int]] = ()) -> None:
        self.queues = list(queues)
        self._numbers = {queue: number for number, queue in enumerate(self.queues)}

    def __len__(self) -> int:
        """Count the queues."""
        return len(self.queues)

    def __contains__(self, queue: object) -> bool:
        """Return whether a queue has a number."""
        return queue in self._numbers

    def number(self, queue: tuple[str, int]) -> int:
        """Return the number of a queue; assign the next one if it has none yet."""
        number = self._numbers.setdefault(queue, len(self.queues))
        if number == len(self.queues):
            self.queues.append(queue)
        return number


INDEX_TAG_PREFIX: Final = "T#"
"""What stands before tags in the key index (RocketMQ 5.4: ``MessageConst.INDEX_TAG_TYPE``)."""


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """One record as the dispatchers see it (RocketMQ: ``DispatchRequest``).

    * `keys`, `unique_key`: Properties KEYS and UNIQ_KEY.
    * `message_base_offset`, `batch_size`: Its first queue index and number of messages: INNER_BASE and INNER_NUM for an
      inner batch, else the queue offset and 1.
    """

    topic: str
    queue_id: int
    physical_offset: int  # the record's own field, which may differ from where it lies; bytes
    message_size: int  # bytes of the record
    tags_code: int  # hash of TAGS; for a delayed message its due time, ms
    store_timestamp: int  # ms since 1970
    consume_queue_offset: int  # its index in its queue
    keys: str | None = None
    unique_key: str | None = None
    sys_flag: int = 0
    prepared_transaction_offset: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    message_base_offset: int = -1
    batch_size: int = 1
    bit_map: bytes = b""  # which SQL92 consumers match, if that was computed (``ConsumeQueueExt``)

    @property
    def is_queued(self) -> bool:
        """Whether it gets a unit in a consume queue: every record does, unless prepared or rolled back."""
        kind = self.sys_flag & TRANSACTION_MASK
        return kind in (TransactionType.NOT_TYPE.value, TransactionType.COMMIT_TYPE.value)

    def index_keys(self, *, with_tags: bool) -> list[str]:
        """Return what the key index has of it after ``topic#``, in RocketMQ's order (``IndexService.buildIndex``).

        Nothing for the rollback of a transaction; otherwise UNIQ_KEY, the keys in KEYS, and, if the release indexes
        tags, the whole of TAGS.
        """
        if TransactionType.of(self.sys_flag) is TransactionType.ROLLBACK_TYPE:
            return []
        unique = [] if self.unique_key is None else [self.unique_key]
        tags = self.properties.get(TAGS) if with_tags else None
        return unique + split_keys(self.keys or "") + ([INDEX_TAG_PREFIX + tags] if tags else [])


@dataclass(frozen=True, slots=True)
class MessageCheck:
    """The result of ``CommitLog.checkMessageAndReturnSize`` for a place in the log."""

    is_success: bool
    size: int
    """The record's bytes. 0 with success: the file ends here with a blank record. On failure: -1, or the size that the
    record claims if its parts do not add up to it."""
    request: DispatchRequest | None = None  # only for a record
    parsed: int = 0
    """Bytes read before the check ended, 0 if a Java exception ended it; if RocketMQ skips a record of the wrong size,
    it continues right after these."""

    @property
    def is_record(self) -> bool:
        """Whether there is a record."""
        return self.is_success and self.size > 0

    @property
    def is_blank(self) -> bool:
        """Whether the file ends here with a blank record."""
        return self.is_success and self.size == 0


@dataclass(frozen=True, slots=True)
class IndexHashes:
    """Entries of a batch for the key index, in RocketMQ's order."""

    rows: npt.NDArray[np.int64]  # int64, shape (k,), ascending: the row of the batch that each key belongs to
    hashes: npt.NDArray[np.int32]  # int32, shape (k,), not negative: of ``topic#key``, as the index stores it


class DispatchBatch(ABC):
    """Requests of `n` records that follow one another in a file of the log.

    Every column has shape (n,) and equals the attribute of that name of each `DispatchRequest`. Columns are computed
    on first use.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Count the records."""

    @property
    @abstractmethod
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the records lie in the file, in bytes; `physical_offset` is only what they claim."""

    @property
    @abstractmethod
    def physical_offset(self) -> npt.NDArray[np.int64]:
        """The records' own field; bytes."""

    @property
    @abstractmethod
    def message_size(self) -> npt.NDArray[np.int64]:
        """Bytes of each record."""

    @property
    @abstractmethod
    def tags_code(self) -> npt.NDArray[np.int64]:
        """Hash of TAGS; for delayed messages their due time, ms."""

    @property
    @abstractmethod
    def store_timestamp(self) -> npt.NDArray[np.int64]:
        """Ms since 1970."""

    @property
    @abstractmethod
    def queue_offset(self) -> npt.NDArray[np.int64]:
        """Index in the queue (`DispatchRequest.consume_queue_offset`)."""

    @property
    @abstractmethod
    def sys_flag(self) -> npt.NDArray[np.int32]:
        """Bits; see `store_core.format.layout`."""

    @property
    @abstractmethod
    def message_base_offset(self) -> npt.NDArray[np.int64]:
        """First queue index: INNER_BASE for inner batches, else `queue_offset`."""

    @property
    @abstractmethod
    def batch_size(self) -> npt.NDArray[np.int16]:
        """Number of messages: INNER_NUM for inner batches, else 1."""

    @property
    @abstractmethod
    def queues(self) -> tuple[tuple[str, int], ...]:
        """Topic and id of the queues that occur, each once."""

    @property
    @abstractmethod
    def queue_codes(self) -> npt.NDArray[np.int32]:
        """Number of each record's queue in `queues`."""

    @property
    @abstractmethod
    def multi_dispatch_rows(self) -> npt.NDArray[np.int64]:
        """Rows with property INNER_MULTI_DISPATCH, ascending; `request` returns the property."""

    @abstractmethod
    def request(self, row: int) -> DispatchRequest:
        """Return the request of one row, properties included."""

    @abstractmethod
    def index_hashes(self, *, with_tags: bool) -> IndexHashes:
        """Hash what the key index has of each record, as `DispatchRequest.index_keys` returns it.

        Records that the last index file already has are included.
        """

    @property
    @abstractmethod
    def tagged_rows(self) -> npt.NDArray[np.int64]:
        """Ascending rows whose last entry in `index_hashes` is that of their tags, if these are asked for."""

    @cached_property
    def is_queued(self) -> npt.NDArray[np.bool_]:
        """Whether each record gets a unit in a consume queue: all do, unless prepared or rolled back."""
        kind = self.sys_flag & TRANSACTION_MASK
        queued: npt.NDArray[np.bool_] = (kind == TransactionType.NOT_TYPE.value) | (
            kind == TransactionType.COMMIT_TYPE.value
        )
        return queued

    def requests(self) -> Iterator[DispatchRequest]:
        """Yield the requests one by one."""
        return map(self.request, range(len(self)))


def _column(name: str, kind: type[np.signedinteger[Any]]) -> cached_property[npt.NDArray[Any]]:
    """Return a column of an attribute of the requests."""
    return cached_property(lambda batch: np.array([getattr(request, name) for request in batch.requests()], kind))


class RequestBatch(DispatchBatch):
    """A batch of existing requests.

    * `starts`: Where their records lie in the file; by default, where they claim to.
    """

    physical_offset = _column("physical_offset", np.int64)
    message_size = _column("message_size", np.int64)
    tags_code = _column("tags_code", np.int64)
    store_timestamp = _column("store_timestamp", np.int64)
    queue_offset = _column("consume_queue_offset", np.int64)
    sys_flag = _column("sys_flag", np.int32)
    message_base_offset = _column("message_base_offset", np.int64)
    batch_size = _column("batch_size", np.int16)

    def __init__(self, requests: Sequence[DispatchRequest], starts: Sequence[int] | None = None) -> None:
        self._requests = requests
        self._starts = starts

    def __len__(self) -> int:
        """Count the records."""
        return len(self._requests)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:  # noqa: D102 -- here and below: see DispatchBatch
        return self.physical_offset if self._starts is None else np.array(self._starts, np.int64)

    @cached_property
    def _numbered(self) -> tuple[tuple[tuple[str, int], ...], npt.NDArray[np.int32]]:
        numbers = QueueNumbering()
        codes = [numbers.number((request.topic, request.queue_id)) for request in self._requests]
        return tuple(numbers.queues), np.array(codes, np.int32)

    @property
    def queues(self) -> tuple[tuple[str, int], ...]:  # noqa: D102
        return self._numbered[0]

    @property
    def queue_codes(self) -> npt.NDArray[np.int32]:  # noqa: D102
        return self._numbered[1]

    @cached_property
    def multi_dispatch_rows(self) -> npt.NDArray[np.int64]:  # noqa: D102
        rows = [row for row, request in enumerate(self._requests) if INNER_MULTI_DISPATCH in request.properties]
        return np.array(rows, np.int64)

    def request(self, row: int) -> DispatchRequest:  # noqa: D102
        return self._requests[row]

    def index_hashes(self, *, with_tags: bool) -> IndexHashes:  # noqa: D102
        pairs = [
            (row, positive_hash(hash_code(f"{request.topic}#{key}")))
            for row, request in enumerate(self._requests)
            for key in request.index_keys(with_tags=with_tags)
        ]
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return IndexHashes(table[:, 0], table[:, 1].astype(np.int32))

    @property
    def tagged_rows(self) -> npt.NDArray[np.int64]:  # noqa: D102
        rows = [
            row
            for row, request in enumerate(self._requests)
            if request.index_keys(with_tags=True) != request.index_keys(with_tags=False)
        ]
        return np.array(rows, np.int64)
