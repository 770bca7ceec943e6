# SPDX-License-Identifier: Apache-2.0
"""Runs a campaign, and prints what came of each target.

Usage: python -m tests.fuzz.campaign [--budget CASES] [--seed SEED] [--seconds N] [--case N] [TARGET ...]

The budget is shared among the targets as each says. A case has a number, and is the same for the same seed: with
--case one is run again, without limits, in this process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.fuzz.limits import run_case, run_target
from tests.fuzz.targets import TARGETS, target_named

_MEBIBYTE: Final = 1 << 20


def main() -> int:
    """Run the program; return 1 if a case failed."""
    asked = _arguments()
    targets = [target_named(name) for name in asked.targets] or list(TARGETS)
    if asked.case is not None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
            run_case(targets[0], asked.seed, asked.case, Path(directory))
        return 0
    until = time.monotonic() + asked.seconds
    share = asked.budget / sum(target.cases for target in targets)
    outcomes = []
    print(f"{'target':22} {'cases':>9} {'failed':>6} {'CPU s':>8} {'us/case':>8} {'MiB more':>8}", flush=True)
    for target in targets:
        outcome = run_target(target, asked.seed, max(round(target.cases * share), 1), until=until)
        outcomes.append(outcome)
        each = outcome.seconds / max(outcome.cases, 1) * 1e6
        print(
            f"{target.name:22} {outcome.cases:9,} {len(outcome.failures):6} {outcome.seconds:8.1f} {each:8.0f} "
            f"{outcome.memory / _MEBIBYTE:8.0f}",
            flush=True,
        )
        for failure in outcome.failures:
            print(failure, file=sys.stderr, flush=True)
    failed = sum(len(outcome.failures) for outcome in outcomes)
    print(
        f"{'all':22} {sum(each.cases for each in outcomes):9,} {failed:6} {sum(each.seconds for each in outcomes):8.1f}"
    )
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz every decoder.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(map(str, TARGETS)))
    parser.add_argument("--budget", type=int, default=1_000_000, help="cases in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after that time")
    parser.add_argument("--case", type=int, help="run one case of the first target again, without limits")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
