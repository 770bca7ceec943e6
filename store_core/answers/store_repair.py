# SPDX-License-Identifier: Apache-2.0
"""The answer `repair`: a plan from a check, and the least that makes queues and index right again."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from store_core.answers.answer import Answer, function_of, one_root, opt
from store_core.answers.store_check import Compared
from store_core.errors import InvalidOptionError
from store_core.files.store_path import ConfiguredRoot

if TYPE_CHECKING:
    from store_core.answers.repair_plan import RepairPlan, RepairReport
    from store_core.answers.report import Report
    from store_core.files.file_system import FileSystem
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


@dataclass(frozen=True)
class PlanRepair(Compared["RepairPlan"]):
    """Check a store, and plan the least that makes its queues and index right; nothing is written."""

    def on(self, engine: Engine, store: Store) -> RepairPlan:
        """Check the whole store, and say which queues and index files are wrong, and what would be done."""
        from store_core.answers.repair_job import plan_by
        from store_core.store.store_layout import chosen_log

        path = one_root(store.paths)
        chosen = self.store_path_commit_log or chosen_log(path, self.config)
        return plan_by(engine, os.fspath(path), replace(self, store_path_commit_log=chosen))


@dataclass(frozen=True)
class Repair(Answer["RepairReport"]):
    """Carry out the plan of a repair, if the store is still what the plan was made for.

    New files are made beside the old ones, compared with the log, and put in place; the old ones are kept. A run that
    is killed leaves the old store, or the next one finishes the new one.
    """

    plan: str | os.PathLike[str] = opt(MISSING, "File with what `plan_repair` returned, as JSON.", metavar="FILE")
    file_system: FileSystem | None = None

    def on(self, engine: Engine, store: Store) -> RepairReport:
        """Repair on an engine all of whose workers can write the store."""
        from store_core.answers.repair_job import repair_by

        return repair_by(engine, os.fspath(one_root(store.paths)), self.plan, self.file_system)


plan_repair = function_of(PlanRepair)
repair = function_of(Repair)


_WHOLE: Final = (
    "--apply takes everything from its plan: it can't be combined with --plan, --release, --config, "
    "--store-path-commit-log, --bodies, --batch-topic, --hash-slot-num, --index-num, --max-queues"
)


@dataclass(frozen=True)
class RepairCommand(Compared["Report[Any]"]):
    """Make queues and index right again: only those that are wrong, from the log.

    Without --apply this only plans: it checks STORE, says which queues and index files are wrong and what would be
    done, and changes nothing. With --apply it does what the plan says, if the store is still what the plan was made
    for. New files are made beside the old ones, compared with the log, and put in place; the old ones are kept. No
    broker may run.

    The exit code of a plan is 1 if there is anything to do.
    """

    NAME: ClassVar = "repair"
    CONFIG_WORDS: ClassVar = "sizes that no file shows"
    IS_LOCAL: ClassVar = True
    JSON_FILE: ClassVar = ("plan", "Write the plan to a new file, as JSON.")
    EXAMPLES: ClassVar = (
        "commitlog repair /data/store",
        "commitlog repair /data/store --plan plan.json",
        "commitlog repair /data/store --apply plan.json",
    )

    apply: str | os.PathLike[str] | None = opt(None, "Carry out the plan in this file.", metavar="FILE")
    plan: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        others = [each for each in fields(self) if each.name != "apply"]
        if self.apply is not None and any(getattr(self, each.name) != each.default for each in others):
            raise InvalidOptionError(_WHOLE)

    def on(self, engine: Engine, store: Store) -> Report[Any]:
        """Plan, or carry out a plan."""
        if self.apply is not None:
            if isinstance(store.paths, ConfiguredRoot):  # by --config or --store-path-commit-log
                raise InvalidOptionError(_WHOLE)
            return Repair(self.apply).on(engine, store)
        given = {each.name: getattr(self, each.name) for each in fields(PlanRepair)}
        return PlanRepair(**given).on(engine, store)
