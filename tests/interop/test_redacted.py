# SPDX-License-Identifier: Apache-2.0
"""RocketMQ takes a redacted copy for its own: it serves every message, and answers every key."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.answers import redact
from tests.interop.handed import key_questions
from tests.interop.scenarios import each_release
from tests.interop.test_repaired import _CHOSEN, _Copy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden
    from tests.interop.judge import Judge


@pytest.mark.parametrize("release", each_release())
def test_rocketmq_takes_a_redacted_store_for_its_own(
    release: str, judge_of: Callable[[str], Judge], golden: Golden, tmp_path: Path
) -> None:
    copy = _Copy.of(golden(_CHOSEN[release]), tmp_path, "whole", release)
    topic = read_messages(copy.store, columns=["topic"]).read_all()["topic"][0].as_py()
    target = copy.store.with_name("redacted")
    report = redact(copy.store, target, topic=[topic])
    shutil.rmtree(copy.store)
    target.rename(copy.store)
    questions = key_questions(copy.store, release)

    assert report.found.messages > 0
    assert [] == copy.differences(judge_of(release), copy.answers(questions), questions)
