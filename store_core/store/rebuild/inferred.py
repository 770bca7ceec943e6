# SPDX-License-Identifier: Apache-2.0
"""Notes on what a rebuild inferred from records in the absence of options and files, and on what it assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.format.counted import counted
from store_core.queue.dispatch.lmq_units import is_light

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.store.rebuild.plan import RebuildPlan
    from store_core.store.rebuild.report import RebuildReport

__all__ = ["inference_notes"]


def inference_notes(plan: RebuildPlan, report: RebuildReport) -> list[str]:
    """Return notes on what was inferred and why, and on what was assumed without evidence; one line each."""
    of_queues = [*_light(plan, report), *_light_counts(plan, report), *_batch(report), *plan.assumptions]
    of_queues = of_queues if plan.rules.has_queues else []
    is_index_made = plan.rules.has_index and not plan.options.verify
    of_index = [plan.index_assumption] if is_index_made and plan.index_assumption else []
    return [*of_queues, *of_index, *_tags(report)]


def _tags(report: RebuildReport) -> Iterator[str]:
    if report.untagged_entries:
        records = counted(report.untagged_entries, "record")
        yield (
            f"the index has no entries for the tags of {records}, as releases before 5.4 leave it: a search for topic "
            f"and tags finds none of these. That is no difference"
        )


def _light(plan: RebuildPlan, report: RebuildReport) -> Iterator[str]:
    if report.light_record < 0:
        return
    witness = f"the record at offset {report.light_record} has property INNER_MULTI_QUEUE_OFFSET"
    if not plan.rules.queue_rules.is_multi_dispatch_enabled:
        yield (
            f"light queues are left out, as {plan.light_source} says, although {witness}, which a store writes only "
            f"with light queues on. To rebuild them, add --light"
        )
    elif not plan.light_source:
        yield (
            f"light queues are rebuilt, although neither options nor directories name any: {witness}, which a store "
            f"writes only with light queues on. To leave them out, add --no-light"
        )


def _light_counts(plan: RebuildPlan, report: RebuildReport) -> Iterator[str]:
    """Say what of the records that name light queues is in one."""
    light = report.light
    if not light.named:
        return
    built = [queue.units for queue in report.queues if is_light(queue.topic)]
    why = {
        "have no INNER_MULTI_QUEUE_OFFSET: the store had light queues off when they were put": light.unindexed,
        "have one that does not fit the names": light.unfit,
        f"are of topics that have none by the rules of release {plan.rules.queue_rules.release}": light.kept_out,
    }
    left_out = [f"{count:,} of them {reason}" for reason, count in why.items() if count]
    yield "; ".join(
        [f"{light.named:,} records name light queues; {len(built):,} such queues have {sum(built):,} units", *left_out]
    )


def _batch(report: RebuildReport) -> Iterator[str]:
    why = "has inner batches, which a store accepts for batch topics (queue.type=BatchCQ) only"
    for topic in report.inferred_topics:
        yield f"{topic} is rebuilt as a batch topic, although nothing else says so: it {why}"
    for topic in report.told_topics:
        yield f"{topic} is rebuilt without batch queues, although it {why}: --no-batch-inference says so"
