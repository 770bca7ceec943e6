# SPDX-License-Identifier: Apache-2.0
"""The releases of RocketMQ whose behaviour can be followed, and what each does: one table, which everything asks.

A release is a column: the one before it, with what it changed. No other module compares the names of releases.
"""

from __future__ import annotations

import copyreg
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from store_core.errors import InvalidOptionError
from store_core.format.near_name import did_you_mean
from store_core.format.release_rules import ReleaseRules

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULT_RELEASE", "RELEASES", "RELEASE_RULES", "Release", "rules_of"]

Release: TypeAlias = Literal["4.3", "4.9", "5.3"]
"""Whose behaviour is followed: a name of `RELEASES`."""

_4_3: Final = ReleaseRules(
    release="4.3",
    judge="4.3.0",
    # records and properties
    decoded_properties_capacity=16,
    writes_null_properties=True,
    ends_properties_with_separator=True,
    # files
    ends_loading_at_odd_file=True,
    group_commit_attempts=2,
    group_commit_pause_ms=0,
)

_4_9: Final = replace(
    _4_3,
    release="4.9",
    judge="4.9.7",
    # records and properties
    splits_properties_at_first_separator=True,
    writes_null_properties=False,
    ends_properties_with_separator=False,
    stores_ipv6_hosts=True,
    limits_bodies=True,
    refuses_long_properties_before_append=True,
    gives_members_batch_properties=True,
    # files
    ends_loading_at_odd_file=False,
    # consume queues and index
    has_light_queues=True,
    covers_log_to_record_end=True,
    counts_hash_slots_in_use=True,
)

_5_3: Final = replace(
    _4_9,
    release="5.3",
    judge="5.3.3",
    # records and properties
    decoded_properties_capacity=128,
    ends_properties_with_separator=True,
    has_message_version_2=True,
    has_property_crc=True,
    has_inner_batches=True,
    has_timer_messages=True,
    has_sql_string_predicates=True,
    # files
    passes_over_directories=True,
    deletes_empty_last_file=True,
    group_commit_attempts=1000,
    group_commit_pause_ms=1,
    notes_process_in_abort_file=True,
    # consume queues and index
    has_batch_queues=True,
    keeps_light_queues_from_system_topics=True,
    passes_over_light_names_with_slash=True,
    halves_queue_for_min_offset=True,
    searches_time_by_boundary=True,
    keeps_found_offset_in_queue=True,
    checks_record_fits_buffer=True,
    checks_dup_info=True,
    refuses_directory_in_index=True,
    writes_header_of_unused_index=True,
)

RELEASE_RULES: Final[dict[Release, ReleaseRules]] = {"4.3": _4_3, "4.9": _4_9, "5.3": _5_3}
"""What each release does, oldest first."""

RELEASES: Final = tuple(RELEASE_RULES)
"""The names of all releases, oldest first."""

DEFAULT_RELEASE: Final[Release] = RELEASES[-1]
"""The release that is followed if nobody says which."""


def rules_of(release: str) -> ReleaseRules:
    """Return what a release does.

    Raises
    ------
    InvalidOptionError
        If there is no such release; the known ones are named, and the nearest.
    """
    try:
        return RELEASE_RULES[release]  # type: ignore[index]  # any other name is an error, which is told below
    except (KeyError, TypeError):
        question = did_you_mean(str(release), RELEASES)
        hint = f"; {question}" if question else ""
        raise InvalidOptionError(f"release: expected one of {', '.join(RELEASES)}, found {release!r}{hint}") from None


def _reduce(rules: ReleaseRules) -> tuple[Callable[[str], ReleaseRules], tuple[str]]:
    return rules_of, (rules.release,)


copyreg.pickle(ReleaseRules, _reduce)  # by name: configurations that hold it go to tasks
