# SPDX-License-Identifier: Apache-2.0
"""Each job ends on Spark with the exit code and the report of its command without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from store_core.command.console import Console
from tests.store_core.answers.test_golden_json import CASES, beside_another, golden_of, json_of, life_store

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_SPARK: Final = {"count", "info"}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("reports")
    return beside_another(life_store(base), base / "life")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", sorted(CASES.keys() - WITHOUT_SPARK))
def test_a_report_on_spark_is_that_of_the_command(case: str, life: Path) -> None:
    assert golden_of(case, "life").read_text(encoding="utf-8") == json_of(case, life, Console(is_on_spark=True))
