# SPDX-License-Identifier: Apache-2.0
"""A store's own state: checkpoint, flags and counters."""
