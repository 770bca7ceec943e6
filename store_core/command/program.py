# SPDX-License-Identifier: Apache-2.0
"""The program `commitlog`: its commands, which are imported when they are run, and how each of them ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from store_core import __version__
from store_core.command.console import say
from store_core.command.exit_code import INTERRUPTED, NO_READER, ExitCode, failure_of
from store_core.command.main import discard_output, ended
from store_core.errors import TolerableError
from store_core.format.words import hint_of

_MESSAGES: Final = "Messages"
_STORE: Final = "The store"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A command of the program: where it is (``MODULE:CLASS`` of an answer), and what `commitlog --help` says of it."""

    section: str
    name: str
    module: str
    summary: str


_ENTRIES: Final = (
    _Entry(_MESSAGES, "cat", "rows", "print messages"),
    _Entry(_MESSAGES, "head", "rows", "print the first messages"),
    _Entry(_MESSAGES, "tail", "rows", "print the last messages, and those that arrive"),
    _Entry(_MESSAGES, "get", "rows", "print one message, by key, id or position"),
    _Entry(_MESSAGES, "trace", "message_trace:Trace", "tell what happened to a message, in order"),
    _Entry(
        _MESSAGES, "transactions", "store_transactions:Transactions", "tell how transactions ended, and which did not"
    ),
    _Entry(_MESSAGES, "delays", "store_delays:Delays", "tell when delayed messages are due, and which are late"),
    _Entry(_MESSAGES, "deadletters", "store_dead_letters:DeadLetters", "tell what consumers gave up, and why"),
    _Entry(_MESSAGES, "replay", "store_replay:Replay", "append messages again, such as dead letters, once"),
    _Entry(_MESSAGES, "append", "append", "append rows, or messages of another store, all or none"),
    _Entry(_MESSAGES, "count", "rows", "count messages and bytes, in all or by columns"),
    _Entry(_MESSAGES, "explain", "rows", "say how messages would be read, and what that costs"),
    _Entry(_MESSAGES, "sql", "rows", "ask in SQL for messages, queues, offsets and more"),
    _Entry(_MESSAGES, "schema", "rows", "list the columns of a message"),
    _Entry(_STORE, "info", "info:Info", "say what a store is, at once, and what to ask next"),
    _Entry(_STORE, "ls", "rows", "list the segments of the log"),
    _Entry(_STORE, "topics", "rows", "list topics and queues"),
    _Entry(_STORE, "view", "rows", "print queues, index, offsets and other tables"),
    _Entry(_STORE, "bill", "store_bill:Bill", "say who uses the disk"),
    _Entry(_STORE, "check", "store_check:Check", "check log, queues and index against each other"),
    _Entry(_STORE, "diff", "log_diff:Diff", "compare the logs of two stores"),
    _Entry(_STORE, "export", "store_export:Export", "write messages as Parquet, each once, and prove it"),
    _Entry(_STORE, "producers", "store_producers:Producers", "say what a broker can't tell of producers"),
    _Entry(_STORE, "rebuild", "rebuild", "make queues, index, or both from the log"),
    _Entry(_STORE, "redact", "store_redact:Redact", "copy the store without what must not be in it"),
    _Entry(_STORE, "repair", "store_repair:RepairCommand", "make wrong queues and index files again from the log"),
    _Entry(_STORE, "salvage", "log_salvage:Salvage", "take what is sound out of a damaged log"),
    _Entry(_STORE, "lag", "store_lag:Lag", "say how far consumer groups are behind"),
    _Entry(_STORE, "retention", "store_retention:Retention", "say what a broker will delete, and when"),
    _Entry(_STORE, "recover", "store_recover:Recover", "show what opening the store for writing would change"),
)
_WORDS: Final = "store_core.words"
_BY_NAME: Final = {entry.name: entry for entry in _ENTRIES}
_ENDINGS: Final = ((str(INTERRUPTED), "ended by ^C"), (str(NO_READER), "whoever read the output closed it"))
_EXAMPLES: Final = (
    "commitlog head /data/rocketmq/store",
    "commitlog count /data/rocketmq/store --by topic",
    "commitlog get /data/rocketmq/store order-4711",
)


class _Program(click.Group):
    """A group that imports a command when it is run, so that `--help` and completion are fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(_BY_NAME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- as above
        entry = _BY_NAME.get(cmd_name)
        if entry is None:
            return None
        module, _, answer = entry.module.partition(":")
        if answer:
            from store_core.command.answer_command import command_of

            return command_of(getattr(import_module(f"store_core.answers.{module}"), answer))
        command = getattr(import_module(f"store_core.command.{module}"), entry.name)
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the nearest is suggested for one that there is not."""
        if args and args[0] not in _BY_NAME and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{hint_of(args[0], _BY_NAME) or '; commitlog --help lists them'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- as above
        for section in (_MESSAGES, _STORE):
            with formatter.section(section):
                formatter.write_dl([(entry.name, entry.summary) for entry in _ENTRIES if entry.section == section])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- as above
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in _EXAMPLES))
        with formatter.section("Exit codes"):
            formatter.write_dl([*((str(int(code)), code.meaning) for code in ExitCode), *_ENDINGS])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [entry for entry in _ENTRIES if entry.name.startswith(incomplete)]
        found = [CompletionItem(entry.name, help=entry.summary) for entry in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they were given, for the message of an error."""
        ctx.meta[_WORDS] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:  # of --help and --version, which write before a command is run
            discard_output()
            ctx.exit(NO_READER)
        except OSError as error:
            ctx.exit(self._tell(ctx, error))

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's signature
        """Run the command; end with its exit code, or with the one of its error."""
        ctx.exit(ended(partial(super().invoke, ctx), partial(self._tell, ctx)))

    def _tell(self, ctx: click.Context, error: Exception) -> ExitCode:
        """Say what is wrong, and return the exit code; what click raises ends the program in its own way."""
        if isinstance(error, (click.exceptions.Exit, click.ClickException)):
            raise error
        code, text = failure_of(error, ctx.meta[_WORDS])
        if isinstance(error, TolerableError):
            text = f"{error.problem.removesuffix('.')}{self._way_on(ctx)}"
        say(text)
        return code

    def _way_on(self, ctx: click.Context) -> str:
        """Return how to go on after an error that an option turns into a warning, if the command has this option."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        has_option = command is not None and any(each.name == "fail_on_data_loss" for each in command.params)
        return ". To read what is there: --no-fail-on-data-loss" if has_option else ""


@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="commitlog")
def program() -> None:
    """Look into the store of an Apache RocketMQ broker: a copy, a snapshot, or the disk of one that is running.

    Nothing is written to a store, and no lock is taken, except by `append`, `replay`, `rebuild` and `repair --apply`.
    These, `repair --plan` and `redact` need a store that no broker holds. Each command has a --help with examples.
    """
