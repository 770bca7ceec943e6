# SPDX-License-Identifier: Apache-2.0
"""The command that makes a redacted copy of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.command.examples import examples
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.command.storage_arguments import with_log

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput
    from store_core.command.storage_arguments import Store

__all__ = ["redact"]


@click.command(
    epilog=examples(
        "commitlog redact /data/snapshot --into /data/clean --text jane@example.org",
        "commitlog redact /data/snapshot --into /data/clean --pattern '[0-9]{16}'",
        "commitlog redact /data/snapshot --into /data/clean --topic clicks",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--into", required=True, metavar="PATH", help="The copy: where nothing is yet.")
@click.option("--pattern", metavar="REGEX", help="What a regular expression matches in bodies.")
@click.option("--text", metavar="TEXT", help="A text in bodies.")
@click.option("--key", metavar="KEY", help="The bodies of messages with this key or unique key.")
@click.option("--topic", multiple=True, metavar="TOPIC", help="All bodies of this topic; can be repeated.")
@with_processes
@with_log
@with_report
def redact(  # noqa: PLR0913 -- the command's own options
    store: Store,
    into: str,
    pattern: str | None,
    text: str | None,
    key: str | None,
    topic: tuple[str, ...],
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Copy a store without what must not be in it: bodies are replaced, in part or whole, by filler as long.

    Exactly one of --pattern, --text, --key and --topic is given. STORE is only read, and no broker may hold it. The
    exit code is 4 if something can't be redacted or is left: then there is no copy, and the report says where.
    """
    from store_core.answers.redacting.redaction import Redaction
    from store_core.answers.store_redact import redact_by

    redaction = Redaction.of(pattern, text, key, topic)
    with shown_engine(processes) as engine:
        return output.put(redact_by(engine, store, into, redaction))
