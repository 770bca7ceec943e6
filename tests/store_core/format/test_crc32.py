# SPDX-License-Identifier: Apache-2.0
"""The checksum is the same with and without the optional library, and as a third implementation computes it."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from importlib.util import find_spec

import crcmod.predefined
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar.checksums import body_crcs
from store_core.format.crc32 import crc32

judge = crcmod.predefined.mkCrcFun("crc-32")

_LENGTHS = (0, 1, 15, 16, 17, 63, 64, 200, 255, 256, 257, 1000, 1023, 1024, 1025, 5000)
_ASK = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
import numpy as np
from store_core.format.columnar.checksums import body_crcs
from store_core.format.crc32 import crc32
found = [crc32.__module__]
for borders in map(np.array, json.loads(sys.argv[2])):
    found.append(body_crcs(np.arange(borders[-1]).astype(np.uint8), borders[:-1], borders[1:]).tolist())
print(json.dumps(found))
"""
"""Modules that can't be imported; boundaries of pieces, several times."""

# Long ones, too: from some hundred bytes on the library takes wider steps, and treats the rest separately.
data = st.builds(bytes.__mul__, st.binary(max_size=300), st.integers(1, 20))


@given(data, st.just(0) | st.integers(0, 2**32 - 1), st.integers(0, 70))
def test_checksum_is_that_of_two_other_implementations(body: bytes, before: int, start: int) -> None:
    found = crc32(body, before)

    assert zlib.crc32(body, before) == found
    assert judge(body, before) == found
    assert judge(body[start:], before) == crc32(memoryview(body)[start:], before)
    assert crc32(body) == crc32(memoryview(body)[start:], crc32(body[:start]))


@pytest.mark.parametrize("length", _LENGTHS)
def test_checksum_is_right_at_each_length_where_an_implementation_may_change_its_way(length: int) -> None:
    body = bytes(255 - number % 251 for number in range(length))

    assert judge(body) == crc32(body)


def test_checksum_of_no_bytes_is_what_came_before() -> None:
    assert (0, 7) == (crc32(b""), crc32(b"", 7))
    assert 7 == crc32(memoryview(b""), 7)


def test_bytes_with_holes_between_them_are_refused() -> None:
    with pytest.raises(BufferError, match="contiguous"):
        crc32(memoryview(b"abcd")[::2])


def test_the_faster_implementation_is_taken_if_it_is_there() -> None:
    assert ("zlib" if find_spec("isal") is None else "isal.isal_zlib") == crc32.__module__


@pytest.mark.parametrize("missing", [["isal"], ["isal.isal_zlib"]])
def test_without_the_library_zlib_gives_the_same(missing: list[str]) -> None:
    several = [np.cumsum([0, *lengths]) for lengths in ([200] * 30, range(1, 60), [3000, 0, 5000])]
    arguments = [json.dumps(missing), json.dumps([borders.tolist() for borders in several])]
    command = [sys.executable, "-c", _ASK, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 -- ours

    raws = [np.arange(borders[-1]).astype(np.uint8) for borders in several]
    expected = [body_crcs(raw, borders[:-1], borders[1:]).tolist() for raw, borders in zip(raws, several, strict=True)]
    assert ["zlib", *expected] == json.loads(answer.stdout)
