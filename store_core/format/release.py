# SPDX-License-Identifier: Apache-2.0
"""The releases of RocketMQ that can be followed, and what each does: the one table that all code consults.

Each release is the one before it with its changes. No other module compares the names of releases.
"""

from __future__ import annotations

import copyreg
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from store_core.errors import InvalidOptionError
from store_core.format.release_rules import ReleaseRules
from store_core.format.words import hint_of

if TYPE_CHECKING:
    from collections.abc import Callable


Release: TypeAlias = Literal["4.3", "4.9", "5.3", "5.3.4", "5.4", "5.5", "5.5.1"]
"""The release whose behaviour is followed: a name in `RELEASES`."""

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
    # putting
    reserves_default_topic=True,
    stamps_batches_before_lock=True,
    # recovery
    goes_on_after_odd_size=True,
    # getting and cleaning
    restarts_at_min_offset=True,
    # pulling
    stores_offset_moved_event=True,
    # delayed messages
    notes_delay_offset_while_waiting=True,
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
    # putting
    reserves_default_topic=False,
    checks_page_cache_before_message=True,
    reports_long_properties_as_illegal=True,
    stamps_batches_before_lock=False,
    fills_light_lists_for_plain_names=True,
    leaves_wait_out_of_light_records=True,
    sets_light_offsets_from_record=True,
    reports_large_light_records_as_unknown=True,
    # log, dispatching and replicas
    flushes_log_by_timer=True,
    moves_dispatch_into_log=True,
    waits_for_slave_by_slave_timeout=True,
    # recovery
    goes_on_after_odd_size=False,
    loads_delay_levels_after_recovery=True,
    dispatches_uncovered_at_start=True,
    cuts_queues_by_cover=True,
    deletes_queues_of_lost_log=True,
    # getting and cleaning
    restarts_at_min_offset=False,
    refuses_negative_max_msg_nums=True,
    # delayed messages
    corrects_delay_offsets=True,
    goes_back_to_last_delayed=True,
    notes_delay_offset_while_waiting=False,
    notes_delay_offset_after_each=True,
    retries_delivery_soon=True,
    drops_delayed_half_messages=True,
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
    cancels_timers_by_topic_and_key=True,
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
    # putting
    checks_puts_by_hooks=True,
    limits_topics_in_bytes=True,
    checks_page_cache_before_message=False,
    reports_long_properties_as_illegal=False,
    takes_puts_as_duplicating_slave=True,
    schedules_by_hook=True,
    fills_light_lists_by_lmq_switch=True,
    fills_light_lists_for_plain_names=False,
    leaves_wait_out_of_light_records=False,
    sets_light_offsets_from_record=False,
    limits_light_records=True,
    reports_large_light_records_as_unknown=False,
    # log, dispatching and replicas
    has_wake_flush_switches=True,
    pools_buffers_with_sync_flush=True,
    flushes_checkpoint_by_timer=True,
    keeps_confirmed_offset=True,
    dispatches_only_flushed_records=True,
    stops_dispatch_at_confirmed_offset=True,
    notifies_on_slave=True,
    waits_for_in_sync_replicas=True,
    skips_replicas_with_duplication=True,
    # recovery
    recovers_from_queues_cover=True,
    dispatches_in_normal_recovery=True,
    dispatches_whole_confirmed_records=True,
    loads_delay_levels_after_recovery=False,
    dispatches_uncovered_at_start=False,
    has_recheck_of_queues_cover=True,
    starts_dispatch_at_confirmed_offset=True,
    cuts_queues_before_log=True,
    counts_unconfirmed_records=True,
    # getting and cleaning
    refuses_negative_max_msg_nums=False,
    travels_queue_files=True,
    limits_bytes_of_get=True,
    ends_full_get_at_any_unit=True,
    bounds_disk_ratios=True,
    judges_disk_by_forcible_ratio=True,
    has_delete_file_batch_max=True,
    corrects_batch_queues=True,
    # pulling
    rejects_pulls_on_unread_slave=True,
    commits_only_with_result=True,
    commits_offsets_on_slave=True,
    keeps_pull_offsets=True,
    has_server_side_reset=True,
    answers_with_sys_flags=True,
    sends_consumers_back_to_master=True,
    stores_offset_moved_event=False,
    reports_forbidden_type=True,
    checks_group_names=True,
    reports_wrong_queue_as_parameter=True,
    filters_retries_by_tag=True,
    cuts_group_from_retry_topic=True,
    # files of the broker
    versions_consumer_offsets=True,
    versions_delay_offsets=True,
    has_state_version=True,
    has_topic_attributes=True,
    has_group_attributes=True,
    has_forbidden_table=True,
    # delayed messages
    notes_delay_offset_while_waiting=True,
)

_5_3_4: Final = replace(
    _5_3,
    release="5.3.4",
    judge="5.3.4",
    # records and properties
    gives_members_batch_properties=False,
    # putting
    takes_long_retry_topics=True,
    # recovery
    recovers_from_sound_file=True,
    cuts_queues_by_new_cover=True,
)

_5_4: Final = replace(
    _5_3_4,
    release="5.4",
    judge="5.4.0",
    # records and properties
    cancels_timers_by_topic_and_key=False,
    # consume queues and index
    indexes_tags=True,
    # recovery
    limits_files_to_recover=True,
    # files of the broker
    breaks_lines_at_queue_ids=True,
    escapes_few_characters=True,
    breaks_empty_tables=True,
    reads_config_by_fastjson_2=True,
)

_5_5: Final = replace(
    _5_4,
    release="5.5",
    judge="5.5.0",
    # log, dispatching and replicas
    keeps_flushed_queue_offset=True,
    # recovery
    recovers_from_flushed_queues=True,
    # files of the broker
    writes_pull_offsets=True,
    breaks_empty_tables=False,
    reads_config_strictly=True,
)

_5_5_1: Final = replace(
    _5_5,
    release="5.5.1",
    judge="5.5.1",
    # consume queues and index
    refuses_negative_size=True,
    resets_queue_without_files=True,
    # files of the broker
    writes_pull_offsets=False,
    keeps_replaced_filters=True,
)

RELEASE_RULES: Final[dict[Release, ReleaseRules]] = {
    "4.3": _4_3,
    "4.9": _4_9,
    "5.3": _5_3,
    "5.3.4": _5_3_4,
    "5.4": _5_4,
    "5.5": _5_5,
    "5.5.1": _5_5_1,
}
"""What each release does, oldest first."""

RELEASES: Final = tuple(RELEASE_RULES)
"""The names of all releases, oldest first."""

LIKELIEST_FIRST: Final = tuple(sorted(RELEASES, key=lambda name: tuple(map(int, name.split(".")[:2])), reverse=True))
"""The names of all releases, the newest series first, and of each series its patch releases last."""

DEFAULT_RELEASE: Final[Release] = "5.5"
"""The release that is followed by default: the newest one that is judged like the others (ADR 0029)."""

_VERSION: Final = re.compile(r"([0-9]+\.[0-9]+)(?:\.([0-9]+))?")
_OF_TWO: Final = "4.9.0"
"""The version that parses properties by the rules of one release, and does other things by those of the next."""


def rules_of(release: str) -> ReleaseRules:
    """Return the rules of a release."""
    try:
        return RELEASE_RULES[release]  # type: ignore[index]  # any other name is an error, raised below
    except (KeyError, TypeError):
        hint = release_hint(str(release))
        raise InvalidOptionError(f"release: expected one of {', '.join(RELEASES)}, found {release!r}{hint}") from None


def named_rules(release: str | None) -> ReleaseRules | None:
    """Return the rules of a release that somebody named; None for the default, which may be any release."""
    return None if release in {None, DEFAULT_RELEASE} else rules_of(str(release))


def release_hint(found: str) -> str:
    """Return what to give in place of something that is no release, as the end of an error; empty if that is not known.

    Which release serves for a version of another series depends on what is asked, so none is suggested.

    >>> release_hint("5.3.3")
    '; RocketMQ 5.3.3 is served by the rules of 5.3, so give 5.3'
    >>> release_hint("5.5.2")
    '; RocketMQ 5.5.2 is served by the rules of 5.5.1, so give 5.5.1'
    """
    version = _VERSION.fullmatch(found.strip())
    if version is None or version[0] in RELEASES:
        return hint_of(found, RELEASES)
    if version[1] in RELEASES and version[0] != _OF_TWO:
        patches = [name for name in RELEASES if name.startswith(f"{version[1]}.")]
        serving = [version[1], *(name for name in patches if int(name.rpartition(".")[2]) <= int(version[2] or 0))][-1]
        return f"; RocketMQ {version[0]} is served by the rules of {serving}, so give {serving}"
    return "; docs/releases.md says in which version each rule changed"


def shown_releases() -> str:
    """Return the names of all releases for a document, with "or" before the last."""
    *others, last = (f"`{name}`" for name in RELEASES)
    return f"{', '.join(others)} or {last}"


def _reduce(rules: ReleaseRules) -> tuple[Callable[[str], ReleaseRules], tuple[str]]:
    return rules_of, (rules.release,)


copyreg.pickle(ReleaseRules, _reduce)  # by name: configurations that hold it are sent to tasks
