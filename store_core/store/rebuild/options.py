# SPDX-License-Identifier: Apache-2.0
"""What can be said of a rebuild: the options of the commands, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    import os

__all__ = ["RebuildOptions"]

_FARTHEST: Final = 2**63 - 1
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """What is to be rebuilt, by which rules, and what becomes of it.

    The command ``commitlog-rebuild-consume-queue`` has the same options, and errors and reports name them as it does:
    ``--accept-damage`` is `accept_damage`.

    Attributes
    ----------
    with_queues, with_index : bool
        What is to be rebuilt, in one pass over the log.
    output : path, optional
        Where the new files go; ``rebuilt`` in the store without.
    replace : bool
        Whether they take the places of the old files, which are kept in ``replaced-N`` in the store.
    discard_old : bool
        Whether the kept files are deleted, if what is in their places is what the log gives.
    accept_damage : bool
        Whether to go on after damage with the next sound record, and to replace all the same.
    verify : bool
        Compare what is there with the log, and change nothing.
    topic : sequence of str, optional
        Only queues of these topics; the others stay as they are.
    queue_id : int, optional
        Only queues of this id.
    since_offset : int
        Only from this physical offset on, bytes; what the store has of the records before is kept.
    release : str
        Whose rules, one of `store_core.format.releases.release.RELEASES`.
    broker_config : path, optional
        The broker's configuration file, for all sizes and switches.
    consume_queue_file_size : int, optional
        Bytes (RocketMQ: ``mappedFileSizeConsumeQueue``); by default, as for the next two, what the files that are there
        tell, else RocketMQ's own default.
    hash_slot_num, index_num : int, optional
        Of an index file (RocketMQ: ``maxHashSlotNum``, ``maxIndexNum``).
    batch_topic : sequence of str
        Topics whose queues are batch queues (``queue.type=BatchCQ``), beside those that the store's files name.
    ext : bool
        With queue extensions (RocketMQ: ``enableConsumeQueueExt``), also where no file tells of them.
    light : bool, optional
        With light queues (RocketMQ: ``enableLmq``, ``enableMultiDispatch``), or without; by default if records name
        any.
    batch_inference : bool
        Whether a topic is also taken for a batch topic because its records can be of no other.
    check_crc : bool
        Whether the log ends at a body that its checksum does not fit.
    max_queues : int, optional
        A log that names more queues is refused; 1,000,000 without.

    Raises
    ------
    InvalidOptionError
        If options can't be, or do not go together.
    """

    with_queues: bool = True
    with_index: bool = False
    output: str | os.PathLike[str] | None = None
    replace: bool = False
    discard_old: bool = False
    accept_damage: bool = False
    verify: bool = False
    topic: tuple[str, ...] | list[str] | None = None
    queue_id: int | None = None
    since_offset: int = 0
    release: str = DEFAULT_RELEASE
    broker_config: str | os.PathLike[str] | None = None
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
        if not (self.with_queues or self.with_index):
            raise InvalidOptionError("with_queues and with_index are both False: there is nothing to rebuild")
        if not self.with_queues and (self.topic or self.queue_id is not None):
            raise InvalidOptionError("topic and queue_id choose queues: the index is one for all topics")
        if self.verify and (self.replace or self.discard_old or self.since_offset or self.output):
            raise InvalidOptionError(
                "verify changes nothing: it goes with no replace, discard_old, since_offset, output"
            )

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if value is not None and not (type(value) is int and least <= value <= most):
            raise InvalidOptionError(f"{name}: expected an int from {least} to {most}, found {value!r}")
