# SPDX-License-Identifier: Apache-2.0
"""The command that shows what opening a store for writing would change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.answers.text.shown_text import escape_json, escape_text
from store_core.command.examples import examples
from store_core.command.exit_code import ExitCode
from store_core.format.releases.release import DEFAULT_RELEASE, RELEASES
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.store.message_store import DefaultMessageStore

if TYPE_CHECKING:
    from store_core.store.recovery.recovery_report import RecoveryReport

__all__ = ["recover"]

_SCHEMA: Final = "commitlog-recover/1"
_CHOICES: Final = {name: (name,) for name in RELEASES} | {"all": RELEASES}
"""What ``--release`` may be -> the releases that it stands for."""

_URGENCY: Final = (ExitCode.REFUSED, ExitCode.FINDINGS, ExitCode.DAMAGED, ExitCode.DONE)
"""What to act on first, if a store ends differently with different releases."""


@click.command(
    epilog=examples(
        "commitlog recover /data/store --dry-run",
        "commitlog recover /data/store --dry-run --release 4.9 --config broker.conf",
        "commitlog recover /data/store --dry-run --release all --json",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--dry-run", is_flag=True, required=True, help="Change nothing. Required: this command only looks.")
@click.option(
    "--release",
    type=click.Choice(list(_CHOICES)),
    default=DEFAULT_RELEASE,
    help=f"RocketMQ that would open the store; all: one after the other.  [default: {DEFAULT_RELEASE}]",
)
@click.option("--config", metavar="FILE", help="The broker's configuration, if it does not have the usual file sizes.")
@click.option("--json", "is_json", is_flag=True, help="Print an object per release, each on a line.")
def recover(store: str, dry_run: bool, release: str, config: str | None, is_json: bool) -> ExitCode:  # noqa: FBT001 -- click passes all by name
    """Show what opening a store for writing, as a broker does at its start, would truncate, rebuild or refuse.

    The same code runs as for a real start, on changes that are kept in memory. The exit code is 0 if nothing would
    change, 1 if something would, 4 if the store would be refused, and 5 if nothing would change but the log is damaged.
    """
    del dry_run  # required, so that the command can never mean anything else
    base = MessageStoreConfig() if config is None else MessageStoreConfig.from_properties(config)
    codes = set()
    for at, name in enumerate(_CHOICES[release]):
        report = DefaultMessageStore.dry_run(store, replace(base, release=name))
        _print(report, is_json=is_json, is_first=not at)
        codes.add(_code(report))
    return next(code for code in _URGENCY if code in codes)


def _code(report: RecoveryReport) -> ExitCode:
    if report.is_refused:
        return ExitCode.REFUSED
    if report.changes:
        return ExitCode.FINDINGS
    return ExitCode.DAMAGED if report.end.tails else ExitCode.DONE


def _print(report: RecoveryReport, *, is_json: bool, is_first: bool) -> None:
    if is_json:
        click.echo(escape_json(json.dumps(_as_json(report), ensure_ascii=False)))
        return
    lines = ([] if is_first else [""]) + str(report).split("\n")
    click.echo("\n".join(map(escape_text, lines)))


def _as_json(report: RecoveryReport) -> dict[str, Any]:
    """Return what a program needs of a report; offsets are physical."""
    return {
        "schema": _SCHEMA,
        "release": report.release,
        "was_closed": report.last_exit_ok,
        "refusal": report.refusal or None,
        "records": report.records,
        "min_offset": report.min_offset,
        "max_offset": report.max_offset,
        "end_offset": report.end_offset,
        "recovery_end_offset": report.recovery_end_offset,
        "truncated_files": report.truncated_files,
        "decisions": [{"what": each.what, "where": each.where, "why": each.why} for each in report.decisions],
        "notes": list(report.notes),
        "changes": [
            {
                "path": str(change.path),
                "kind": change.kind,
                "first_changed": change.first_changed,
                "size": change.size,
                "is_directory": change.is_directory,
            }
            for change in report.changes
        ],
        "checked": [check.name.lower() for check in report.coverage.checked],
        "not_checked": [check.name.lower() for check in report.coverage.not_checked],
    }
