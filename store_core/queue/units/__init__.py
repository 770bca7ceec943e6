# SPDX-License-Identifier: Apache-2.0
"""Consume queue units: their formats, and the queues that each record belongs in."""
