# SPDX-License-Identifier: Apache-2.0
"""The options of a rebuild, as for the commands, and the rules that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from store_core.errors import InvalidOptionError
from store_core.format.release import DEFAULT_RELEASE
from store_core.queue.consume_queue.consume_queue_table import MAX_QUEUES

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from store_core.queue.queue_path import QueueRules


OUTPUT: Final = "rebuilt"
"""Default directory, below the store, for rebuilt files."""

_FARTHEST: Final = 2**63 - 1
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """What to rebuild, by which rules, and what to do with the result.

    The command ``commitlog rebuild`` has the same options, and errors and reports use its names:
    ``--accept-damage`` is `accept_damage`.

    Attributes
    ----------
    with_queues, with_index : bool
        What to rebuild, in one pass over the log.
    output : path, optional
        Directory for the new files; by default ``rebuilt`` in the store.
    replace : bool
        Whether they replace the old files, which are kept in ``replaced-N`` in the store.
    to : str, optional
        ``"files"``: the new files may replace a directory with queues in a RocksDB, for a broker that goes back to
        queues in files (RocketMQ: ``storeType=default``).
    discard_old : bool
        Whether to delete the kept files if a check of those in their places has no finding.
    accept_damage : bool
        Whether to continue after damage with the next sound record, and to replace despite damage.
    verify : bool
        Whether to check the existing files, as `store_core.answers.check` does, and change nothing.
    topic : sequence of str, optional
        Rebuild only queues of these topics; others stay as they are.
    queue_id : int, optional
        Rebuild only queues of this id.
    since_offset : int
        Rebuild only from this physical offset on, bytes; what the store has for earlier records is kept.
    release : str
        RocketMQ release whose rules apply, one of `store_core.format.release.RELEASES`.
    config : path, optional
        The broker's configuration file, for sizes and switches, and for where the log is.
    store_path_commit_log : path, optional
        Which log is meant, where the store has one and the configuration names another: the directory, or several,
        separated by commas. Without it such a store is only compared, with its own log.
    consume_queue_file_size : int, optional
        Bytes (RocketMQ: ``mappedFileSizeConsumeQueue``); by default, as for the next two, inferred from the existing
        files, or else RocketMQ's own default.
    hash_slot_num, index_num : int, optional
        Slots and entries of an index file (RocketMQ: ``maxHashSlotNum``, ``maxIndexNum``).
    batch_topic : sequence of str
        Topics whose queues are batch queues (``queue.type=BatchCQ``), besides those in the store's files.
    ext : bool
        Whether to write queue extensions (RocketMQ: ``enableConsumeQueueExt``) even if no file shows them.
    light : bool, optional
        Whether to rebuild light queues (RocketMQ: ``enableLmq``, ``enableMultiDispatch``); by default if records name
        any.
    batch_inference : bool
        Whether to treat a topic as a batch topic if its records can only be of one.
    check_crc : bool
        Whether the log ends at a body that does not match its checksum.
    max_queues : int, optional
        A log that names more queues is refused; by default 1,000,000.

    Raises
    ------
    InvalidOptionError
        If options are invalid or contradict each other.
    """

    with_queues: bool = True
    with_index: bool = False
    output: str | os.PathLike[str] | None = None
    replace: bool = False
    to: Literal["files"] | None = None
    discard_old: bool = False
    accept_damage: bool = False
    verify: bool = False
    topic: tuple[str, ...] | list[str] | None = None
    queue_id: int | None = None
    since_offset: int = 0
    release: str = DEFAULT_RELEASE
    config: str | os.PathLike[str] | None = None
    store_path_commit_log: str | os.PathLike[str] | None = None
    consume_queue_file_size: int | None = None
    hash_slot_num: int | None = None
    index_num: int | None = None
    batch_topic: tuple[str, ...] | list[str] = ()
    ext: bool = False
    light: bool | None = None
    batch_inference: bool = True
    check_crc: bool = False
    max_queues: int | None = None

    def __post_init__(self) -> None:
        for name in ("queue_id", "since_offset"):
            self._check_range(name, 0, _FARTHEST)
        for name in ("consume_queue_file_size", "hash_slot_num", "index_num", "max_queues"):
            self._check_range(name, 1, _LARGEST)
        for name in ("topic", "batch_topic"):
            if isinstance(getattr(self, name), str):
                raise InvalidOptionError(f"{name}: expected a list of topics, found the text {getattr(self, name)!r}")
        if self.to not in {None, "files"}:
            raise InvalidOptionError(f"to: expected 'files', found {self.to!r}: queues are made as files only")
        if not (self.with_queues or self.with_index):
            raise InvalidOptionError("with_queues and with_index are both False: there is nothing to rebuild")
        if not self.with_queues and (self.topic or self.queue_id is not None):
            raise InvalidOptionError("topic and queue_id choose queues: the index is one for all topics")
        if self.verify and (self.replace or self.discard_old or self.since_offset or self.output):
            raise InvalidOptionError(
                "verify changes nothing: it can't be combined with replace, discard_old, since_offset, output"
            )

    def as_comparison(self) -> RebuildOptions:
        """Return the options for a comparison of the files in place with those of a rebuild."""
        return replace(
            self,
            verify=True,
            output=None,
            replace=False,
            to=None,
            discard_old=False,
            accept_damage=False,
            since_offset=0,
        )

    @property
    def writes_store(self) -> bool:
        """Whether anything in the store changes."""
        return not self.verify and (self.output is None or self.replace or self.discard_old)

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if value is not None and not (type(value) is int and least <= value <= most):
            raise InvalidOptionError(f"{name}: expected an int from {least} to {most}, found {value!r}")


@dataclass(frozen=True, slots=True)
class RebuildRules:
    """What to rebuild, and by which release's rules.

    * `has_queues`, `has_index`: What to rebuild.
    """

    queue_rules: QueueRules
    topics: frozenset[str] | None = None  # only queues of these topics; None for all
    queue_id: int | None = None  # only queues of this id; None for all
    since_offset: int = 0
    """Physical offset from which records count; queues keep what they have for earlier records. 0 for all."""
    index_since_offset: int = 0  # the same for the index, which keeps whole files
    check_crc: bool = False
    """Whether a record whose body does not match its checksum ends the log, as in recovery. Dispatching does not check
    bodies, nor does this by default."""
    has_queues: bool = True
    has_index: bool = False
    max_queues: int = MAX_QUEUES  # maximum number of queues
    infers_batch_topics: bool = False
    """Whether a topic with records that only a batch topic can have is rebuilt as one, even if `queue_rules` do not
    name it."""
    is_salvaged: bool = False
    """Whether to continue after damage with the next record that proves itself, as reading in mode DROPMALFORMED does.
    Otherwise the log ends at the first bytes that are not a record, as for a broker."""
    is_proven: bool = False
    """Whether a record also counts as damage if it is not where it says it is, has no store time, or does not match the
    checksum over all of it that it has; and a blank record if it is not as long as the rest of its file. A broker
    checks none of these, nor does dispatching. Without `is_salvaged`, they are only counted."""
    queues: frozenset[tuple[str, int]] | None = None  # only these queues, by topic and id; None for all

    @property
    def first_offset(self) -> int:
        """Physical offset of the first record needed."""
        wanted = [self.since_offset] * self.has_queues + [self.index_since_offset] * self.has_index
        return min(wanted, default=0)

    @property
    def is_partial(self) -> bool:
        """Whether queues are left out or partly copied, so that others must stay in place."""
        is_chosen = any(chosen is not None for chosen in (self.topics, self.queue_id, self.queues))
        return is_chosen or self.since_offset > 0

    @property
    def is_plain(self) -> bool:
        """Whether all queues are simple ones without an extension, whose units take only 20 bytes each."""
        return not self.queue_rules.is_ext_enabled and not self.queue_rules.batch_topics

    def wants(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is to be rebuilt."""
        if self.queues is not None and (topic, queue_id) not in self.queues:
            return False
        return (self.topics is None or topic in self.topics) and self.queue_id in (None, queue_id)

    def with_batch_topics(self, topics: Iterable[str]) -> RebuildRules:
        """Return rules by which these topics are also batch topics."""
        known = self.queue_rules.batch_topics | frozenset(topics)
        return replace(self, queue_rules=replace(self.queue_rules, batch_topics=known))
