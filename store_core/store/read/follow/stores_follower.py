# SPDX-License-Identifier: Apache-2.0
"""Follows the logs of one store or several as one: a position of all is one of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from store_core.errors import InvalidOptionError
from store_core.store.read.follow.log_follower import NO_LIMITS, LogFollower, ReadLimits
from store_core.store.read.follow.log_position import LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.files.store_path import StorePaths
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


Positions = dict[str, LogPosition]
"""Name of a store -> where its log is read up to. The name is empty where there is only one store."""

_STORES: Final = "stores"
_OFFSET: Final = "physicalOffset"


class StoresFollower:
    """Follows the logs of all stores at some paths; each as `LogFollower` does.

    The stores are those that were there when this was made. Positions of other stores are refused: where a new store
    would begin would follow from what is there at that moment, and a batch that is repeated could have other rows.
    """

    def __init__(self, paths: StorePaths, options: ReadOptions) -> None:
        stores = options.stores_of(paths)
        names = [store.name for store in stores] if len(stores) > 1 else [""]
        self.stores = dict(zip(names, stores, strict=True))
        self._logs = {name: LogFollower(store.paths, options) for name, store in self.stores.items()}
        self._turns = list(self._logs)  # those whose turn it is first, where a batch has no record for each

    @property
    def end(self) -> Positions | None:
        """Where the logs ended when they were last looked at; None if one has not been yet."""
        ends = {name: end for name, log in self._logs.items() if (end := log.end) is not None}
        return ends if len(ends) == len(self._logs) else None

    @property
    def has_fixed_end(self) -> bool:
        """Whether `fix_end` was called."""
        return all(log.has_fixed_end for log in self._logs.values())

    def initial(self, *, at_end: bool = False) -> Positions:
        """Return where reading begins, by the options; see `LogFollower.initial`."""
        return {name: log.initial(at_end=at_end) for name, log in self._logs.items()}

    def latest(self) -> Positions:
        """Return where the logs end now."""
        return {name: log.latest() for name, log in self._logs.items()}

    def fix_end(self) -> None:
        """Let reading end, for good, where the logs end now."""
        for log in self._logs.values():
            log.fix_end()

    def advance(self, start: Positions, limits: ReadLimits) -> Positions:
        """Return where the batch ends that begins at a position, with no more than the limits over all logs.

        Logs share them: what one with little new leaves, the others have.
        """
        given = dict.fromkeys(self._logs, limits)
        if limits != NO_LIMITS and len(self._logs) > 1:
            given = self._shared(start, limits)
        return {
            name: start[name] if given[name].max_records == 0 else log.advance(start[name], given[name])
            for name, log in self._logs.items()
        }

    def waiting_records(self, start: Positions, most: int) -> int:
        """Count the records after a position, up to a number that is enough."""
        return min(most, sum(log.waiting_records(start[name], most) for name, log in self._logs.items()))

    def ranges(self, start: Positions, end: Positions) -> Iterator[tuple[str, ReadRange]]:
        """Yield what tasks read for a batch, with the names of the stores; see `LogFollower.ranges`."""
        for name, log in self._logs.items():
            yield from ((name, each) for each in log.ranges(start[name], end[name]))

    def as_json(self, positions: Positions) -> dict[str, Any]:
        """Return a position as values for JSON: that of the only log, or one by the name of each store."""
        found = {name: position.as_json() for name, position in positions.items()}
        return {_STORES: found} if len(found) > 1 else next(iter(found.values()))

    def from_json(self, found: Mapping[str, Any]) -> Positions:
        """Return what `as_json` made; refused if it is of other stores than those that are followed."""
        several = found.get(_STORES)
        if several is None and len(self._logs) == 1:
            return {name: LogPosition.from_json(found) for name in self._logs}
        if not isinstance(several, dict) or several.keys() != self._logs.keys():
            raise self._other_stores(several)
        return {name: LogPosition.from_json(several[name]) for name in self._logs}

    def _other_stores(self, several: object) -> InvalidOptionError:
        before = ", ".join(sorted(several)) if isinstance(several, dict) else "one store"
        now = ", ".join(sorted(self._logs)) if len(self._logs) > 1 else "one store"
        return InvalidOptionError(
            f"the checkpoint is of {before}, and the paths are of {now}: expected the same stores, by their names, as "
            f"where another would begin is not certain when a batch is repeated. Give the paths of those stores; "
            f"follow others by a query of their own, or all of them by a new query with a new checkpoint"
        )

    def _shared(self, start: Positions, limits: ReadLimits) -> dict[str, ReadLimits]:
        """Return limits for each log, which together are those of all; one may be no records, and none is no bytes."""
        records: Mapping[str, int | None] = dict.fromkeys(self._logs)
        sizes: Mapping[str, int | None] = dict.fromkeys(self._logs)
        if limits.max_records is not None:
            most = limits.max_records
            waiting = {name: self._logs[name].waiting_records(start[name], most) for name in self._turns}
            records = shares = _shares(waiting, most)
            self._turns.sort(key=lambda name: shares[name] > 0)
        if limits.max_bytes is not None:
            ends = self.latest()
            waiting = {name: ends[name].physical_offset - start[name].physical_offset for name in self._logs}
            sizes = {name: max(share, 1) for name, share in _shares(waiting, limits.max_bytes).items()}
        return {name: ReadLimits(records[name], sizes[name]) for name in self._logs}


def _shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide what a batch may have: those that need less than an equal share leave the rest to the others.

    Where that is less than one for each, the first have one.
    """
    found = dict.fromkeys(waiting, 0)
    needy = [name for name, size in waiting.items() if size > 0][:most]
    for at, name in enumerate(sorted(needy, key=waiting.__getitem__)):
        found[name] = min(waiting[name], most // (len(needy) - at))
        most -= found[name]
    return found


def behind(end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
    """Return how many bytes are between two positions as JSON, over all logs; None if they are not such positions."""
    if isinstance(end.get(_STORES), dict) and isinstance(latest.get(_STORES), dict):
        pairs = [(each, latest[_STORES].get(name)) for name, each in end[_STORES].items()]
    else:
        pairs = [(end, latest)]
    offsets = [(one.get(_OFFSET), other.get(_OFFSET)) for one, other in pairs if one and other]
    distances = [max(other - one, 0) for one, other in offsets if isinstance(one, int) and isinstance(other, int)]
    return sum(distances) if len(distances) == len(pairs) else None
