# SPDX-License-Identifier: Apache-2.0
"""Which queues the groups of a broker consume, and what they have committed for each."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.answers.lagging.group_kind import GroupKind, is_system_group, kind_of
from store_core.answers.lagging.queue_lag import AskedGroup, AskedQueue
from store_core.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.config_paths import (
    CONFIG_DIRECTORY,
)
from store_core.format.near_name import did_you_mean
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.snapshot.config import CONSUMER_OFFSETS, LIGHT_OFFSETS, REQUEST_MODES, SUBSCRIPTION_GROUPS, Config
from store_core.snapshot.queues import TopicFilter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from store_core.answers.lagging.lag_options import LagOptions
    from store_core.snapshot.config_tables import Committed, ConsumerOffsets
    from store_core.snapshot.queues import Queues

__all__ = ["BrokerGroups", "asked_queues"]

_DATABASES: Final = ("consumerOffsets", "metadata")
"""Directories with a RocksDB that a broker of 5.x may keep its configuration in."""


class BrokerGroups(NamedTuple):
    """What the files of a broker say of consumer groups.

    Attributes
    ----------
    committed : tuple of Committed
    broadcast : tuple of Committed
        The least offsets of broadcasting groups' clients.
    configured : frozenset of str
        Groups that are configured.
    pop : frozenset of (str, str)
        Topics and groups whose consumers pop.
    files : tuple of Path
        Those with offsets.
    notes : tuple of str
    """

    committed: tuple[Committed, ...]
    broadcast: tuple[Committed, ...]
    configured: frozenset[str]
    pop: frozenset[tuple[str, str]]
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, root: Path) -> BrokerGroups:
        """Read the files of a store's broker.

        Raises
        ------
        StoreNotFoundError
            If there is no file with committed offsets.
        UnsupportedStoreError
            If they are in a RocksDB alone.
        CorruptRecordError
            If a file and its backup are broken.
        """
        config = Config(root)
        plain, light = config.read(CONSUMER_OFFSETS), config.read(LIGHT_OFFSETS)
        found = [each for each in (plain, light) if each is not None]
        if not found:
            raise _no_offsets(root)
        newest = max((each.value for each in found), key=_written_at)
        backups = (note for each in found for note in each.notes)
        configured, group_notes = config.known(SUBSCRIPTION_GROUPS, "which groups there are")
        popped, mode_notes = config.known(REQUEST_MODES, "which groups pop")
        return cls(
            (*newest.committed, *(light.value.light if light is not None else ())),
            tuple(newest.broadcast),
            frozenset(configured or ()),
            popped or frozenset(),
            tuple(root / each.file for each in found),
            (*backups, *_notes(root, [each.value for each in found], newest), *group_notes, *mode_notes),
        )


def _written_at(offsets: ConsumerOffsets) -> int:
    """Return the time of a file's data version, which 4.x lacks."""
    return 0 if offsets.version is None else offsets.version.timestamp


def _notes(root: Path, found: list[ConsumerOffsets], newest: ConsumerOffsets) -> Iterable[str]:
    others = [each for each in found if each is not newest and each.committed]
    for each in others:
        yield f"{each.file} is older than {newest.file}: of ordinary queues, its offsets are not used"
    for name in _DATABASES:
        if (root / CONFIG_DIRECTORY / name).is_dir():
            yield (
                f"there is a RocksDB {root / CONFIG_DIRECTORY / name}, which is not read: if the broker keeps offsets "
                f"there, those in {newest.file} are older"
            )


def _no_offsets(root: Path) -> Exception:
    directory = root / CONFIG_DIRECTORY
    database = next((directory / name for name in _DATABASES if (directory / name).is_dir()), None)
    if database is not None:
        return UnsupportedStoreError(
            f"committed offsets are in the RocksDB {database}, which is not read. RocketMQ's mqadmin "
            f"rocksDBConfigToJson prints them as JSON; save that as {directory / CONSUMER_OFFSETS.name} in a copy"
        )
    return StoreNotFoundError(
        f"{directory / CONSUMER_OFFSETS.name} is missing or empty, and so is its .bak: expected what groups have "
        f"committed. Copy the broker's directory {CONFIG_DIRECTORY} into the store's root; a store that no broker has "
        f"served has none, and broadcasting consumers keep their offsets themselves"
    )


def asked_queues(queues: Queues, groups: BrokerGroups, options: LagOptions) -> list[AskedQueue]:
    """Return the queues of the requested groups and topics, with the groups that consume each, sorted.

    They are those for which a group has committed an offset, the others of the same topics, and the queues of its retry
    topic.

    Raises
    ------
    InvalidOptionError
        If a requested group or topic is not known.
    """
    chosen = _chosen(groups, options)
    consumed = _consumed(chosen)
    known = _queues_of(queues, {topic for topics in consumed.values() for topic in topics})
    rows: defaultdict[tuple[str, int], list[AskedGroup]] = defaultdict(list)
    for one, kind in chosen:
        rows[one.topic, one.queue_id].append(AskedGroup(one.group, kind, one.offset))
    done = {(one.group, one.topic, one.queue_id) for one, _ in chosen}
    for group, topics in consumed.items():
        for topic, kind in topics.items():
            for queue_id in known.get(topic, ()):
                if (group, topic, queue_id) not in done and (not options.topic or topic in options.topic):
                    rows[topic, queue_id].append(AskedGroup(group, kind, None))
    return [AskedQueue(*name, tuple(sorted(rows[name], key=_by_group))) for name in sorted(rows)]


def _by_group(asked: AskedGroup) -> tuple[str, str]:
    return asked.group, asked.kind.name


def _chosen(groups: BrokerGroups, options: LagOptions) -> list[tuple[Committed, GroupKind]]:
    every = [(one, kind_of(one.topic, one.group, groups.pop)) for one in groups.committed]
    every += [(one, GroupKind.BROADCAST) for one in groups.broadcast]
    _check_known("group", options.group, {one.group for one, _ in every} | groups.configured)
    _check_known("topic", options.topic, {one.topic for one, _ in every})
    return [
        (one, kind)
        for one, kind in every
        if (not options.group or one.group in options.group) and (not options.topic or one.topic in options.topic)
    ]


def _check_known(name: str, asked: Iterable[str], known: Collection[str]) -> None:
    for each in asked:
        if each not in known:
            hint = did_you_mean(each, sorted(known)) or "the view consumer_offsets lists what there is"
            raise InvalidOptionError(f"no {name} {each!r} in the committed offsets; {hint}")


def _consumed(chosen: Iterable[tuple[Committed, GroupKind]]) -> dict[str, dict[str, GroupKind]]:
    """Return the topics that each group consumes, in clustering mode, and how; its retry topic is one of them."""
    found: defaultdict[str, dict[str, GroupKind]] = defaultdict(dict)
    for one, kind in chosen:
        if kind is not GroupKind.BROADCAST:
            found[one.group][one.topic] = kind
            if not is_system_group(one.group) and kind not in _WITHOUT_RETRY:
                found[one.group].setdefault(f"{RETRY_PREFIX}{one.group}", GroupKind.RETRY)
    return dict(found)


_WITHOUT_RETRY: Final = (GroupKind.SYSTEM, GroupKind.REVIVE, GroupKind.LIGHT)


def _queues_of(queues: Queues, topics: Collection[str]) -> Mapping[str, list[int]]:
    """Return the ids of the queues that topics have."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, queue_id in queues.names(TopicFilter(tuple(topics))) if topics else ():
        found[topic].append(queue_id)
    return found
