# SPDX-License-Identifier: Apache-2.0
"""Staged records that become part of a log all at once."""
