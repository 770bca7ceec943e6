# SPDX-License-Identifier: Apache-2.0
"""The commands ``commitlog-rebuild-consume-queue`` and ``commitlog-rebuild-index``: command lines and reports."""

from __future__ import annotations

import argparse
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.command import add_version, run_command
from pyspark_commitlog.jobs.engine_choice import add_engine
from pyspark_commitlog.jobs.job_output import words_beside, write_json
from pyspark_commitlog.path_checks import check_report, check_writable
from pyspark_commitlog.running_spark import is_spark_running
from store_core.command.exit_code import ExitCode, exit_code_help
from store_core.errors import UnsafeSizeError
from store_core.format.releases.release import DEFAULT_RELEASE, RELEASES
from store_core.store.rebuild.options import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_commitlog.jobs.engine_choice import EngineName
    from store_core.answers.rebuild import EngineSource
    from store_core.store.rebuild.options import RebuildOptions
    from store_core.store.rebuild.plan import RebuildPlan

__all__ = ["rebuild_consume_queue", "rebuild_index"]

_REMARK: Final = """\
With 1 the check of --verify or --discard-old has findings. --replace on a damaged log ends with 4 and replaces \
nothing; with --accept-damage it ends with 5.
"""
_LOCAL_BYTES: Final = 4 << 30
"""Largest log that is rebuilt without Spark by default. In one process a GiB takes 1.5 s, on Spark with two slots 1.1 s
after some 8 s for its start; more slots make it faster, but not its start."""

_SUFFIXES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def rebuild_consume_queue(arguments: Sequence[str] | None = None) -> int:
    """Run ``commitlog-rebuild-consume-queue``; return the exit code, see `store_core.command.exit_code`."""
    parser = _parser(
        "commitlog-rebuild-consume-queue",
        "Rebuilds the consume queues of a RocketMQ store from its commit log, byte for byte as a broker writes them.",
    )
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="only queues of this topic; can be repeated")
    parser.add_argument("--queue-id", type=_number, metavar="ID", help="only queues with this id")
    parser.add_argument("--with-index", action="store_true", help="rebuild the index in the same pass over the log")
    return _main(parser, arguments, has_queues=True)


def rebuild_index(arguments: Sequence[str] | None = None) -> int:
    """Run ``commitlog-rebuild-index``; return the exit code, see `store_core.command.exit_code`."""
    parser = _parser(
        "commitlog-rebuild-index",
        "Rebuilds the key index of a RocketMQ store from its commit log, as a single writer does.",
    )
    parser.set_defaults(topic=None, queue_id=None, with_index=True)
    return _main(parser, arguments, has_queues=False)


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=exit_code_help(_REMARK),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    parser.add_argument("store", metavar="STORE", help="store root, on a file system that every worker sees")
    add_engine(parser, "logs of up to 4 GiB")
    _add_results(parser)
    _add_rules(parser)
    return parser


def _add_results(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    add = group.add_argument
    add("--output", metavar="DIR", help=f"where the new files go (default STORE/{OUTPUT})")
    add("--replace", action="store_true", help="put them in place of the old files, which are kept in STORE/replaced-N")
    to = "with --replace: queues in a RocksDB (storeType=defaultRocksDB) may be replaced, for a broker that goes back"
    add("--to", choices=("files",), help=to)
    add(
        "--discard-old",
        action="store_true",
        help="delete the kept files if a check finds nothing wrong with those in place",
    )
    add(
        "--accept-damage",
        action="store_true",
        help="continue after damage with the next sound record, and replace even then",
    )
    add("--verify", action="store_true", help="check the files in place, as commitlog check does, and change nothing")
    add("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add("--json", metavar="FILE", help="write the report to this file (- is standard output)")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rules and sizes; by default those of the existing files, else RocketMQ's")
    add = group.add_argument
    add("--since-offset", type=_number, default=0, metavar="N", help="only from this physical offset on; keep the rest")
    shown = "the release whose rules are followed (default %(default)s)"
    add("--release", choices=RELEASES, default=DEFAULT_RELEASE, help=shown)
    configured = "the broker's configuration file, for all sizes and switches, and where the log is"
    add("--config", "--broker-config", dest="broker_config", metavar="FILE", help=configured)
    log = "the log that is meant, if the store has one and --config names another; commas separate directories"
    add("--store-path-commit-log", metavar="PATH", help=log)
    add("--consume-queue-file-size", type=_size, metavar="BYTES", help="mappedFileSizeConsumeQueue")
    add("--hash-slot-num", type=_size, metavar="N", help="maxHashSlotNum")
    add("--index-num", type=_size, metavar="N", help="maxIndexNum")
    add("--batch-topic", action="append", default=[], metavar="TOPIC", help="a topic with queue.type=BatchCQ")
    add("--ext", action="store_true", help="with queue extensions (enableConsumeQueueExt)")
    light = "with light queues (enableLmq, enableMultiDispatch), or without; by default if records name any"
    add("--light", action=argparse.BooleanOptionalAction, help=light)
    add(
        "--no-batch-inference",
        dest="batch_inference",
        action="store_false",
        help="do not infer batch topics from records",
    )
    add("--check-crc", action="store_true", help="end the log at a body that does not match its checksum")
    add("--max-queues", type=_size, metavar="N", help="refuse a log that names more queues (default 1,000,000)")


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _size(text: str) -> int:
    factor = _SUFFIXES.get(text[-1:].lower(), 1)
    value = _number(text[:-1] if factor > 1 else text) * factor
    if not 0 < value < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to {2**31 - 1}")
    return value


def _main(parser: argparse.ArgumentParser, arguments: Sequence[str] | None, *, has_queues: bool) -> int:
    options = parser.parse_args(arguments)
    options.with_queues = has_queues
    if options.verify and (options.replace or options.discard_old or options.since_offset or options.output):
        parser.error(
            "--verify changes nothing: it can't be combined with --replace, --discard-old, --since-offset, --output"
        )
    return run_command(parser.prog, lambda: _run(options), UnsafeSizeError)  # too many queues


def _run(options: argparse.Namespace) -> ExitCode:
    from store_core.answers.rebuild import StoreRebuild, plan_rebuild

    plan = plan_rebuild(options.store, _rebuild_options(options))
    out = words_beside(options.json)

    def say(text: str) -> None:
        out.write(f"{text}\n")
        out.flush()

    for line in plan.describe():
        say(line)
    if options.dry_run:
        say("nothing was changed: this is what would be done without --dry-run")
        return ExitCode.DONE
    check_report("--json", options.json)
    if not plan.options.verify:
        check_writable(plan.output)
    engines = _engines(options.engine, plan)
    began = time.monotonic()
    result = StoreRebuild(plan, engines, say).run()
    code = ExitCode[result.outcome.name]
    seconds = time.monotonic() - began
    say(result.to_text())
    write_json(result.to_json(exit_code=int(code), seconds=round(seconds, 3)), options.json)
    say(f"{seconds:.1f} s, exit code {int(code)}")
    return code


def _engines(engine: EngineName, plan: RebuildPlan) -> EngineSource:
    """Return what runs the steps of a rebuild."""
    if engine == "local" or (engine == "auto" and plan.size <= _LOCAL_BYTES and not is_spark_running()):
        from store_core.answers.local_engine import local_engine

        return lambda _: local_engine(1)
    from pyspark_commitlog.java import require_java
    from pyspark_commitlog.rebuild.engines import spark_engines

    require_java()
    return spark_engines(plan.size)


def _rebuild_options(options: argparse.Namespace) -> RebuildOptions:
    """Return the rebuild's options from the command line; the rest is for the command itself."""
    from store_core.store.rebuild.options import RebuildOptions

    return RebuildOptions(**{each.name: getattr(options, each.name) for each in fields(RebuildOptions)})
