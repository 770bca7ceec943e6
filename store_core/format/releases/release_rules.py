# SPDX-License-Identifier: Apache-2.0
"""The differences between releases of RocketMQ, each as a named feature.

`store_core.format.releases.release` defines what each release does. A feature that is not a yes or no holds the
release's value. Each names the Java method that the rule comes from, and the RocketMQ version that introduced or
changed it.

There is one object per release, so these dataclasses have no comparison, and only the last has a constructor: methods
for all features would be most of the time that the import of this module takes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from store_core.format.releases.release_broker import BrokerFeatures
from store_core.format.releases.release_records import RecordFeatures
from store_core.format.releases.release_store import StoreFeatures

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Feature", "ReleaseRules", "release_features"]


class Feature(NamedTuple):
    """A feature as documents show it.

    Attributes
    ----------
    name : str
        The attribute of `ReleaseRules`.
    area : str
        The part of RocketMQ it belongs to.
    meaning : str
        A clause without a full stop.
    source : str
        Java method, and the RocketMQ version of the rule.
    """

    name: str
    area: str
    meaning: str
    source: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReleaseRules(BrokerFeatures, StoreFeatures, RecordFeatures):
    """The features of one release.

    Attributes
    ----------
    release : str
        Its name in options.
    judge : str
        The RocketMQ version whose behaviour is followed and tested against.
    """

    release: str
    judge: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.release!r})"


def release_features() -> Iterator[Feature]:
    """Yield the features in the order of the table."""
    for each in fields(ReleaseRules):
        if each.metadata:
            yield Feature(each.name, **each.metadata)
