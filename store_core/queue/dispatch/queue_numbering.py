# SPDX-License-Identifier: Apache-2.0
"""Numbers for queues, in order of first appearance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["QueueNumbering"]


class QueueNumbering:
    """Mapping between queues (topic and queue id) and numbers.

    Parameters
    ----------
    queues : iterable of (str, int)
        Queues with the first numbers; each once.

    Attributes
    ----------
    queues : list of (str, int)
        By number.

    Examples
    --------
    >>> numbers = QueueNumbering([("orders", 0)])
    >>> numbers.number(("orders", 1)), numbers.number(("orders", 0))
    (1, 0)
    """

    def __init__(self, queues: Iterable[tuple[str, int]] = ()) -> None:
        self.queues = list(queues)
        self._numbers = {queue: number for number, queue in enumerate(self.queues)}

    def __len__(self) -> int:
        """Count the queues."""
        return len(self.queues)

    def __contains__(self, queue: tuple[str, int]) -> bool:
        """Return whether a queue has a number."""
        return queue in self._numbers

    def number(self, queue: tuple[str, int]) -> int:
        """Return the number of a queue; assign the next one if it has none yet."""
        number = self._numbers.setdefault(queue, len(self.queues))
        if number == len(self.queues):
            self.queues.append(queue)
        return number
