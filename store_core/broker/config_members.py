# SPDX-License-Identifier: Apache-2.0
"""The members of a topic or a consumer group, in the order in which a broker writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from store_core.format.java import hash_map_capacity, hash_map_order
from store_core.store.config.config_values import snake_case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.broker.config_json import JsonKey, JsonObject, JsonValue

__all__ = ["encode_members"]

_ATTRIBUTES: Final = "attributes"


class _Config(Protocol):
    """A configuration with attributes, and with members of the file that it does not know."""

    @property
    def attributes(self) -> Mapping[str, str]: ...
    @property
    def others(self) -> Mapping[JsonKey, JsonValue]: ...


def encode_members(config: _Config, names: frozenset[str]) -> JsonObject:
    """Return the named members of a configuration and those it does not know, sorted by name as fastjson does.

    Attributes are in the iteration order of Java's ``HashMap``.

    Parameters
    ----------
    config : TopicConfig or SubscriptionGroupConfig
    names : frozenset of str
        Members of the file; each is the field of that name in snake case.
    """
    members: JsonObject = {name: getattr(config, snake_case(name)) for name in names}
    if _ATTRIBUTES in names:
        keys = tuple(config.attributes)
        members[_ATTRIBUTES] = {key: config.attributes[key] for key in hash_map_order(keys, hash_map_capacity(keys))}
    members.update(config.others)
    return {name: members[name] for name in sorted(members, key=str)}
