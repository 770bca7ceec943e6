# SPDX-License-Identifier: Apache-2.0
"""The plan of a repair: what is wrong, what would be made again, and digests of what it was made from.

A plan made for another state of the store is refused by the names of these digests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import pyarrow as pa

from store_core.answers.findings import FindingKind
from store_core.answers.report import Fact, Report, ReportColumn, ReportSchema, ReportTable
from store_core.answers.store_check import Check
from store_core.answers.verdict import Verdict
from store_core.errors import InvalidOptionError, RepairRefusedError
from store_core.files.store_lock import ABORT_FILE
from store_core.files.store_parts import CHECKPOINT_FILE, COMMIT_LOG, CONFIG_DIRECTORY, INDEX_DIRECTORY
from store_core.format.words import agreeing, counted
from store_core.queue.queue_path import CONSUME_QUEUE, queue_path
from store_core.store.rebuild.queue_files import QUEUE_KINDS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from store_core.answers.checked_store import CheckedStore
    from store_core.answers.repairing.deeds import Deeds

__all__ = ["REPAIR_PLAN_SCHEMA", "LookedAt", "RepairPlan", "RepairPlanFacts", "SignedPlan", "looked_at", "plan_digest"]

_ABSENT: Final = "absent"
_AT_ONCE: Final = 1 << 20


class LookedAt(NamedTuple):
    """Something that a plan depends on, and its digest: SHA-256, or ``absent``."""

    what: str
    digest: str


def looked_at(checked: CheckedStore, deeds: Deeds) -> Iterator[LookedAt]:
    """Yield the digests of the log and of each file that a repair would replace, or that decides what it makes.

    The log's is of where it begins and ends, and of the digests of its queues: of which records they have, and where.
    """
    store = checked.plan.store
    yield LookedAt(COMMIT_LOG, _digest_of_log(checked))
    for name in (ABORT_FILE, CHECKPOINT_FILE, f"{CONFIG_DIRECTORY}/topics.json"):
        yield LookedAt(name, _digest_of(store / name))
    for queue in deeds.queues:
        for kind in QUEUE_KINDS:
            directory = queue_path(store / kind, queue.topic, queue.queue_id)
            if (digest := _digest_of(directory)) != _ABSENT or kind == CONSUME_QUEUE:
                yield LookedAt(str(directory.relative_to(store)), digest)
    for name in (deeds.index.kept + deeds.index.replaced) if deeds.index is not None else ():
        yield LookedAt(f"{INDEX_DIRECTORY}/{name}", _digest_of(store / INDEX_DIRECTORY / name))


def _digest_of_log(checked: CheckedStore) -> str:
    facts = checked
    queues = [(each.topic, each.queue_id, each.digest) for each in checked.compared.judged]
    return sha256(json.dumps([facts.min_offset, facts.end_offset, facts.records, queues]).encode()).hexdigest()


def _digest_of(path: Path) -> str:
    """Return the digest of a file, or of the names and contents of a directory's files; links are not followed."""
    if path.is_symlink():
        return sha256(bytes(path.readlink())).hexdigest()
    if path.is_file():
        with path.open("rb") as file:
            found = sha256()
            while data := file.read(_AT_ONCE):
                found.update(data)
        return found.hexdigest()
    if not path.is_dir():
        return _ABSENT
    found = sha256()
    for each in sorted(path.iterdir()):
        found.update(f"{each.name}\0{_digest_of(each)}\0".encode(errors="surrogateescape"))
    return found.hexdigest()


_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_WHY: Final = ReportColumn("why", _TEXT, "kinds of the findings, separated by blanks")

REPAIR_PLAN_SCHEMA: Final = ReportSchema(
    "repair-plan",
    1,
    (
        Fact("store", "the store root"),
        Fact("release", "the RocketMQ release whose rules are followed"),
        Fact("broker_config", "the broker's configuration file; null if sizes are inferred from the store's files"),
        Fact(
            "store_path_commit_log",
            "the log that was said to be meant, where store and configuration have two (RocketMQ: "
            "`storePathCommitLog`); else null",
        ),
        Fact("check_crc", "whether bodies are checked against their checksums"),
        Fact("batch_topic", "topics that were said to be batch topics"),
        Fact("hash_slot_num", "slots of each index file that is made (RocketMQ: `maxHashSlotNum`)"),
        Fact("index_num", "entries for which such a file has room, with the unused first one (`maxIndexNum`)"),
        Fact("max_queues", "most queues of a log that is not refused; null for the default"),
        Fact("was_closed", "whether the store was closed: there is no file `abort`"),
        Fact("records", "records in the log"),
        Fact("min_offset", "physical offset at which the log begins"),
        Fact("end_offset", "physical offset one past the last sound record"),
        Fact("right_queues", "queues that are right and are not touched"),
        Fact(
            "checkpoint",
            "values of the checkpoint that can't be right, such as times that are negative, or later than the last "
            "record; or `size`, if the file is too short",
        ),
        Fact("notes", "what an operator should know"),
        Fact(
            "digest", "SHA-256 of this plan with an empty `digest`, as JSON with sorted keys; a plan is used unchanged"
        ),
    ),
    (
        ReportTable(
            "queues",
            "Queues",
            (
                ReportColumn("topic", _TEXT, "name of the topic"),
                ReportColumn("queue_id", _LONG, "queue of the topic"),
                ReportColumn(
                    "deed",
                    _TEXT,
                    "`rebuild` from the log; `cut`: keep only units of deleted records, as the log has none of this "
                    "queue; `remove`: as `cut`, and there is nothing to keep",
                ),
                _WHY,
            ),
        ),
        ReportTable(
            "index_files",
            "Files of the index",
            (
                ReportColumn("file", _TEXT, "its name; null for what has no file"),
                ReportColumn(
                    "deed", _TEXT, "`keep`; `replace` by files made from the log; or `make`, where there is none"
                ),
                _WHY,
            ),
        ),
        ReportTable(
            "left",
            "Findings that no repair of queues and index mends",
            (
                ReportColumn("kind", _TEXT, "what is wrong"),
                ReportColumn("count", _LONG, "how many there are"),
                ReportColumn("meaning", _TEXT, "the kind in words"),
            ),
        ),
        ReportTable(
            "looked_at",
            "What the plan depends on",
            (
                ReportColumn("what", _TEXT, "path in the store"),
                ReportColumn(
                    "digest", _TEXT, "SHA-256; of the log, of its records and their places; or `absent`", in_text=False
                ),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RepairPlanFacts:
    """The facts of a plan, as `REPAIR_PLAN_SCHEMA` explains them."""

    store: str
    release: str
    broker_config: str | None
    store_path_commit_log: str | None
    check_crc: bool
    batch_topic: tuple[str, ...]
    hash_slot_num: int
    index_num: int
    max_queues: int | None
    was_closed: bool
    records: int
    min_offset: int
    end_offset: int
    right_queues: int
    checkpoint: tuple[str, ...]
    notes: tuple[str, ...]
    digest: str = ""


class RepairPlan(Report[RepairPlanFacts]):
    """The plan of a repair, as `REPAIR_PLAN_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = REPAIR_PLAN_SCHEMA

    @classmethod
    def of_deeds(cls, checked: CheckedStore, deeds: Deeds, options: Check) -> Self:
        """Make the plan of what has to be done."""
        facts, rules = checked, checked.plan.rules.queue_rules
        chosen = options.store_path_commit_log
        assumed = checked.plan.index_assumption if deeds.index is not None else ""
        found = RepairPlanFacts(
            store=facts.store,
            release=facts.release,
            broker_config=None if options.broker_config is None else str(options.broker_config),
            store_path_commit_log=None if chosen is None else str(chosen),
            check_crc=options.check_crc,
            batch_topic=tuple(options.batch_topic),
            hash_slot_num=rules.max_hash_slot_num,
            index_num=rules.max_index_num,
            max_queues=options.max_queues,
            was_closed=facts.was_closed,
            records=facts.records,
            min_offset=facts.min_offset,
            end_offset=facts.end_offset,
            right_queues=facts.queues - sum(1 for each in deeds.queues if each.deed == "rebuild"),
            checkpoint=deeds.checkpoint,
            notes=(*facts.notes, assumed) if assumed else facts.notes,
        )
        plan = cls.of(found, _rows(checked, deeds))
        return cls(replace(found, digest=plan_digest(plan.to_json())), plan.tables)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.found.checkpoint or self.tables["queues"].num_rows or self.tables["index_files"].num_rows)

    @property
    def verdict(self) -> Verdict:
        """Findings if there is anything to do, or left."""
        return Verdict.FINDINGS if self.is_needed or self.tables["left"].num_rows else Verdict.CLEAN

    def _lines(self) -> Iterator[str]:
        found, queues = self.found, self.tables["queues"]
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
        deeds = [each["deed"] for each in rows if each["file"] is not None]
        if not deeds:
            return f"there is none; to make in files of {sizes}"
        kept, replaced = deeds.count("keep"), counted(deeds.count("replace"), "file")
        stay = f", {kept} {agreeing(kept, 'stays', 'stay')}" if kept else ""
        return f"{replaced} to replace{stay}; new ones have {sizes}"


def plan_digest(plan: Mapping[str, Any]) -> str:
    """Return the digest of a plan in JSON, as `REPAIR_PLAN_SCHEMA` explains it."""
    return sha256(json.dumps({**plan, "digest": ""}, sort_keys=True).encode()).hexdigest()


def _rows(checked: CheckedStore, deeds: Deeds) -> dict[str, list[dict[str, Any]]]:
    left = [
        (kind, count)
        for kind, count in checked.tally.counts
        if not (kind.is_of_queues or kind.is_of_index or kind is FindingKind.CHECKPOINT)
    ]  # of log and configuration
    return {
        "queues": [{**each._asdict(), "why": " ".join(each.why)} for each in deeds.queues],
        "index_files": list(_index_rows(deeds)),
        "left": [{"kind": kind, "count": count, "meaning": kind.meaning} for kind, count in left],
        "looked_at": [each._asdict() for each in looked_at(checked, deeds)],
    }


def _index_rows(deeds: Deeds) -> Iterator[dict[str, Any]]:
    index = deeds.index
    if index is None:
        return
    for name in index.kept:
        yield {"file": name, "deed": "keep", "why": " ".join(index.why.get(name, ()))}
    for name in index.replaced:
        yield {"file": name, "deed": "replace", "why": " ".join(index.why.get(name, ()))}
    if "" in index.why:
        deed = "replace" if index.kept or index.replaced else "make"
        yield {"file": None, "deed": deed, "why": " ".join(index.why[""])}


_MOST_BYTES: Final = 1 << 30
_COMPARED: Final = ("queues", "index_files")
_TYPES: Final = {
    "release": (str,),
    "broker_config": (str, type(None)),
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
        if not isinstance(plan, dict) or plan.get("schema") != REPAIR_PLAN_SCHEMA.name:
            found = plan.get("schema") if isinstance(plan, dict) else plan
            raise InvalidOptionError(
                f"{path} is not a plan of this version: expected `schema` {REPAIR_PLAN_SCHEMA.name!r}, found "
                f"{str(found)[:100]!r}. Make one with commitlog repair STORE --plan FILE"
            )
        if plan.get("digest") != plan_digest(plan):
            raise RepairRefusedError(
                f"{path} was changed after it was made: its `digest` is not that of its content. Make a new plan"
            )
        tables = plan.get("tables")
        if not (
            isinstance(tables, dict) and all(_is_table(tables.get(each.name)) for each in REPAIR_PLAN_SCHEMA.tables)
        ):
            raise InvalidOptionError(f"{path} lacks tables of a plan. Make a new one")
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
    if path.stat().st_size > _MOST_BYTES:
        raise InvalidOptionError(f"{path} has {path.stat().st_size:,} bytes: a plan has at most {_MOST_BYTES:,}")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(
            f"{path} is not JSON: {error}. Give what commitlog repair STORE --plan wrote"
        ) from error


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
