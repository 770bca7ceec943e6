# SPDX-License-Identifier: Apache-2.0
"""Checksums of bodies, compared with another implementation."""

from __future__ import annotations

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.crc32 import CRC_MASK
from store_core.format.record.scan import body_crc

crc32 = crcmod.predefined.mkCrcFun("crc-32")


@given(st.binary())
def test_body_crc_is_crc32_without_its_top_bit(body: bytes) -> None:
    assert body_crc(body) == crc32(body) & 0x7FFFFFFF
    assert body_crc(memoryview(body)) == body_crc(body)


@pytest.mark.parametrize(("body", "crc"), [(b"", 0), (b"body0", 0x516FA58A), (b"\1\2\3", 0x55BC801D)])
def test_body_crc_is_that_of_rocketmq(body: bytes, crc: int) -> None:
    assert body_crc(body) == crc


def test_the_mask_leaves_31_bits() -> None:
    assert CRC_MASK == (1 << 31) - 1
