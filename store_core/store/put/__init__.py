# SPDX-License-Identifier: Apache-2.0
"""Appending messages to the log."""
