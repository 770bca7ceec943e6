# SPDX-License-Identifier: Apache-2.0
"""The plan of a repair: what is wrong, what would be made again, and digests of what it was made from; and its report.

A plan made for another state of the store is refused by the names of these digests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import file_digest, sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from store_core.answers.checked_store import CheckedStore, LogReach, wrong_values
from store_core.answers.report import Report, ReportSchema, Verdict, command_words, fact, shared, table, text, truth
from store_core.answers.store_check import Check, CheckReport, Compared
from store_core.errors import InvalidOptionError, RepairRefusedError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.names import (
    CHECKPOINT_FILE,
    COMMIT_LOG,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE,
    INDEX_DIRECTORY,
    QUEUE_KINDS,
)
from store_core.files.store_lock import ABORT_FILE
from store_core.format.words import agreeing, counted
from store_core.queue.queue_path import queue_path
from store_core.snapshot.config import read_checkpoint
from store_core.store.rebuild.findings import FindingKind
from store_core.store.rebuild.index_files import KeptIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping


_BEHIND: Final = "behind the log"
"""Why a queue is rebuilt that only lags, as after a crash: see `Repairs.of`."""


class Remedy(StrEnum):
    """What is done with a queue."""

    REBUILD = "rebuild"
    """It is made again from the log."""

    CUT = "cut"
    """Units of deleted records stay, so that offsets go on after them; the others are taken away."""

    REMOVE = "remove"
    """Its directories are moved away: the log has no record of it."""


class QueueRepair(NamedTuple):
    """What is done with a queue, and why: the kinds of findings, separated by blanks."""

    topic: str
    queue_id: int
    action: Remedy
    why: str


class IndexFileRepair(NamedTuple):
    """What is done with a file of the index, and why, as of `QueueRepair`."""

    file: str | None  # its name; None for findings that are about no certain file
    action: str  # ``keep``; ``replace``; or ``make``, where there is none
    why: str


@dataclass(frozen=True, slots=True)
class Repairs:
    """What a repair does."""

    queues: tuple[QueueRepair, ...]  # by topic and id
    index_files: tuple[IndexFileRepair, ...]
    """Those from the first wrong one on are made again from the log: how many records a file covers follows from the
    one before it, so that one alone can't be replaced. Empty if the index is right."""
    index_since_offset: int  # offset of the record at which the kept files end; 0 if none is kept
    checkpoint: tuple[str, ...]
    """Names of the times that are negative, or later than the log's last record, and of offsets after its end, so that
    a recovery could begin too late; ``size`` if the file is only too short."""

    @classmethod
    def of(cls, checked: CheckedStore) -> Repairs:
        """Derive what has to be done.

        In a store that was not closed, units may be missing at the log's end, and a restart adds them: it goes on where
        the last queue ends. When a queue is rebuilt up to the log's end, those that lag are therefore rebuilt with it.
        """
        queues = tuple(_queues(checked))
        if any(each.action is Remedy.REBUILD for each in queues):
            named = {(each.topic, each.queue_id) for each in queues}
            lagging = ((each.topic, each.queue_id) for each in checked.compared.judged if each.missing_from >= 0)
            behind = [QueueRepair(*queue, Remedy.REBUILD, _BEHIND) for queue in lagging if queue not in named]
            queues = tuple(sorted([*queues, *behind]))
        return cls(queues, *_index(checked), tuple(_wrong_in_checkpoint(checked)))


def _queues(checked: CheckedStore) -> Iterable[QueueRepair]:
    why: dict[tuple[str, int], list[str]] = {}
    for place in checked.tally.places:
        if place.kind.is_of_queues and place.topic is not None and place.queue_id is not None:
            why.setdefault((place.topic, place.queue_id), []).append(place.kind.value)
    logged = {(queue.topic, queue.queue_id) for queue in checked.compared.queues}
    for queue, kinds in sorted(why.items()):
        is_readable = FindingKind.QUEUE_UNREADABLE not in kinds
        without_records = Remedy.CUT if checked.plan.min_offset and is_readable else Remedy.REMOVE
        yield QueueRepair(*queue, Remedy.REBUILD if queue in logged else without_records, " ".join(sorted(kinds)))


# ---- the index


def _index(checked: CheckedStore) -> tuple[tuple[IndexFileRepair, ...], int]:
    """Return what is done with the files of the index, and at which record's offset those end that are kept."""
    places = [place for place in checked.tally.places if place.kind.is_of_index]
    if not places:
        return (), 0
    store = checked.plan.store
    names = names_in(store / INDEX_DIRECTORY, OsFileSystem())
    why: dict[str, set[str]] = {}
    for place in places:
        name = Path(place.where).name
        why.setdefault(name if name in names else "", set()).add(place.kind.value)
    words = {name: " ".join(sorted(kinds)) for name, kinds in why.items()}
    kept = KeptIndex.find(store, checked.plan.rules.queue_rules, _sound_end(checked), OsFileSystem())
    kept_names = [path.name for path in kept.paths]
    files = [IndexFileRepair(name, "keep", words.get(name, "")) for name in kept_names]
    files += [IndexFileRepair(name, "replace", words.get(name, "")) for name in names if name not in kept_names]
    if "" in words:
        files.append(IndexFileRepair(None, "replace" if files else "make", words[""]))
    return tuple(files), kept.end_physical_offset


def _sound_end(checked: CheckedStore) -> int:
    """Return an offset up to which the index is right; 0 if there is none.

    An entry that is missing, extra or wrong says which records are concerned; any other finding is about a whole file,
    and then what is right ends with the file before it.
    """
    wrong: list[int] = []
    tally = checked.tally
    by_entry = (
        FindingKind.INDEX_MISSING,
        FindingKind.INDEX_EXTRA,
        FindingKind.INDEX_WRONG_HASH,
        FindingKind.INDEX_WRONG_PLACE,
    )
    paths = {place.where for place in tally.places if place.kind.is_of_index and place.kind not in by_entry}
    before = 0
    for file in checked.index.files:
        if str(file.path) in paths:
            wrong.append(min(before, file.header.end_physical_offset - 1))
            break
        before = max(before, file.header.end_physical_offset)
    unloaded = paths - {str(file.path) for file in checked.index.files}
    for path in unloaded:  # the index ends before a file that the release does not load
        ends = (file.header.end_physical_offset for file in checked.index.files if file.path.name < Path(path).name)
        wrong.append(max(ends, default=0))
    wrong += [begin - 1 for place, begin in tally.places.items() if place.kind in by_entry and begin is not None]
    return max(min(wrong, default=0), 0)


# ---- the checkpoint


def _wrong_in_checkpoint(checked: CheckedStore) -> Iterable[str]:
    """Yield the names of the checkpoint's values that can't be right; ``size`` if that is all that is wrong."""
    store, release = checked.plan.store, checked.plan.rules.queue_rules.release
    checkpoint = read_checkpoint(store) or {}
    is_found = any(place.kind is FindingKind.CHECKPOINT for place in checked.tally.places)
    last, end = checked.compared.last_store_timestamp, checked.compared.end_offset
    reach = LogReach(last, end) if last or is_found else None
    names = [wrong.name for wrong in wrong_values(checkpoint, release, reach)]
    return names or ["size"] * is_found


_ABSENT: Final = "absent"


def _bases(checked: CheckedStore, repairs: Repairs) -> Iterator[tuple[str, str]]:
    """Yield what a plan depends on, and its digest: SHA-256, or ``absent``.

    That is the log, and each file that a repair would replace, or that decides what it makes. The log's digest is of
    where it begins and ends, and of the digests of its queues: of which records they have, and where.
    """
    store, compared = checked.plan.store, checked.compared
    queues = [(each.topic, each.queue_id, each.digest) for each in compared.judged]
    log = [checked.plan.min_offset, compared.end_offset, compared.records, queues]
    yield COMMIT_LOG, sha256(json.dumps(log).encode()).hexdigest()
    for name in (ABORT_FILE, CHECKPOINT_FILE, f"{CONFIG_DIRECTORY}/topics.json"):
        yield name, _digest_of(store / name)
    for queue in repairs.queues:
        for kind in QUEUE_KINDS:
            directory = queue_path(store / kind, queue.topic, queue.queue_id)
            if (digest := _digest_of(directory)) != _ABSENT or kind == CONSUME_QUEUE:
                yield str(directory.relative_to(store)), digest
    for each in repairs.index_files:
        if each.file is not None:
            yield f"{INDEX_DIRECTORY}/{each.file}", _digest_of(store / INDEX_DIRECTORY / each.file)


def _digest_of(path: Path) -> str:
    """Return the digest of a file, or of the names and contents of a directory's files; links are not followed."""
    if path.is_symlink():
        return sha256(bytes(path.readlink())).hexdigest()
    if path.is_file():
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    if not path.is_dir():
        return _ABSENT
    found = sha256()
    for each in sorted(path.iterdir()):
        found.update(f"{each.name}\0{_digest_of(each)}\0".encode(errors="surrogateescape"))
    return found.hexdigest()


_WHY: Final = text("why", "kinds of the findings, separated by blanks")


@dataclass(frozen=True, slots=True)
class RepairPlanFacts:
    """The facts of a plan."""

    store: str = fact("the store root")
    release: str = fact("the RocketMQ release whose rules are followed")
    config: str | None = fact("the broker's configuration file; null if sizes are inferred from the store's files")
    store_path_commit_log: str | None = fact(
        "the log that was said to be meant, where store and configuration have two (RocketMQ: "
        "`storePathCommitLog`); else null"
    )
    check_crc: bool = fact("whether bodies are checked against their checksums")
    batch_topic: tuple[str, ...] = fact("topics that were said to be batch topics")
    hash_slot_num: int = fact("slots of each index file that is made (RocketMQ: `maxHashSlotNum`)")
    index_num: int = fact("entries for which such a file has room, with the unused first one (`maxIndexNum`)")
    max_queues: int | None = fact("most queues of a log that is not refused; null for the default")
    was_closed: bool = fact("whether the store was closed: there is no file `abort`")
    records: int = fact("records in the log")
    min_offset: int = fact("physical offset at which the log begins")
    end_offset: int = fact("physical offset one past the last sound record")
    right_queues: int = fact("queues that are right and are not touched")
    checkpoint: tuple[str, ...] = fact(
        "values of the checkpoint that can't be right, such as times that are negative, or later than the last "
        "record; or `size`, if the file is too short"
    )
    notes: tuple[str, ...] = fact("what an operator should know")
    digest: str = fact(
        "SHA-256 of this plan with an empty `digest`, as JSON with sorted keys; a plan is used unchanged", default=""
    )


class RepairPlan(Report[RepairPlanFacts]):
    """The plan of a repair, as its fact `digest` explains it."""

    SCHEMA: ClassVar = ReportSchema.of(
        "repair-plan",
        1,
        RepairPlanFacts,
        table(
            "queues",
            "Queues",
            *shared("topic", "queue_id"),
            text(
                "action",
                "`rebuild` from the log; `cut`: keep only units of deleted records, as the log has none of this "
                "queue; `remove`: as `cut`, and there is nothing to keep",
            ),
            _WHY,
        ),
        table(
            "index_files",
            "Files of the index",
            text("file", "its name; null for what has no file"),
            text("action", "`keep`; `replace` by files made from the log; or `make`, where there is none"),
            _WHY,
        ),
        table("left", "Findings that no repair of queues and index mends", *shared("kind", "count", "meaning")),
        table(
            "looked_at",
            "What the plan depends on",
            text("what", "path in the store"),
            text("digest", "SHA-256; of the log, of its records and their places; or `absent`", in_text=False),
        ),
    )

    @classmethod
    def of_repairs(cls, checked: CheckedStore, repairs: Repairs, asked: Compared[Any]) -> Self:
        """Make the plan of what has to be done."""
        facts, rules = CheckReport.of_checked(checked).found, checked.plan.rules.queue_rules
        chosen = asked.store_path_commit_log
        assumed = checked.plan.index_assumption if repairs.index_files else ""
        found = RepairPlanFacts(
            store=facts.store,
            release=facts.release,
            config=None if asked.config is None else str(asked.config),
            store_path_commit_log=None if chosen is None else str(chosen),
            check_crc=asked.check_crc,
            batch_topic=tuple(asked.batch_topic),
            hash_slot_num=rules.max_hash_slot_num,
            index_num=rules.max_index_num,
            max_queues=asked.max_queues,
            was_closed=facts.was_closed,
            records=facts.records,
            min_offset=facts.min_offset,
            end_offset=facts.end_offset,
            right_queues=facts.queues - sum(1 for each in repairs.queues if each.action == "rebuild"),
            checkpoint=repairs.checkpoint,
            notes=(*facts.notes, assumed) if assumed else facts.notes,
        )
        plan = cls.of(found, _rows(checked, repairs))
        return cls(replace(found, digest=plan_digest(plan.to_json())), plan.tables)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.found.checkpoint or self.tables["queues"].num_rows or self.tables["index_files"].num_rows)

    @property
    def verdict(self) -> Verdict:
        """Findings if there is anything to do, or left."""
        return Verdict.FINDINGS if self.is_needed or self.tables["left"].num_rows else Verdict.CLEAN

    @property
    def next(self) -> Iterator[tuple[str, str]]:
        """How to carry out the plan, or what shows the rest."""
        if self.is_needed:
            words = command_words("repair", self.found.store, "--plan", "PLAN")
            yield words, "writes this plan, which --apply PLAN carries out"
        elif self.tables["left"].num_rows:
            yield command_words("check", self.found.store), "what else is wrong"

    def _lines(self) -> Iterator[str]:
        found, queues = self.found, self.tables["queues"]
        needs = "queues or index have to be made anew" if self.is_needed else "queues and index are right"
        yield f"{needs}; nothing was changed"
        yield found.store
        records = counted(found.records, "record")
        yield f"by the rules of RocketMQ {found.release}; {records} up to offset {found.end_offset}"
        if not self.is_needed:
            yield "queues and index are right: there is nothing to repair"
        else:
            stay = agreeing(found.right_queues, "is right and stays", "are right and stay")
            yield f"queues: {queues.num_rows} to replace, {found.right_queues} {stay}"
            yield f"index: {self._index_words()}"
        if found.checkpoint:
            yield f"checkpoint: to correct {', '.join(found.checkpoint)}; nothing in it may be after the last record"
        yield from (f"note: {text}" for text in found.notes)
        yield f"digest of this plan: {found.digest}"

    def _index_words(self) -> str:
        found, rows = self.found, self.tables["index_files"].to_pylist()
        if not rows:
            return "right, and stays"
        sizes = f"{found.hash_slot_num:,} slots and {found.index_num:,} entries"
        repairs = [each["action"] for each in rows if each["file"] is not None]
        if not repairs:
            return f"there is none; to make in files of {sizes}"
        kept, replaced = repairs.count("keep"), counted(repairs.count("replace"), "file")
        stay = f", {kept} {agreeing(kept, 'stays', 'stay')}" if kept else ""
        return f"{replaced} to replace{stay}; new ones have {sizes}"


def plan_digest(plan: Mapping[str, Any]) -> str:
    """Return the digest of a plan in JSON, as its fact `digest` explains it."""
    return sha256(json.dumps({**plan, "digest": ""}, sort_keys=True).encode()).hexdigest()


def _rows(checked: CheckedStore, repairs: Repairs) -> dict[str, list[dict[str, Any]]]:
    left = [
        (kind, count)
        for kind, count in checked.tally.counts
        if not (kind.is_of_queues or kind.is_of_index or kind is FindingKind.CHECKPOINT)
    ]  # of log and configuration
    return {
        "queues": [each._asdict() for each in repairs.queues],
        "index_files": [each._asdict() for each in repairs.index_files],
        "left": [{"kind": kind, "count": count, "meaning": kind.meaning} for kind, count in left],
        "looked_at": [{"what": what, "digest": digest} for what, digest in _bases(checked, repairs)],
    }


_MOST_BYTES: Final = 1 << 30
_COMPARED: Final = ("queues", "index_files")
_TYPES: Final = {
    "release": (str,),
    "config": (str, type(None)),
    "store_path_commit_log": (str, type(None)),
    "check_crc": (bool,),
    "batch_topic": (list,),
    "hash_slot_num": (int,),
    "index_num": (int,),
    "max_queues": (int, type(None)),
}
"""Facts that are options of the check, and their types."""


@dataclass(frozen=True, slots=True)
class SignedPlan:
    """A plan that was written to a file, and is unchanged since."""

    path: str
    options: Check  # with which the plan was made
    digest: str
    tables: dict[str, list[dict[str, Any]]]  # the rows of the plan's tables

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan."""
        plan = _json_of(Path(path))
        if not isinstance(plan, dict) or plan.get("schema") != RepairPlan.SCHEMA.name:
            found = plan.get("schema") if isinstance(plan, dict) else plan
            raise InvalidOptionError(
                f"{path} is not a plan of this version: expected `schema` {RepairPlan.SCHEMA.name!r}, found "
                f"{str(found)[:100]!r}. Make one with commitlog repair STORE --plan FILE"
            )
        if plan.get("digest") != plan_digest(plan):
            raise RepairRefusedError(
                f"{path} was changed after it was made: its `digest` is not that of its content. Make a new plan"
            )
        tables = plan.get("tables")
        if not (
            isinstance(tables, dict) and all(_is_table(tables.get(each.name)) for each in RepairPlan.SCHEMA.tables)
        ):
            raise InvalidOptionError(f"{path} lacks tables of a plan. Make a new plan")
        return cls(str(path), _options_of(plan, path), str(plan["digest"]), tables)

    def check_is_of(self, now: RepairPlan) -> None:
        """Check that the store is still what the plan was made for.

        * `now`: A plan made by the same options just now.
        """
        if self.digest == now.found.digest:
            return
        tables = now.to_json()["tables"]
        then_digests = {row.get("what"): row.get("digest") for row in self.tables["looked_at"]}
        now_digests = {row["what"]: row["digest"] for row in tables["looked_at"]}
        for what in [*now_digests, *then_digests]:
            then, found = then_digests.get(what, "not looked at"), now_digests.get(what, "right")
            if then != found:
                self._refuse(str(what), str(then), found)
        for name in _COMPARED:
            for then, found in zip_longest(self.tables[name], tables[name]):
                if then != found:
                    self._refuse(f"an entry of `{name}`", json.dumps(then), json.dumps(found))

    def _refuse(self, what: str, then: str, found: str) -> None:
        raise RepairRefusedError(
            f"{self.path} is a plan for another state of the store: {what} was {then[:200]} when it was made, and is "
            f"{found[:200]} now. Nothing was changed. Make a new plan"
        )


def _json_of(path: Path) -> Any:  # noqa: ANN401 -- whatever the file says
    if not path.exists():
        raise InvalidOptionError(f"{path} does not exist. Make a plan with commitlog repair STORE --plan FILE")
    size, given = path.stat().st_size, "Give what commitlog repair STORE --plan wrote"
    if size > _MOST_BYTES:
        raise InvalidOptionError(f"{path} has {size:,} bytes: expected a plan, at most {_MOST_BYTES:,}. {given}")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(f"{path} is not JSON: {error}. {given}") from error


def _is_table(rows: object) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) for row in rows)


def _options_of(plan: dict[str, Any], path: str | os.PathLike[str]) -> Check:
    """Return the options of the check; the values are checked where they are used."""
    for name, types in _TYPES.items():
        if name not in plan or type(plan[name]) not in types:
            found = f"{plan[name]!r:.100}" if name in plan else "missing"
            raise InvalidOptionError(f"{path}: `{name}` is {found}. Make a new plan")
    if not all(isinstance(topic, str) for topic in plan["batch_topic"]):
        raise InvalidOptionError(f"{path}: `batch_topic` is {plan['batch_topic']!r}. Make a new plan")
    return Check(**{name: plan[name] for name in _TYPES})


# ---- what a repair did


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """The facts of a repair."""

    store: str = fact("the store root")
    plan: str = fact("digest of the plan that was carried out")
    kept: str | None = fact("directory with what was replaced; null if nothing was")
    is_resumed: bool = fact("whether this run finished a replacement that an earlier one began")
    resumed: str | None = fact("directory with what that one replaced; null if nothing was")
    is_checkpoint_written: bool = fact("whether the checkpoint was written")
    left: int = fact("findings that no repair of queues and index mends", tells="findings")


class RepairReport(Report[RepairFacts]):
    """What a repair replaced."""

    SCHEMA: ClassVar = ReportSchema.of(
        "repair",
        1,
        RepairFacts,
        table(
            "places",
            "What was replaced",
            text("place", "path in the store, and of the old files below `kept`"),
            truth("is_new", "whether there are new files in its place"),
        ),
    )

    @property
    def next(self) -> Iterator[tuple[str, str]]:
        """What proves it."""
        yield command_words("check", self.found.store), "whether log, queues and index agree"

    def _lines(self) -> Iterator[str]:
        found, places = self.found, self.tables["places"].num_rows
        yield "queues and index are right" + (", and something else is wrong" if found.left else "")
        yield found.store
        if found.is_resumed:
            yield f"finished the replacement that an earlier run began{_old_files(found.resumed)}"
        if found.kept:
            yield f"replaced {counted(places, 'place')}{_old_files(found.kept)}"
        elif places:
            yield f"made what was missing in {counted(places, 'place')}: there are no old files to keep"
        else:
            yield "queues and index are right: nothing was replaced"
        if found.is_checkpoint_written:
            yield "the checkpoint is written: nothing in it is after the last record"
        if found.left:
            left = f"{counted(found.left, 'finding')} {agreeing(found.left, 'is', 'are')} left"
            yield f"{left} that no repair of queues and index mends: see commitlog check"


def _old_files(kept: str | None) -> str:
    return "" if kept is None else f"; the old files are in {Path(kept).name}"
