# SPDX-License-Identifier: Apache-2.0
"""The command that makes consume queues and the key index from the log: rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.arguments import LOG_HELP, NearChoice, examples
from store_core.command.console import Console, connector, is_on_spark, shown_engine, with_processes
from store_core.command.exit_code import ExitCode
from store_core.command.new_file import STANDARD_OUTPUT, check_report, stream_for_text, write_json
from store_core.errors import InvalidOptionError
from store_core.format.release import DEFAULT_RELEASE, RELEASES, release_hint

if TYPE_CHECKING:
    from store_core.store.rebuild.plan import RebuildPlan


_WHAT: Final = ("queues", "index", "both")
_FACTORS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Return a number from 1 to 2^31 - 1, which may end with k, m or g."""
    if value is None:
        return None
    factor = _FACTORS.get(value[-1:].lower(), 1)
    digits = value[:-1] if factor > 1 else value
    size = int(digits) * factor if digits.isdecimal() else 0
    if not 0 < size < 2**31:
        raise click.BadParameter(
            f"expected a number from 1 to {2**31 - 1}, which may end with k, m or g, found {value!r}"
        )
    return size


_NUMBER: Final = click.IntRange(0, 2**63 - 1)


@click.command(
    epilog=examples(
        "commitlog rebuild both /data/store --verify",
        "commitlog rebuild both /data/store --dry-run",
        "commitlog rebuild queues /data/store --replace",
        "commitlog rebuild index /data/store --output /data/new --processes 4",
    )
)
@click.argument("what", metavar="queues|index|both", type=NearChoice(_WHAT))
@click.argument("store", metavar="STORE")
@click.option("--topic", multiple=True, metavar="TOPIC", help="Only queues of this topic; can be repeated.")
@click.option("--queue-id", type=_NUMBER, metavar="ID", help="Only queues with this id.")
@click.option("--with-index", is_flag=True, hidden=True, help="As both in place of queues.")
@click.option("--output", metavar="DIR", help="Where the new files go.  [default: STORE/rebuilt]")
@click.option(
    "--replace", is_flag=True, help="Put the new files in place of the old ones, which are kept in STORE/replaced-N."
)
@click.option(
    "--to",
    type=NearChoice(["files"]),
    help="With --replace: queues in a RocksDB (storeType=defaultRocksDB) may be replaced, for a broker that goes back.",
)
@click.option(
    "--discard-old", is_flag=True, help="Delete the kept files if a check finds nothing wrong with those in place."
)
@click.option(
    "--accept-damage",
    is_flag=True,
    help="Continue after damage with the next sound record, and replace even then.",
)
@click.option("--verify", is_flag=True, help="Check the files in place, as commitlog check does, and change nothing.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option(
    "--json",
    "target",
    is_flag=False,
    flag_value=STANDARD_OUTPUT,
    metavar="[FILE]",
    help="Write the report as JSON to this file, or, without FILE, to standard output.",
)
@click.option(
    "--since-offset",
    type=_NUMBER,
    default=0,
    metavar="N",
    help="Rebuild from this physical offset on; units and entries of earlier records are kept.",
)
@click.option(
    "--release",
    type=NearChoice(RELEASES, release_hint),
    default=DEFAULT_RELEASE,
    help=f"RocketMQ that serves the store.  [default: {DEFAULT_RELEASE}]",
)
@click.option(
    "--config",
    metavar="FILE",
    help="The broker's configuration, for all sizes and switches, and where the log is.",
)
@click.option("--store-path-commit-log", metavar="PATH", help=LOG_HELP)
@click.option(
    "--consume-queue-file-size",
    callback=_size,
    metavar="BYTES",
    help="Bytes of a queue file (mappedFileSizeConsumeQueue).",
)
@click.option("--hash-slot-num", callback=_size, metavar="N", help="Slots of an index file (maxHashSlotNum).")
@click.option("--index-num", callback=_size, metavar="N", help="Entries of an index file (maxIndexNum).")
@click.option("--batch-topic", multiple=True, metavar="TOPIC", help="A topic with queue.type=BatchCQ; can be repeated.")
@click.option("--ext", is_flag=True, help="Make queues with extensions (enableConsumeQueueExt).")
@click.option(
    "--light/--no-light",
    default=None,
    help="Make light queues (enableLmq, enableMultiDispatch), or none.  [default: make them if records name any]",
)
@click.option(
    "--no-batch-inference",
    "batch_inference",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not infer batch topics from records.",
)
@click.option("--check-crc", is_flag=True, help="End the log at a body that does not match its checksum.")
@click.option(
    "--max-queues",
    callback=_size,
    metavar="N",
    help="Refuse a log that names more queues than this.  [default: 1,000,000]",
)
@with_processes
def rebuild(  # noqa: PLR0913 -- click passes all by name
    what: str,
    store: str,
    *,
    topic: tuple[str, ...],
    with_index: bool,
    dry_run: bool,
    target: str | None,
    processes: int,
    **given: Any,  # noqa: ANN401 -- options of `RebuildOptions`, by name
) -> ExitCode:
    """Make consume queues, the key index, or both from the log, byte for byte as a broker writes them.

    Sizes and rules are by default those of the existing files, else RocketMQ's own. The exit code is 1 if
    the check of --verify or --discard-old has findings. --replace on a damaged log ends with 4 and replaces nothing;
    with --accept-damage it ends with 5.
    """
    from store_core.answers.rebuild import plan_rebuild
    from store_core.store.rebuild.plan import RebuildOptions

    if given["verify"] and (given["replace"] or given["discard_old"] or given["since_offset"] or given["output"]):
        raise InvalidOptionError(
            "--verify changes nothing: it can't be combined with --replace, --discard-old, --since-offset, --output"
        )
    has_index = with_index or what != "queues"
    options = RebuildOptions(with_queues=what != "index", with_index=has_index, topic=topic or None, **given)
    return _run(plan_rebuild(store, options), target, processes, is_dry_run=dry_run)


def _run(plan: RebuildPlan, target: str | None, processes: int, *, is_dry_run: bool) -> ExitCode:
    from store_core.answers.rebuild import StoreRebuild
    from store_core.files.access import check_writable

    out = stream_for_text(target)

    def tell(text: str) -> None:
        click.echo(text, file=out)

    for line in plan.describe():
        tell(line)
    if is_dry_run:
        tell("nothing was changed: this is what would be done without --dry-run")
        return ExitCode.DONE
    check_report("--json", target)
    if is_on_spark():
        connector("java").require_java()  # before the store is locked
    if not plan.options.verify:
        check_writable(plan.output)

    clock = Console.of(click.get_current_context()).clock
    began = clock.monotonic()
    result = StoreRebuild(plan, lambda _: shown_engine(processes), tell).run()
    code = ExitCode.of(result.verdict)
    seconds = clock.monotonic() - began
    tell(result.to_text())
    write_json(result.to_json(exit_code=int(code), seconds=round(seconds, 3)), target)
    tell(f"{seconds:.1f} s, exit code {int(code)}")
    return code
