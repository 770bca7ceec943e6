# SPDX-License-Identifier: Apache-2.0
"""Keeping queues and index up to date with the log."""
