# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of every decoder: seeds, mutations, and oracles that say which results may change."""
