# SPDX-License-Identifier: Apache-2.0
"""Puts to a store: messages are checked, passed to the log, and counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from store_core.format.message import Message, PutMessageStatus
from store_core.format.record.decode import client_batch
from store_core.store.put.bulk_append import AppendBatchResult
from store_core.store.put.put_checks import PutChecks
from store_core.store.put.put_result import PutMessageResult

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from store_core.format.columnar.encoded_batch import EncodedBatch
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.put.put_checks import PutMessageHook, StoreState

__all__ = ["PutService"]

_LOG: Final = logging.getLogger("store_core")
_SLOW_MS: Final = 500


class PutService:
    """What `DefaultMessageStore` does before and after the commit log puts.

    * `hooks`: Called on each message of a 5.3 store, in this order, until one refuses it.
    """

    def __init__(self, commit_log: CommitLog, state: StoreState, hooks: list[PutMessageHook]) -> None:
        self._commit_log = commit_log
        self._config = commit_log.config
        self._checks_by_hooks = commit_log.config.features.checks_puts_by_hooks
        self._state = state
        self._hooks = hooks
        self._checks = PutChecks(commit_log.config, state)

    def put(self, message: Message) -> PutMessageResult | Future[PutMessageResult]:
        """Put a message; return a plain result, not a future, if it is known at once."""
        checked = self._checked(message, is_batch=False)
        if isinstance(checked, PutMessageStatus):
            return PutMessageResult(checked)
        begin = self._state.now_ms()
        return self._timed(self._commit_log.put(checked), begin, message.topic)

    def put_batch(self, messages: Sequence[Message] | Message) -> PutMessageResult | Future[PutMessageResult]:
        """Put a batch, like `put`."""
        batch = messages if isinstance(messages, Message) else client_batch(messages, self._config.release)
        checked = self._checked(batch, is_batch=True)
        if isinstance(checked, PutMessageStatus):
            return PutMessageResult(checked)
        begin = self._state.now_ms()
        return self._timed(self._commit_log.put_batch(checked), begin, batch.topic)

    def _checked(self, message: Message, *, is_batch: bool) -> Message | PutMessageStatus:
        """Apply the release's checks, or the hooks, to a message."""
        if self._state.is_shutdown:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if not self._checks_by_hooks:
            return self._checks.check_4x(message, is_batch=is_batch) or message
        hooked: Message | PutMessageStatus = message
        for hook in self._hooks:
            if isinstance(hooked, PutMessageStatus):
                return hooked
            hooked = hook(hooked)
        if isinstance(hooked, PutMessageStatus) or is_batch:
            return hooked
        return self._checks.check_inner_batch(hooked)

    def _timed(
        self, outcome: PutMessageResult | Future[PutMessageResult], begin: int, topic: str
    ) -> PutMessageResult | Future[PutMessageResult]:
        """Count a put and the time it took, when its result is known."""

        def count(result: PutMessageResult) -> None:
            elapsed = self._state.now_ms() - begin
            if elapsed > _SLOW_MS:
                _LOG.warning("a put to %s took %d ms", topic, elapsed)
            self._commit_log.stats.add_put_time(elapsed, is_ok=result.is_ok)

        if isinstance(outcome, PutMessageResult):
            count(outcome)
        else:
            outcome.add_done_callback(lambda future: count(future.result()))
        return outcome

    def encode_messages(self, messages: pa.RecordBatch | pa.Table) -> tuple[EncodedBatch, ...]:
        """Encode many messages for `append_batch`; delayed ones go to the schedule topic as with `put`."""
        return self._commit_log.encode_messages(messages, schedules=bool(self._hooks))

    def append_batch(
        self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table, *, waits: bool = True
    ) -> AppendBatchResult:
        """Check many messages, then append them as `CommitLog.append_batch` does.

        Hooks are not called, but the broker's own rules on topics and delays are applied.
        """
        refused = self._refuse_many(messages)
        if refused is not None:
            return AppendBatchResult.refused(refused, self._commit_log.append_offset)
        batches = messages if isinstance(messages, Sequence) else self.encode_messages(messages)
        return self._commit_log.append_batch(batches, waits=waits)

    def _refuse_many(self, messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table) -> PutMessageStatus | None:
        if self._state.is_shutdown:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if self._checks_by_hooks and not self._hooks:
            return None
        illegal = any(self._checks.check_topic(topic) is not None for topic in _distinct_topics(messages))
        refused = self._checks.check_store_status() or self._checks.check_page_cache()
        return refused or (PutMessageStatus.MESSAGE_ILLEGAL if illegal else None)


def _distinct_topics(messages: Sequence[EncodedBatch] | pa.RecordBatch | pa.Table) -> set[str]:
    if isinstance(messages, Sequence):
        return {topic for batch in messages for topic, _ in batch.queues}
    names = [name for name in messages.schema.names if name.lower() == "topic"]
    found = [topic for name in names for topic in pc.unique(messages.column(name)).to_pylist()]
    return {topic for topic in found if isinstance(topic, str)}
