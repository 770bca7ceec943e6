# SPDX-License-Identifier: Apache-2.0
"""The version by which brokers and name servers tell whether a configuration has changed."""

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
    """A state of a configuration (RocketMQ: ``DataVersion``).

    Attributes
    ----------
    timestamp : int
        When it came to be, ms since 1970.
    counter : int
        How many there were before.
    state_version : int
        Of the broker in controller mode, else 0 (5.x).
    """

    timestamp: int
    counter: int = 0
    state_version: int = 0

    @classmethod
    def decode(cls, fields: ConfigFields) -> Self:
        """Read it; what is missing is 0."""
        return cls(fields.integer("timestamp"), fields.integer("counter"), fields.integer("stateVersion"))

    def encode(self, release: Release) -> JsonObject:
        """Write it as a release does: 4.x has no state version."""
        state: JsonObject = {"stateVersion": self.state_version} if rules_of(release).has_state_version else {}
        return {"counter": self.counter, **state, "timestamp": self.timestamp}

    def next_version(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the one after it."""
        return DataVersion(now_ms, self.counter + 1, state_version)
