# SPDX-License-Identifier: Apache-2.0
"""Version of a configuration, by which brokers and name servers detect changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from store_core.format.releases.release import rules_of

if TYPE_CHECKING:
    from store_core.broker.config_fields import ConfigFields
    from store_core.broker.config_json import JsonObject
    from store_core.format.releases.release import Release

__all__ = ["DataVersion"]


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a configuration (RocketMQ: ``DataVersion``).

    Attributes
    ----------
    timestamp : int
        Time of the change, ms since 1970.
    counter : int
        How many versions preceded this one.
    state_version : int
        The broker's in controller mode, else 0 (5.x).
    """

    timestamp: int
    counter: int = 0
    state_version: int = 0

    @classmethod
    def decode(cls, fields: ConfigFields) -> Self:
        """Decode it; missing members are 0."""
        return cls(fields.integer("timestamp"), fields.integer("counter"), fields.integer("stateVersion"))

    def encode(self, release: Release) -> JsonObject:
        """Encode it as a release does: 4.x has no state version."""
        state: JsonObject = {"stateVersion": self.state_version} if rules_of(release).has_state_version else {}
        return {"counter": self.counter, **state, "timestamp": self.timestamp}

    def next_version(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the next version."""
        return DataVersion(now_ms, self.counter + 1, state_version)
