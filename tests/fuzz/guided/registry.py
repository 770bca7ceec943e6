# SPDX-License-Identifier: Apache-2.0
"""All decoders of guided fuzzing, in the order that the first byte of an input means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.guided.decoders import DECODERS
from tests.fuzz.guided.lots import DRAWN_DECODERS

if TYPE_CHECKING:
    from tests.fuzz.guided.decoder import Decoder


ALL_DECODERS: Final[tuple[Decoder, ...]] = (*DECODERS, *DRAWN_DECODERS)
