# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed by coverage: a function of bytes, with inputs to begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


Judge = Callable[[bytes], object]
"""Decodes an input and judges what came out; a result or an exception that is not allowed raises."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder that gets bytes.

    * `prepare`: Returns the function that judges an input; it may write in the directory that it is given.
    * `seeds`: Returns the inputs to begin with, in that directory.
    """

    name: str
    prepare: Callable[[Path], Judge]
    seeds: Callable[[Path], Sequence[bytes]] = lambda _: [b""]
