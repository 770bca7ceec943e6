# SPDX-License-Identifier: Apache-2.0
"""Consume queues: their files, units, extensions and bounds."""
