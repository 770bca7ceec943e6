# SPDX-License-Identifier: Apache-2.0
"""A plan as it comes back from a file: checked, and compared with the store that it is for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from store_core.answers.checking.check_options import CheckOptions
from store_core.answers.repairing.repair_plan import REPAIR_PLAN_SCHEMA, plan_digest
from store_core.errors import InvalidOptionError, RepairRefusedError

if TYPE_CHECKING:
    import os

    from store_core.answers.repairing.repair_plan import RepairPlan

__all__ = ["SignedPlan"]

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
    """A plan that was written to a file, and is unchanged since.

    Attributes
    ----------
    path : str
    options : CheckOptions
        With which the plan was made.
    digest : str
    tables : dict of str to list of dict
        The rows of the plan's tables.
    """

    path: str
    options: CheckOptions
    digest: str
    tables: dict[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan.

        Raises
        ------
        InvalidOptionError
            If it is not a plan of this version.
        RepairRefusedError
            If it was changed after it was made.
        OSError
            If it can't be read.
        """
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

        Parameters
        ----------
        now : RepairPlan
            A plan made by the same options just now.

        Raises
        ------
        RepairRefusedError
            With the name of what differs first.
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


def _options_of(plan: dict[str, Any], path: str | os.PathLike[str]) -> CheckOptions:
    """Return the options of the check; the values are checked where they are used."""
    for name, types in _TYPES.items():
        if name not in plan or type(plan[name]) not in types:
            found = f"{plan[name]!r:.100}" if name in plan else "missing"
            raise InvalidOptionError(f"{path}: `{name}` is {found}. Make a new plan")
    if not all(isinstance(topic, str) for topic in plan["batch_topic"]):
        raise InvalidOptionError(f"{path}: `batch_topic` is {plan['batch_topic']!r}. Make a new plan")
    return CheckOptions(**{name: plan[name] for name in _TYPES})
