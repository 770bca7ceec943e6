# SPDX-License-Identifier: Apache-2.0
"""The answer `export`: messages as Parquet, or in a table of a lake, exactly once, with a proof at any time."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote  # noqa: TID251 -- makes a name, opens nothing

from store_core.answers.answer import Answer, AnyReport, flag, function_of, opt
from store_core.errors import InvalidOptionError
from store_core.store.export.lake_table import LAKE_FORMATS, LakeFormat, check_table, table_of

if TYPE_CHECKING:
    import os

    from store_core.answers.export_proof import ProofReport
    from store_core.answers.report import Report
    from store_core.snapshot.store import Store
    from store_core.store.export.export_ledger import ExportLedger
    from store_core.store.parts import Engine


@dataclass(frozen=True)
class _OfLake(Answer[AnyReport]):
    """What is asked of a lake."""

    into: str | os.PathLike[str] = opt(MISSING, "The directory of the lake, outside of STORE.", metavar="DIRECTORY")
    kind: LakeFormat = opt(
        "parquet",
        "Format of the lake. Tables of Iceberg and Delta need Spark, with their jars.",
        flag="--format",
        choices=LAKE_FORMATS,
    )
    table: str | None = opt(
        None, "Name of the Iceberg table, CATALOG.NAMESPACE.TABLE. DIRECTORY then has the ledger alone.", metavar="NAME"
    )

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        check_table(self.kind, self.table)

    def for_store(self, name: str) -> Self:
        """Give each store a directory of its own, which is a partition of the lake."""
        if self.table is not None:
            raise InvalidOptionError(f"--table {self.table}: expected one store; give each a table of its own")
        return replace(self, into=Path(self.into) / f"store={quote(name, safe='')}")

    def _ledger(self, engine: Engine) -> ExportLedger:
        from store_core.files.file_system import OsFileSystem
        from store_core.store.export.export_ledger import ExportLedger

        table = table_of(engine, self.kind, self.into, self.table)
        return ExportLedger(Path(self.into).resolve(), OsFileSystem(), table)


@dataclass(frozen=True)
class Prove(_OfLake["ProofReport"]):
    """Compare what was exported with the log again: counts and totals of checksums, segment by segment.

    Every file that the ledger names is read, with the checksums of the bodies that are really in it, and every segment
    that the store still has. Nothing is written.
    """

    def on(self, engine: Engine, store: Store) -> ProofReport:
        """Read both sides again."""
        from store_core.answers.export_proof import prove_by

        return prove_by(engine, store.paths, self._ledger(engine))


@dataclass(frozen=True)
class Export(_OfLake["Report[Any]"]):
    """Export messages as Parquet, by topic and day: new ones, each exactly once.

    STORE is only read, and may be live. A run that is killed is finished by the next one. The exit code is 0 if all is
    exported, 5 if something is damaged or gone; with --prove it is 1 if anything differs.
    """

    NAME: ClassVar = "export"
    EXAMPLES: ClassVar = (
        "commitlog export /data/store --into /data/lake",
        "commitlog export /data/store --into /data/orders --topic orders",
        "commitlog export /data/store --into /data/lake --prove",
    )

    topic: tuple[str, ...] = opt((), "Only this topic; can be repeated.", metavar="TOPIC")
    allow_loss: bool = flag("Go on if retention has deleted what was not exported yet.")
    prove: bool = flag("Export nothing; compare what is there with the log.")

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        if self.prove and (self.topic or self.allow_loss):
            raise InvalidOptionError("--prove compares all that was exported: leave out --topic and --allow-loss")

    def on(self, engine: Engine, store: Store) -> Report[Any]:
        """Export, or prove, on an engine all of whose workers see the directory."""
        if self.prove:
            return Prove(self.into, self.kind, self.table).on(engine, store)
        from store_core.answers.export_job import export_by

        return export_by(engine, store.paths, self._ledger(engine), self.topic, allow_loss=self.allow_loss)


export = function_of(Export)
prove = function_of(Prove)
