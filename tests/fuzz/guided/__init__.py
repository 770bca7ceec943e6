# SPDX-License-Identifier: Apache-2.0
"""Fuzzing that is guided by coverage: inputs that reach new code are kept, and mutated further (atheris, libFuzzer)."""
