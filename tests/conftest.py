# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests."""

from __future__ import annotations

pytest_plugins = ["tests.golden_plugin"]
