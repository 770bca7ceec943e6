# SPDX-License-Identifier: Apache-2.0
"""The rules of queues, the one place where a name becomes a path, and light queues, which a record names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.format.java import INT_BITS, parse_java_int
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.release import DEFAULT_RELEASE, Release, rules_of

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.release_rules import ReleaseRules


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """Rules of queues, index and dispatch; `MessageStoreConfig.queue_rules` makes them.

    Sizes are in bytes.

    * `consume_queue_file_size`, `batch_consume_queue_file_size`: As configured; rounded up to multiples of 20 and 46
      bytes, because files hold whole units.
    * `is_multi_dispatch_enabled`, `is_lmq_enabled`: ``enableMultiDispatch`` and ``enableLmq``.
    """

    release: Release = DEFAULT_RELEASE
    consume_queue_file_size: int = 300_000 * 20
    batch_consume_queue_file_size: int = 300_000 * 46
    batch_topics: frozenset[str] = field(default_factory=frozenset)  # topics with the attribute ``queue.type=BatchCQ``
    ext_file_size: int = 48 * 1024 * 1024
    is_ext_enabled: bool = False
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    is_index_enabled: bool = True
    is_index_safe: bool = False  # ``messageIndexSafe``
    delay_levels: tuple[int, ...] = ()  # delays in ms, level 1 first; empty until they are loaded
    check_crc: bool = True  # ``checkCRCOnRecover``
    verify_property_crc: bool = False  # ``forceVerifyPropCRC``
    is_duplication_enabled: bool = False
    is_multi_dispatch_enabled: bool = False
    is_lmq_enabled: bool = False
    features: ReleaseRules = field(init=False, repr=False, compare=False)  # the release's behaviour

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", rules_of(self.release))


_LONGEST_NAME: Final = 255
"""Bytes of a file name on the file systems of Linux."""

_LAST_QUEUE_ID: Final = 2**31 - 1
_NOT_IN_NAMES: Final = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udc7f\udd00-\udfff]")
"""The separator, control characters, and UTF-16 surrogates, which no encoding can represent.

U+DC80 to U+DCFF stand for bytes of a directory name that is not UTF-8, see PEP 383.
"""


def queue_path(directory: Path, topic: str, queue_id: int) -> Path:
    """Return the directory of a queue's files, two levels below `directory`.

    * `directory`: ``consumequeue``, ``consumequeue_ext`` or ``batchconsumequeue`` of the store.
    * `topic`, `queue_id`: As a record names them, so any value is possible.
    """
    reason = refusal_of(topic, queue_id)
    if reason is not None:
        raise InvalidOptionError(
            f"{reason}: queue {queue_id} of topic {topic[:_LONGEST_NAME]!r} can't be a directory below {directory}"
        )
    return directory / topic / str(queue_id)


def refusal_of(topic: str, queue_id: int) -> str | None:
    """Return why a queue gets no directory; None if it gets one.

    RocketMQ joins the strings (``ConsumeQueue``, all releases). With a name like ``../../x`` it writes outside the
    store. With ``a/b``, or an empty name, it writes where no restart finds the queue. A name that the system rejects,
    because of a NUL or its length, is tried 30 times, a second apart; then the store accepts no more messages.
    RocketMQ accepts control characters and negative queue ids unchanged.
    """
    if not 0 <= queue_id <= _LAST_QUEUE_ID:
        return f"a queue id is 0 to {_LAST_QUEUE_ID}"
    if topic in {"", ".", ".."}:
        return f"{topic!r} names no directory of its own"
    wrong = _NOT_IN_NAMES.search(topic)
    if wrong is not None:
        return f"the name holds {wrong[0]!r}"
    size = len(topic.encode("utf-8", "surrogateescape"))
    return f"the name has {size} bytes, and {_LONGEST_NAME} are the most" if size > _LONGEST_NAME else None


def parse_queue_id(name: str) -> int | None:
    """Parse a directory's name as ``Integer.parseInt`` does; None if it is not a 32-bit integer.

    >>> parse_queue_id("7"), parse_queue_id("007"), parse_queue_id("seven")
    (7, 7, None)
    """
    try:
        return parse_java_int(name, INT_BITS)
    except ValueError:
        return None


LMQ_PREFIX: Final = "%LMQ%"
"""Prefix of the names of light queues (RocketMQ: ``MixAll.LMQ_PREFIX``); their queue id is 0."""

_SEPARATOR: Final = ","
_NOT_LIGHT: Final = ("%RETRY%", "rmq_sys_")


def is_light(name: str) -> bool:
    """Return whether a queue of this name is a light queue (``MixAll.isLmq``)."""
    return name.startswith(LMQ_PREFIX)


def has_lists(topic: str, features: ReleaseRules) -> bool:
    """Return whether a release reads the lists of a topic's records.

    4.9 does for every topic, 5.3 for all but retry and system topics; 4.3 does not know them.
    """
    is_system_topic = topic.startswith(_NOT_LIGHT) or topic == SCHEDULE_TOPIC
    return features.has_light_queues and not (is_system_topic and features.keeps_light_queues_from_system_topics)


def split_names(text: str) -> list[str]:
    """Split a list as Java does: empty names at the end are dropped.

    >>> split_names("%LMQ%a,,%LMQ%b,,")
    ['%LMQ%a', '', '%LMQ%b']
    """
    names = text.split(_SEPARATOR)
    while len(names) > 1 and not names[-1]:
        names.pop()
    return [] if names == [""] and text else names
